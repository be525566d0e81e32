-- How far an import of another store came. While one is not done, no server may use the store.
create table transfer (
    export uuid primary key,
    section text not null,
    stored bigint not null,
    done boolean not null
);
