-- A change of a pace by which the queue follows that of `*` again.

alter table pace_changes add column follows int not null default 0;
