-- What became of runs, in windows of time.

-- The windows of 10 s that stores write, each its own rows.
create table tallies (
    process text not null,          -- the store that wrote it, or `pace` for releases
    queue text not null,
    type text not null,
    at int not null,                -- the beginning of the window
    tally text not null,            -- core.statistics.Tally as JSON
    version int not null,           -- grows with each write
    primary key (at, queue, type, process)
) without rowid;

-- The windows of all processes together, wider with age.
create table statistics (
    width int not null,
    at int not null,
    queue text not null,
    type text not null,             -- empty: how many jobs of the queue waited
    tally text not null,
    primary key (width, at, queue, type)
) without rowid;
