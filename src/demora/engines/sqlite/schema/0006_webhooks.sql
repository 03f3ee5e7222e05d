-- Webhooks: whom to tell of a job's end, which job tells it, and what it is signed with.

alter table jobs add column webhook_on_cancel int not null default 0;
alter table jobs add column cause blob;         -- of a delivery: the job whose end it tells of
alter table queues add column webhook_url text; -- of jobs that name none

create index jobs_caused on jobs (cause) where cause is not null;

-- Readable, since whoever signs needs them: who can read this file can sign. ends_at is null until another takes its place.
create table webhook_secrets (
    id text primary key,
    secret blob not null,
    created_at int not null,
    ends_at int
) without rowid;

-- URLs whose server said that nobody there wants to hear of us again.
create table disabled_webhooks (
    url text primary key,
    reason text not null,
    disabled_at int not null
) without rowid;
