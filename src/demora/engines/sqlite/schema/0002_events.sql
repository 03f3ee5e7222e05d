-- The steps in the life of each job. The triggers of audit.sql write them; without the triggers the table is empty.
-- `at` is wall time and `boot` milliseconds of this boot, both as the verb read them. The old_… columns say how the job stood
-- before. Events of the kinds `accepted` and `stale` are no steps: there `token` is that of the worker that wrote, and the old_…
-- columns say how the job stands.

create table events (
    seq integer primary key,
    at int not null,
    boot int not null,
    job_id blob not null,
    kind text not null,
    wrote text,                     -- of an accepted or stale write: renew, settle or lapse
    old_status int,
    status int,
    old_token int,
    token int not null,
    credits int,
    retries int,
    generation int,
    max_retries int,
    queue text,
    lane int,
    rank int,
    due_at int,
    worker_id text,
    old_lease_until int,
    lease_until int,
    wished int not null default 0,  -- whether a cancel was asked for
    error text                      -- of a settlement
);
