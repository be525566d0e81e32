-- How much of an attempt's output is kept: summing it for every chunk would cost a job that
-- prints line by line the square of its lines.
create table log_size (
    seq integer not null,
    epoch integer not null,
    bytes integer not null,
    primary key (seq, epoch)
) without rowid;

insert into log_size (seq, epoch, bytes)
    select seq, epoch, sum(length(bytes)) from log group by seq, epoch;
