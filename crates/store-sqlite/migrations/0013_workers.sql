-- A page of the workers, latest registered first, and one by its name: neither reads them all.
create index worker_created on worker (created_ms, id);
create index worker_name on worker (name);
