-- Settings of queues: JSON, null where nothing was ever set. A name that is missing in it has no
-- effect.

alter table queue add column settings text;
alter table queue add column set_by text;
alter table queue add column set_at integer;
