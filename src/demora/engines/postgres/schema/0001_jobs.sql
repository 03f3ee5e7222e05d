-- Times are milliseconds since 1970 by this database's clock: whole numbers compare and add as the core does it, and an
-- index on them is as small as one on timestamps. Leases use the same clock, since it is the one that all workers share.
-- The row of a job is the only truth about it. Equal jobs go in order of adding, which `seq` keeps.
-- A job is updated twice in its life as a rule, and each time leaves partial indexes: pages keep room for the new version, and
-- dead rows are vacuumed away by their number, not by their share of a table that may hold millions of ended jobs.

create table demora.jobs (
    seq bigint generated always as identity primary key,
    id uuid not null unique,
    type text collate "C" not null,
    name text,                        -- null: the type
    queue text collate "C" not null,
    status smallint not null,         -- core.states.Status: waiting < 3, processing 3, ended > 3
    lane smallint not null,           -- core.job.Lane
    rank smallint not null,           -- core.job.Priority
    due_at bigint not null,
    created_at bigint not null,
    scheduled_at bigint,              -- null: created_at
    expires_at bigint,
    max_retries int not null,
    retry_delay bigint not null,
    timeout bigint,
    token int not null default 0,     -- claims
    credits int not null default 0,   -- claims that were no attempts
    retries int not null default 0,
    strays int not null default 0,
    generation int not null default 1,
    payload text not null,
    tags text,                        -- JSON
    webhook_url text,
    unique_key text collate "C",
    worker_id text,
    claim bigint,                     -- the number of the call that claimed it, by which a lost answer is found again
    lease_until bigint,
    claimed_at bigint,
    started_at bigint,
    completed_at bigint,
    cancel_requested_at bigint,
    progress double precision,
    progress_message text,
    result text,
    error text,
    check ((status = 3) = (lease_until is not null)),
    check ((status > 3) = (completed_at is not null))
) with (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

create index jobs_waiting on demora.jobs (queue, lane, rank, due_at, seq) where status < 3;
create index jobs_leased on demora.jobs (lease_until) where status = 3;
create index jobs_dead on demora.jobs (id, queue) where status = 5;
create index jobs_ended on demora.jobs (queue, status, completed_at, seq) where status > 3;
create index jobs_expiring on demora.jobs (expires_at) where status < 3 and expires_at is not null and token = credits;

-- Unique among waiting jobs that were never claimed. A job that waits again after a run does not count.
create unique index jobs_unique on demora.jobs (unique_key, type)
where unique_key is not null and status < 3 and token = 0 and generation = 1;

-- Attempts that did not succeed. The row of the job itself records the successful one.
create table demora.attempts (
    job_id uuid not null,
    token int not null,
    started_at bigint,
    ended_at bigint not null,
    worker_id text,
    error text,
    traceback text,
    primary key (job_id, token)
);

create table demora.logs (
    seq bigint generated always as identity primary key,
    job_id uuid not null,
    at bigint not null,
    line text not null
);
create index logs_of_job on demora.logs (job_id);

create table demora.idempotency_keys (
    scope text collate "C" not null,
    key text collate "C" not null,
    request_hash bytea not null,
    job_id uuid not null,
    created_at bigint not null,
    scheduled_at bigint not null,
    expires_at bigint not null,
    primary key (scope, key)
);
create index keys_expiring on demora.idempotency_keys (expires_at);

-- Every queue that was ever named. Settings are null until they are set.
create table demora.queues (
    name text collate "C" primary key,
    step bigint,
    strict boolean,
    head_start bigint,
    offsets bigint[],                 -- what core.order makes of these for each lane and rank; null: the usual
    paused_at bigint,
    pause_reason text,
    retention text,                   -- core.retention.Retention as JSON; null: that of all queues
    changed_at bigint
);

create table demora.workers (
    id text primary key,
    host text not null,
    pid int not null,
    slots int not null,
    queues text not null,
    types text not null,
    started_at bigint not null,
    heartbeat_at bigint not null
) with (fillfactor = 50);

-- The steps in the life of each job. The triggers of audit.sql write them; without the triggers the table is empty.
-- The old_… columns say how the job stood before. Events of the kinds `accepted` and `stale` are no steps: there `token` is that
-- of the worker that wrote, and the old_… columns say how the job stands.
create table demora.events (
    seq bigint generated always as identity primary key,
    at bigint not null,
    job_id uuid not null,
    kind text not null,
    wrote text,                       -- of an accepted or stale write: renew, settle or lapse
    old_status smallint,
    status smallint,
    old_token int,
    token int not null,
    credits int,
    retries int,
    generation int,
    max_retries int,
    queue text,
    lane smallint,
    rank smallint,
    due_at bigint,
    worker_id text,
    old_lease_until bigint,
    lease_until bigint,
    wished boolean not null default false, -- whether a cancel was asked for
    error text                        -- of a settlement
);
