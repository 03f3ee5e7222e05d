-- The number of the write that last ended the job or sent it into a retry. Listeners to events read jobs by it, so that a
-- settlement writes nothing for them but this number. It is null in rows that were written before there was a listener: then
-- `meta` has no `settled`. That keeps the number of the last such write if its jobs were deleted. An end that a process of an
-- earlier version records has no number.

alter table jobs add column settled int;
create index jobs_settled on jobs (settled) where settled is not null;
