-- Keys under which producers enqueue, so that what they repeat is stored once. The jobs of a
-- key follow each other: first to last.
create table idempotency (
    key blob primary key,
    request blob not null,
    expires integer not null,
    first integer not null,
    last integer not null
) without rowid;

create index idempotency_expires on idempotency (expires);
create index idempotency_jobs on idempotency (first, last);
