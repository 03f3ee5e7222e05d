-- The transaction that last made the job wait, null in rows that were written while there was no line. A sweep of the line reads
-- rows by it, so it finds each move once and writes nothing. `lined_epoch` is no longer written; it stays for processes of an
-- earlier version that still run.

alter table demora.jobs add column moved xid8;

drop index demora.jobs_unlined;
create index jobs_moved on demora.jobs (moved, seq) where status < 3 and moved is not null;
