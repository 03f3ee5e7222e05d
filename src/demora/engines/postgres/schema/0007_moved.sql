-- Which transaction moved a job into waiting, null in rows that were written without a line in sight. By it whoever looks after a
-- line finds what moved since the last look, once and without a write. `lined_epoch`, by which places were confirmed one by one,
-- is not written any more; it stays for processes of an earlier version that go on meanwhile.

alter table demora.jobs add column moved xid8;

drop index demora.jobs_unlined;
create index jobs_moved on demora.jobs (moved, seq) where status < 3 and moved is not null;
