-- online
-- Indexes and a table for lists of jobs: by type, by class of an error, by tag, and of jobs that are retried. Their conditions
-- differ from those of other indexes, so that the planner uses them for lists alone. Before them come the indexes of parked jobs
-- and of settled ones, which steps 13 and 15 prepare.

create index concurrently jobs_parked on demora.jobs (type, queue, lane, rank, due_at, seq) where status < 3 and lane >= 4;

create index concurrently jobs_settled on demora.jobs (settled, seq) where settled is not null;

create index concurrently jobs_waiting_of_type on demora.jobs (type, status, due_at, seq)
where status in (0, 1, 2);

create index concurrently jobs_ended_of_type on demora.jobs (type, status, completed_at, seq)
where status in (4, 5, 6);

create index concurrently jobs_retrying on demora.jobs (queue, due_at, seq) where status = 2;

create index concurrently jobs_dead_of_error on demora.jobs
((left(split_part(error, ':', 1), 200)) collate "C", completed_at, seq) where status = 5 and completed_at is not null;

-- The tags of jobs that have any. Triggers write it, so that processes of earlier versions keep it up to date too.
create table demora.job_tags (
    tag text collate "C" not null,
    job_id uuid not null,
    primary key (tag, job_id)
);
create function demora.add_tags() returns trigger language plpgsql as $$
begin
    insert into demora.job_tags (tag, job_id) select distinct one, new.id
    from json_array_elements_text(coalesce(new.tags, '[]')::json) as one on conflict do nothing;
    return null;
end $$;
create function demora.remove_tags() returns trigger language plpgsql as $$
begin
    delete from demora.job_tags where job_id = old.id
        and tag = any(array(select json_array_elements_text(coalesce(old.tags, '[]')::json)));
    return null;
end $$;
create trigger tags_added after insert on demora.jobs for each row when (new.tags is not null)
execute function demora.add_tags();
create trigger tags_changed_1 after update of tags on demora.jobs for each row when (new.tags is distinct from old.tags)
execute function demora.remove_tags();
create trigger tags_changed_2 after update of tags on demora.jobs for each row when (new.tags is distinct from old.tags)
execute function demora.add_tags();
create trigger tags_removed after delete on demora.jobs for each row when (old.tags is not null)
execute function demora.remove_tags();

-- repeat
-- The tags of older jobs.
insert into demora.meta (name, value) values ('tags.filled', '0') on conflict do nothing;
insert into demora.job_tags (tag, job_id)
select distinct one, jobs.id
from (select value::bigint as done from demora.meta where name = 'tags.filled') as filled
join demora.jobs on jobs.seq > filled.done and jobs.seq <= filled.done + 20000 and jobs.tags is not null
cross join json_array_elements_text(jobs.tags::json) as one
on conflict do nothing;
update demora.meta set value = (value::bigint + 20000)::text
where name = 'tags.filled' and value::bigint < (select coalesce(max(seq), 0) from demora.jobs);
