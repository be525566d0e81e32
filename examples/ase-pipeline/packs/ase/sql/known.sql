-- The files that are loaded, with their digests.
select coalesce(json_object_agg(name, digest), '{}') from ase.file;
