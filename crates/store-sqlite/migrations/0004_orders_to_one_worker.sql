-- The latest order to a worker, or to the one that it follows in the same process: quiet, resume or
-- drain; null if none was given. See docs/adr/031-orders-outlive-an-engine.md.
alter table worker add column ordered text;
alter table worker add column ordered_ms integer;
-- The identities that the same process had before and next.
alter table worker add column previous text;
alter table worker add column followed_by text;
-- The word for why the worker stands as it does, such as engine_killed.
alter table worker add column evidence_code text;

-- A worker may also be quiet by itself: that is no order.
update worker set ordered = case phase when 1 then 'quiet' else 'drain' end, ordered_ms = updated_ms
    where liveness < 3 and (phase = 2 or phase = 1 and evidence like 'ordered by %');
