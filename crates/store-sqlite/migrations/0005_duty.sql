-- What one server does for all of them, and until when it alone does it.
create table duty (
    name text primary key,
    holder blob not null,
    epoch integer not null,
    until integer not null
) without rowid;
