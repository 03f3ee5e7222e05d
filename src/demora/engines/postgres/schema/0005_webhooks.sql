-- Webhooks: the URL that receives the end of a job, the job that delivers it (`cause`), and the secrets that sign it.

alter table demora.jobs add column webhook_on_cancel boolean not null default false;
alter table demora.jobs add column cause uuid;           -- of a delivery: the job whose end it tells of
alter table demora.queues add column webhook_url text;   -- of jobs that name none

create index jobs_caused on demora.jobs (cause) where cause is not null;

-- Readable, because signing needs them: anyone who can read this table can sign. ends_at is null until a rotation.
create table demora.webhook_secrets (
    id text collate "C" primary key,
    secret bytea not null,
    created_at bigint not null,
    ends_at bigint
);

-- URLs whose server answered 410: demora sends nothing there.
create table demora.disabled_webhooks (
    url text collate "C" primary key,
    reason text not null,
    disabled_at bigint not null
);
