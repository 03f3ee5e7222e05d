-- What belongs to an API key: a namespace for unique keys and idempotency keys, limits, and a second secret while one is replaced.
-- Older rows and keys are in the empty namespace, which Python code and the command line share.

alter table demora.api_keys add column namespace text collate "C" not null default '';
alter table demora.api_keys add column limits text;          -- core.keylimits.KeyLimits as JSON; null: those of the settings
alter table demora.api_keys add column former_digest bytea;  -- of the secret before, accepted until former_until
alter table demora.api_keys add column former_until bigint;

-- The names that a key has used; they count against its limits.
create table demora.key_names (
    key_id text collate "C" not null,
    kind text collate "C" not null,   -- core.keylimits.NameKind
    name text collate "C" not null,
    primary key (key_id, kind, name)
);

alter table demora.jobs add column namespace text collate "C" not null default '';
alter table demora.jobs add column submitter text collate "C"; -- the API key that counts its waiting jobs; null: none does

drop index demora.jobs_unique;
create unique index jobs_unique on demora.jobs (unique_key, type, namespace)
where unique_key is not null and status < 3 and token = 0 and generation = 1;

create index jobs_submitted on demora.jobs (submitter) where status < 3 and submitter is not null;
