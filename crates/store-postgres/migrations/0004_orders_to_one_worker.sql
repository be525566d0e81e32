-- The latest order to a worker, or to the one that it follows in the same process: quiet, resume or
-- drain; null if none was given. See docs/adr/031-orders-outlive-an-engine.md.
alter table public.worker add column ordered text;
alter table public.worker add column ordered_ms bigint;
-- The identities that the same process had before and next.
alter table public.worker add column previous uuid;
alter table public.worker add column followed_by uuid;
-- The word for why the worker stands as it does, such as engine_killed.
alter table public.worker add column evidence_code text;

-- A worker may also be quiet by itself: that is no order.
update public.worker set ordered = case phase when 1 then 'quiet' else 'drain' end, ordered_ms = updated_ms
    where liveness < 3 and (phase = 2 or phase = 1 and evidence like 'ordered by %');
