-- What one server does for all of them, and until when it alone does it.
create table duty (
    name text primary key,
    holder uuid not null,
    epoch bigint not null,
    until bigint not null
) with (fillfactor = 50);
