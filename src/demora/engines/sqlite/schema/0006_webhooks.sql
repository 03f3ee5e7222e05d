-- Webhooks: the URL that receives the end of a job, the job that delivers it (`cause`), and the secrets that sign it.

alter table jobs add column webhook_on_cancel int not null default 0;
alter table jobs add column cause blob;         -- of a delivery: the job whose end it tells of
alter table queues add column webhook_url text; -- of jobs that name none

create index jobs_caused on jobs (cause) where cause is not null;

-- Readable, because signing needs them: anyone who can read this file can sign. ends_at is null until a rotation.
create table webhook_secrets (
    id text primary key,
    secret blob not null,
    created_at int not null,
    ends_at int
) without rowid;

-- URLs whose server answered 410: demora sends nothing there.
create table disabled_webhooks (
    url text primary key,
    reason text not null,
    disabled_at int not null
) without rowid;
