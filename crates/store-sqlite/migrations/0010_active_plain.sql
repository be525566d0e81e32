-- A client that does not say which jobs it holds has those of its own prolonged: they are found
-- by its name, and not among those of all clients.
create index active_plain on active (plain, seq) where plain is not null;
