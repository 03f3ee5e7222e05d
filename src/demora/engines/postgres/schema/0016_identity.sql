-- A name for this database that no other has, by which a process notices that it was dropped and created anew.

insert into demora.meta (name, value) values ('identity', gen_random_uuid()::text);
