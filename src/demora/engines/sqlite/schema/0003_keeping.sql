-- How long jobs are worth something: before they start (expiry), and after their end (retention). And uniqueness while waiting.

alter table jobs add column expires_at int;
alter table jobs add column unique_key text;
alter table events add column expires_at int;
alter table events add column unique_key text;  -- with the type before it
alter table queues add column retention text;   -- core.retention.Retention as JSON; null: that of all queues

create index jobs_expiring on jobs (expires_at) where status < 3 and expires_at is not null and token = credits;
create index jobs_ended on jobs (queue, status, completed_at) where status > 3;

-- Taken while a job waits that was never claimed: a job that comes back to waiting is in nobody's way.
create unique index jobs_unique on jobs (unique_key, type)
where unique_key is not null and status < 3 and token = 0 and generation = 1;
