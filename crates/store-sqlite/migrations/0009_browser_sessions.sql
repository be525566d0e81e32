-- Sessions of browsers. A server of the build before knows none and deletes none: those that expire meanwhile
-- are deleted by the next server of this build. See docs/adr/040-dashboard-sessions.md.
create table browser_session (
    id blob not null primary key,
    -- The hash of what the browser shows.
    secret blob not null unique,
    -- What the token is known by that it is of.
    token blob not null,
    name text not null,
    address text not null,
    agent text not null,
    created integer not null,
    used integer not null,
    expires integer not null
) without rowid;
create index browser_session_token on browser_session (token, used);
create index browser_session_expires on browser_session (expires);
