-- Schedules: what each one is and how far it is decided, what became of its slots, and which processes register which names.

create table schedules (
    name text primary key,
    schedule text not null,             -- core.schedule.Schedule as JSON
    exclusive int not null,             -- whether its overlap policy asks for earlier jobs
    revision int not null,
    decided_to int not null,
    next_at int,
    kept_at int,
    origin text not null,               -- store.schedules.Origin
    changed_by text,
    defined text,                       -- what the code of the application says, as JSON
    application text,
    release text,
    last_run_at int,
    last_job_id blob,
    run_count int not null default 0,
    records int not null default 0,     -- rows in schedule_slots
    forgotten_to int
) without rowid;
create index schedules_next on schedules (next_at) where next_at is not null;
create index schedules_keeping on schedules (kept_at) where kept_at is not null;
create index schedules_of_application on schedules (application) where application is not null;

-- One row for each slot that is decided: a slot that has one never gets a job again.
create table schedule_slots (
    schedule text not null,
    slot_at int not null,
    outcome text not null,              -- core.firing.SlotOutcome
    decided_at int not null,
    job_id blob,                        -- stays when the job is deleted
    primary key (schedule, slot_at)
) without rowid;

-- The names that the code of a process defines; the process is live while its worker has a heartbeat.
create table schedule_processes (
    application text not null,
    process_id text not null,
    names text not null,                -- JSON
    registered_at int not null,
    primary key (application, process_id)
) without rowid;

alter table jobs add column schedule text;
alter table jobs add column slot_at int;
create index jobs_of_schedule on jobs (schedule, id) where schedule is not null;
create index jobs_of_schedule_unended on jobs (schedule, status, token) where schedule is not null and status < 4;
