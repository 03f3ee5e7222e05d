-- Browsers that signed in to the dashboard with an API key: a digest of the token in their cookie, and the key.

create table demora.sessions (
    digest bytea primary key,
    key_id text collate "C" not null,
    expires_at bigint not null
);

create index sessions_expiry on demora.sessions (expires_at);
