-- A change of a pace by which the queue follows that of `*` again.

alter table demora.pace_changes add column follows boolean not null default false;
