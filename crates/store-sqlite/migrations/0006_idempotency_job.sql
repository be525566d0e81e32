-- The jobs of a key follow each other here, but not where several servers number them: a
-- store that is moved must say of each job which key it belongs to.
create table idempotency_job (
    seq integer primary key,
    key blob not null
);
create index idempotency_job_key on idempotency_job (key, seq);

-- A number may have been used again; then the later key is the one it belongs to.
insert or ignore into idempotency_job (seq, key)
    select j.seq, i.key from idempotency i join job_row j on j.seq between i.first and i.last
    order by i.expires desc;

drop index idempotency_jobs;
alter table idempotency drop column first;
alter table idempotency drop column last;
