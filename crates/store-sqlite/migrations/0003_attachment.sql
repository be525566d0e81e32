-- Which of its attachments a worker was last seen with, by its own count.
alter table worker add column attachment integer not null default 0;
