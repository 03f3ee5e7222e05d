-- The number of the write that last made the job wait, null in rows that were written while there was no line; `meta` counts the
-- writes. A sweep of the line reads rows by it, so it finds each move once and writes nothing. `lined_epoch` is no longer written.

alter table jobs add column moved int;

drop index jobs_unlined;
create index jobs_moved on jobs (moved) where status < 3 and moved is not null;
