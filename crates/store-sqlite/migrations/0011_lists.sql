-- In which blocks of 1,024 jobs a class has some: a list of a queue or a type reads no others.
-- Written once for each block and class, by the first job of it.
create table class_block (
    class integer not null,
    block integer not null,
    primary key (class, block)
) without rowid;
insert into class_block select distinct class, seq >> 10 from job_row;
create index class_block_block on class_block (block);

-- What did not complete, which is little of what has ended.
create index finished_failed on finished (seq) where state <> 'completed';
