-- The pace of all queues that have none of their own stands under the name `*`. A queue that follows it gets a row for its
-- state when it first releases a job. A row without a pace that does not follow `*` is that of a queue whose pace is off.

alter table paces add column follows int not null default 0;
