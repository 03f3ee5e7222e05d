-- Schedules: what each one is and how far it is decided, what became of its slots, and which processes register which names.

create table demora.schedules (
    name text collate "C" primary key,
    schedule text not null,             -- core.schedule.Schedule as JSON
    exclusive boolean not null,         -- whether its overlap policy asks for earlier jobs
    revision bigint not null,
    decided_to bigint not null,
    next_at bigint,
    kept_at bigint,
    origin text not null,               -- store.schedules.Origin
    changed_by text,
    defined text,                       -- what the code of the application says, as JSON
    application text collate "C",
    release text,
    last_run_at bigint,
    last_job_id uuid,
    run_count bigint not null default 0,
    records int not null default 0,     -- rows in schedule_slots
    forgotten_to bigint
);
create index schedules_next on demora.schedules (next_at) where next_at is not null;
create index schedules_keeping on demora.schedules (kept_at) where kept_at is not null;
create index schedules_of_application on demora.schedules (application) where application is not null;

-- One row for each slot that is decided: a slot that has one never gets a job again.
create table demora.schedule_slots (
    schedule text collate "C" not null,
    slot_at bigint not null,
    outcome text not null,              -- core.firing.SlotOutcome
    decided_at bigint not null,
    job_id uuid,                        -- stays when the job is deleted
    primary key (schedule, slot_at)
);

-- The names that the code of a process defines; the process is live while its worker has a heartbeat.
create table demora.schedule_processes (
    application text collate "C" not null,
    process_id text collate "C" not null,
    names text not null,                -- JSON
    registered_at bigint not null,
    primary key (application, process_id)
);

alter table demora.jobs add column schedule text collate "C";
alter table demora.jobs add column slot_at bigint;
create index jobs_of_schedule on demora.jobs (schedule, id) where schedule is not null;
create index jobs_of_schedule_unended on demora.jobs (schedule, status, token) where schedule is not null and status < 4;
