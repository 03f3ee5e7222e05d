-- Which write moved a job into waiting, null in rows that were written without a line in sight: the writes are counted in `meta`.
-- By it whoever looks after a line finds what moved since the last look, once and without a write. `lined_epoch`, by which places
-- were confirmed one by one, is not written any more.

alter table jobs add column moved int;

drop index jobs_unlined;
create index jobs_moved on jobs (moved) where status < 3 and moved is not null;
