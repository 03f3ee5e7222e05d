-- Whether a job has its place in a line: null in rows that were written without one in sight, 0 from each move into waiting
-- on, and the number of the line once the place is confirmed. In `meta` stand the name of this database there, the number, and
-- which run of which servers was filled last.

alter table demora.jobs add column lined_epoch int;

create index jobs_unlined on demora.jobs (due_at) where status < 3 and lined_epoch = 0;
