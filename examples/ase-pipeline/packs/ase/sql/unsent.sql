-- The files that are loaded and not sent, oldest first.
select coalesce(json_agg(name order by loaded_at, name), '[]') from ase.file where sent_at is null;
