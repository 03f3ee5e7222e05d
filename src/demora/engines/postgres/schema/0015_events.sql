-- The transaction that last ended the job or sent it into a retry. Listeners to events read jobs by it, so that a settlement
-- writes nothing for them but this number. It is null in rows that were written before there was a listener: then `meta` has no
-- `settled`. An end that a process of an earlier version records has no number. Step 18 builds the index.

alter table demora.jobs add column settled xid8;
