-- Dead letters that no server has handled yet, as the configuration says. Those of before are not
-- handled any more; those that a server of the build before writes are. See
-- docs/adr/032-handlers-are-jobs.md.
alter table dead_letter_row add column unhandled boolean not null default false;
alter table dead_letter_row alter column unhandled set default true;
create index dead_letter_unhandled on dead_letter_row (seq) where unhandled;
