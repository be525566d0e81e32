-- The receiver has the whole file.
update ase.file set sent_at = clock_timestamp() where name = :'file' and sent_at is null;
