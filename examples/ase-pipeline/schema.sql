-- The tables of the pipeline: psql -f schema.sql
-- There is no column that says who works on what: a lock that outlives its holder cannot exist.
begin;
create schema ase;
create table ase.file (
    name text primary key,
    digest text not null,
    loaded_at timestamptz not null default clock_timestamp(),
    elaborated_at timestamptz,
    sent_at timestamptz
);
create table ase.reading (
    file text not null references ase.file,
    line bigint not null,
    unit text not null,
    at timestamptz not null,
    micrometres bigint not null,
    primary key (file, line)
);
create table ase.displacement (
    file text not null,
    line bigint not null,
    micrometres bigint not null,
    primary key (file, line),
    foreign key (file, line) references ase.reading
);
commit;
