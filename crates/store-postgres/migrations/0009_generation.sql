-- How often the store was restored, from 1: one row. What a worker was given by a store of a
-- lower generation is void.

create table outlast.generation (
    number bigint not null
);
insert into outlast.generation (number) values (1);
