-- Processes without a worker that fire schedules: `demora scheduler`, and a service that only serves HTTP.

create table demora.schedulers (
    id text collate "C" primary key,
    heartbeat_at bigint not null,
    paces text not null                 -- what the settings of the process ask for, as in workers
);
