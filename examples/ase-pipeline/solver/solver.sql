-- The row is locked as long as the transaction lasts, and a transaction does not outlive its
-- connection. A second solver for the same file waits here for the first, then finds it done.
begin;
select elaborated_at is null as is_new from ase.file where name = :'file' for update \gset
\if :is_new
    create temporary table output (line bigint, micrometres bigint) on commit drop;
    select line, unit, micrometres from ase.reading where file = :'file' order by line
    \g (format=csv tuples_only=on) :input
    \copy output from program '"$SOLVER_COMPUTE" <"$SOLVER_INPUT"' with (format csv)
    insert into ase.displacement (file, line, micrometres)
    select :'file', line, micrometres from output;
    update ase.file set elaborated_at = clock_timestamp() where name = :'file';
\endif
commit;
select json_build_object('file', :'file', 'rows', count(*)) from ase.displacement where file = :'file';
