-- When a job expires and what it is unique by are part of how it stands.

alter table demora.events add column expires_at bigint;
alter table demora.events add column unique_key text; -- with the type before it
