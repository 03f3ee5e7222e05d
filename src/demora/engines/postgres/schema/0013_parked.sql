-- Parked jobs: waiting jobs of types that some workers do not know, out of the way of the claims of those workers. They are in
-- the lanes from 4 on (core.job.PARKED), which have the offsets of the lanes that they stand for.
-- Step 18 builds their index.

-- The types that claims have parked jobs of, by queue, and since when no live worker there has known them.
create table demora.parked_types (
    type text collate "C" not null,
    queue text collate "C" not null,
    unknown_since bigint,
    primary key (type, queue)
);

update demora.queues set offsets = offsets || offsets where offsets is not null;
update demora.paces set lanes = lanes || array(select (lane + 4)::smallint from unnest(lanes) as lane) where lanes is not null;
