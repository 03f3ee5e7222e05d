-- API keys. The digest is the SHA-256 of the whole text of a key, which is not stored. Revoked keys stay until they are
-- forgotten by hand.

create table api_keys (
    id text primary key,
    digest blob not null,
    name text not null,
    scopes text not null,           -- core.access.Scope, as a JSON array
    created_at int not null,
    expires_at int,
    revoked_at int,
    last_used_at int
) without rowid;
