-- Times are milliseconds since 1970; lease_until alone counts milliseconds of this boot.
-- The row of a job is the only truth about it. Equal jobs go in order of adding, which the rowid keeps.

create table jobs (
    id blob not null unique,
    type text not null,
    name text,                      -- null: the type
    queue text not null,
    status int not null,            -- core.states.Status: waiting < 3, processing 3, ended > 3
    lane int not null,              -- core.job.Lane
    rank int not null,              -- core.job.Priority
    due_at int not null,
    created_at int not null,
    scheduled_at int,               -- null: created_at
    max_retries int not null,
    retry_delay int not null,
    timeout int,
    token int not null default 0,   -- claims
    credits int not null default 0, -- claims that were no attempts
    retries int not null default 0,
    strays int not null default 0,
    generation int not null default 1,
    payload text not null,
    tags text,
    webhook_url text,
    worker_id text,
    lease_until int,
    claimed_at int,
    started_at int,
    completed_at int,
    cancel_requested_at int,
    progress real,
    progress_message text,
    result text,
    error text,
    check ((status = 3) = (lease_until is not null)),
    check ((status > 3) = (completed_at is not null))
);

create index jobs_waiting on jobs (queue, lane, rank, due_at) where status < 3;
create index jobs_leased on jobs (lease_until) where status = 3;
create index jobs_dead on jobs (id, queue) where status = 5;

-- Attempts that did not succeed. The row of the job itself records the successful one.
create table attempts (
    job_id blob not null,
    token int not null,
    started_at int,
    ended_at int not null,
    worker_id text,
    error text,
    traceback text,
    primary key (job_id, token)
) without rowid;

create table logs (
    job_id blob not null,
    at int not null,
    line text not null
);
create index logs_of_job on logs (job_id);

create table idempotency_keys (
    scope text not null,
    key text not null,
    request_hash blob not null,
    job_id blob not null,
    created_at int not null,
    scheduled_at int not null,
    expires_at int not null,
    primary key (scope, key)
) without rowid;
create index keys_expiring on idempotency_keys (expires_at);

-- Every queue that was ever named. Settings are null until they are set.
create table queues (
    name text primary key,
    step int,
    strict int,
    head_start int,
    paused_at int,
    pause_reason text,
    changed_at int
) without rowid;
create index queues_set on queues (changed_at) where changed_at is not null;

create table workers (
    id text primary key,
    host text not null,
    pid int not null,
    slots int not null,
    queues text not null,
    types text not null,
    started_at int not null,
    heartbeat_at int not null       -- milliseconds of this boot
) without rowid;

create table meta (
    name text primary key,
    value text not null
) without rowid;
