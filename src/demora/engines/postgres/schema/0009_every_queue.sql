-- The pace of all queues that have none of their own stands under the name `*`. A queue that follows it gets a row for its
-- state when it first releases a job. A row without a pace that does not follow `*` is that of a queue whose pace is off.

alter table demora.paces add column follows boolean not null default false;

-- What the settings of a worker say about paces, so that differences between workers can be seen.
alter table demora.workers add column paces text not null default '';
