-- What belongs to an API key: a namespace for unique keys and idempotency keys, limits, and a second secret while one is replaced.
-- Older rows and keys are in the empty namespace, which Python code and the command line share.

alter table api_keys add column namespace text not null default '';
alter table api_keys add column limits text;         -- core.keylimits.KeyLimits as JSON; null: those of the settings
alter table api_keys add column former_digest blob;  -- of the secret before, accepted until former_until
alter table api_keys add column former_until int;

-- The names that a key has used; they count against its limits.
create table key_names (
    key_id text not null,
    kind text not null,             -- core.keylimits.NameKind
    name text not null,
    primary key (key_id, kind, name)
) without rowid;

alter table jobs add column namespace text not null default '';
alter table jobs add column submitter text;          -- the API key that counts its waiting jobs; null: none does

drop index jobs_unique;
create unique index jobs_unique on jobs (unique_key, type, namespace)
where unique_key is not null and status < 3 and token = 0 and generation = 1;

create index jobs_submitted on jobs (submitter) where status < 3 and submitter is not null;
