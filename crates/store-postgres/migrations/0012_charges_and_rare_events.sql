-- What an attempt was charged: 1 is a failure, 2 a loss, 4 an interruption, and their sum. Null of those that
-- ended before, or that a server of the build before ends.
alter table attempt_row add column charge smallint;

-- Which rare events a batch of the log holds, as bits (`store-rules/src/cursor/rare.rs`): those that people look
-- for among very many others. Null of batches that were logged before, or that a server of the build before
-- logs: they may hold any. Batches without one, which are most, are in no index. It is made while others wait, and
-- reads the short part of each row of the log.
alter table event_batch add column rare bigint;
create index event_batch_rare on event_batch (at, lane, n) where rare is distinct from 0;
