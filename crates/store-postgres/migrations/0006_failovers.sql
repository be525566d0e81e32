-- Which servers have found out, after a standby took the place of the primary, whether the new one
-- lacks what they acknowledged. A server of the build before does not ask. See
-- docs/adr/033-failover.md.
create table failover (
    -- PostgreSQL's timeline: it rises with every promotion.
    timeline bigint not null,
    -- The server, by each number that it gives its batches.
    server uuid not null,
    at bigint not null,
    -- Whether it lost something, and has yet to deal with that.
    lost boolean not null,
    -- Whether it has nothing more to do.
    settled boolean not null,
    primary key (timeline, server)
);
insert into failover (timeline, server, at, lost, settled)
select ('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint,
    '00000000-0000-0000-0000-000000000000', 0, false, true;

-- The generation of the latest restore. It rises beyond that when the store loses what it has
-- acknowledged: what workers hold of this generation or later stays valid.
alter table generation add column restored bigint;
update generation set restored = number;
alter table generation alter column restored set not null;
