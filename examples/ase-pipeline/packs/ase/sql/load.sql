-- One file, one transaction: its rows, and the record that they are there. A second load of the
-- same file waits here for the first, then adds nothing.
begin;
with added as (
    insert into ase.file (name, digest) values (:'name', :'digest')
    on conflict (name) do nothing
    returning name
)
select exists (select from added) as is_new \gset
\if :is_new
    create temporary table line (
        number bigint generated always as identity,
        unit text,
        at timestamptz,
        micrometres bigint
    ) on commit drop;
    \copy line (unit, at, micrometres) from pstdin with (format csv, header match)
    insert into ase.reading (file, line, unit, at, micrometres)
    select :'name', number, unit, at, micrometres from line;
\endif
commit;
