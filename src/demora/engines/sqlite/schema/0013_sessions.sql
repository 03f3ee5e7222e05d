-- Browsers that signed in to the dashboard with an API key: a digest of the token in their cookie, and the key.

create table sessions (
    digest blob primary key,
    key_id text not null,
    expires_at int not null
) without rowid;

create index sessions_expiry on sessions (expires_at);
