-- Parked jobs: waiting jobs of types that some workers do not know, out of the way of the claims of those workers. They are in
-- the lanes from 4 on (core.job.PARKED).

create index jobs_parked on jobs (type, queue, lane, rank, due_at) where status < 3 and lane >= 4;

-- The types that claims have parked jobs of, by queue, and since when no live worker there has known them.
create table parked_types (
    type text not null,
    queue text not null,
    unknown_since int,
    primary key (type, queue)
) without rowid;
