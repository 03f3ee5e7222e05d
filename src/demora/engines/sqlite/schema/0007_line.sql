-- Whether a job has a place in the line: null in rows that were written while there was no line, 0 since the job last began to
-- wait, and the epoch of the line once the place is confirmed. `meta` holds the name of this database in the line, the epoch, and
-- the run id of the servers that were filled last.

alter table jobs add column lined_epoch int;

create index jobs_unlined on jobs (due_at) where status < 3 and lined_epoch = 0;
