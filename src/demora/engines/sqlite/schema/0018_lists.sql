-- online
-- Indexes and a table for lists of jobs: by type, by class of an error, by tag, and of jobs that are retried. Their conditions
-- differ from those of other indexes, so that the planner uses them for lists alone.

create index jobs_waiting_of_type on jobs (type, status, due_at) where status < 3 and type is not null;

create index jobs_ended_of_type on jobs (type, status, completed_at) where status > 3 and type is not null;

create index jobs_retrying on jobs (queue, due_at) where status = 2;

create index jobs_dead_of_error on jobs (substr(error, 1, min(instr(error || ':', ':') - 1, 200)), completed_at)
where status = 5;

-- The tags of jobs that have any. `add` writes them, since a trigger would cost every job a tenth of the time of its insert.
create table job_tags (
    tag text not null,
    job_id blob not null,
    primary key (tag, job_id)
) without rowid;
create trigger tags_changed after update of tags on jobs when new.tags is not old.tags begin
    delete from job_tags where job_id = old.id and tag in (select value from json_each(old.tags));
    insert or ignore into job_tags (tag, job_id) select value, new.id from json_each(new.tags);
end;
create trigger tags_removed after delete on jobs when old.tags is not null begin
    delete from job_tags where job_id = old.id and tag in (select value from json_each(old.tags));
end;

-- repeat
-- The tags of older jobs.
insert or ignore into meta (name, value) values ('tags.filled', '0');
insert or ignore into job_tags (tag, job_id)
select one.value, jobs.id
from (select cast(value as int) as done from meta where name = 'tags.filled') as filled
join jobs on jobs.rowid > filled.done and jobs.rowid <= filled.done + 20000 and jobs.tags is not null
join json_each(jobs.tags) as one;
update meta set value = min(cast(value as int) + 20000, (select max(rowid) from jobs))
where name = 'tags.filled' and cast(value as int) < (select coalesce(max(rowid), 0) from jobs);
