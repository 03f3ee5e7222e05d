-- API keys. The digest is the SHA-256 of the whole text of a key, which is not stored. Revoked keys stay until they are
-- forgotten by hand.

create table demora.api_keys (
    id text collate "C" primary key,
    digest bytea not null,
    name text not null,
    scopes text[] not null,           -- core.access.Scope
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint,
    last_used_at bigint
) with (fillfactor = 50);
