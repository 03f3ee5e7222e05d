-- Webhooks: whom to tell of a job's end, which job tells it, and what it is signed with.

alter table demora.jobs add column webhook_on_cancel boolean not null default false;
alter table demora.jobs add column cause uuid;           -- of a delivery: the job whose end it tells of
alter table demora.queues add column webhook_url text;   -- of jobs that name none

create index jobs_caused on demora.jobs (cause) where cause is not null;

-- Readable, since whoever signs needs them: who can read this table can sign. ends_at is null until another takes its place.
create table demora.webhook_secrets (
    id text collate "C" primary key,
    secret bytea not null,
    created_at bigint not null,
    ends_at bigint
);

-- URLs whose server said that nobody there wants to hear of us again.
create table demora.disabled_webhooks (
    url text collate "C" primary key,
    reason text not null,
    disabled_at bigint not null
);
