-- In which blocks of 1,024 jobs a class has some: a list of a queue or a type reads no others.
-- Written once for each block, class and connection that stores jobs, so that none waits for
-- another's row.
create table class_block (
    class bigint not null,
    block bigint not null,
    writer integer not null,
    primary key (class, block, writer)
);
lock table job_row in share mode;
insert into class_block select distinct class, seq >> 10, 0 from job_row;
create index class_block_block on class_block (block);

-- What did not complete, which is little of what has ended.
create index finished_failed on finished (seq) where state <> 'completed';
