-- How far an import of another store came. While one is not done, no server may use the store.
create table transfer (
    export text primary key,
    section text not null,
    stored integer not null,
    done integer not null
) without rowid;
