-- The results of a file as CSV, always the same bytes; nothing if it has not been elaborated.
select elaborated_at is not null as is_elaborated from ase.file where name = :'file' \gset
\if :is_elaborated
    \pset format csv
    \pset tuples_only off
    select r.unit,
           to_char(r.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as at,
           d.micrometres
    from ase.reading r join ase.displacement d using (file, line)
    where file = :'file'
    order by line;
\endif
