-- Processes without a worker that fire schedules: `demora scheduler`, and a service that only serves HTTP.

create table schedulers (
    id text primary key,
    heartbeat_at int not null,          -- by the clock of leases, as in workers
    paces text not null                 -- what the settings of the process ask for, as in workers
) without rowid;
