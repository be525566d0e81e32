-- The job that took each unique key last. Keys change when jobs are stored, and go with their jobs.
-- See docs/adr/018-unique-jobs.md.
create table unique_key (
    fp blob primary key,
    seq integer not null
) without rowid;
create index unique_key_seq on unique_key (seq);
