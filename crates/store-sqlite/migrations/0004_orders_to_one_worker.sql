-- The latest order to a worker, or to the one that it follows in the same process: quiet, resume or
-- drain; null if none was given. See docs/adr/031-orders-outlive-an-engine.md.
alter table worker add column ordered text;
alter table worker add column ordered_ms integer;
-- The identity that the same process had before.
alter table worker add column previous text;
-- The word for why the worker stands as it does, such as engine_killed.
alter table worker add column evidence_code text;

-- Who gave earlier orders is not known. A worker that takes no work goes on so if its engine dies.
update worker set ordered = case phase when 1 then 'quiet' else 'drain' end, ordered_ms = updated_ms
    where liveness < 2 and phase > 0 and unhealthy is null;
