-- Expiry of waiting jobs, retention of ended jobs, and unique jobs.

alter table jobs add column expires_at int;
alter table jobs add column unique_key text;
alter table events add column expires_at int;
alter table events add column unique_key text;  -- with the type before it
alter table queues add column retention text;   -- core.retention.Retention as JSON; null: that of all queues

create index jobs_expiring on jobs (expires_at) where status < 3 and expires_at is not null and token = credits;
create index jobs_ended on jobs (queue, status, completed_at) where status > 3;

-- Unique among waiting jobs that were never claimed. A job that waits again after a run does not count.
create unique index jobs_unique on jobs (unique_key, type)
where unique_key is not null and status < 3 and token = 0 and generation = 1;
