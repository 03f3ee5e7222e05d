-- What became of runs, in windows of time.

-- The windows of 10 s that stores write, each its own rows. A histogram is an array of counts, from the first bin to the last
-- one with a count; null if it counts nothing.
create table demora.tallies (
    process text collate "C" not null,  -- the store that wrote it, or `pace` for releases
    queue text collate "C" not null,
    type text collate "C" not null,
    at bigint not null,                 -- the beginning of the window
    completed int not null default 0,
    failed int not null default 0,
    retried int not null default 0,
    cancelled int not null default 0,
    returned int not null default 0,
    released int not null default 0,
    realtime int[],
    delayed int[],
    run int[],
    held int[],
    latest_realtime bigint not null default 0,
    latest_delayed bigint not null default 0,
    longest bigint not null default 0,
    longest_held bigint not null default 0,
    primary key (at, queue, type, process)
) with (fillfactor = 50);

-- The windows of all processes together, wider with age.
create table demora.statistics (
    width bigint not null,
    at bigint not null,
    queue text collate "C" not null,
    type text collate "C" not null,     -- empty: how many jobs of the queue waited
    tally text not null,                -- core.statistics.Tally as JSON
    primary key (width, at, queue, type)
);

-- How many of these bins there are of each number.
create function demora.count_bins(bins int[]) returns int[] language plpgsql immutable parallel safe as $$
declare
    counts int[];
    bin int;
begin
    if bins is null then return null; end if;
    counts := array_fill(0, array[(select max(one) from unnest(bins) as one) + 1]);
    foreach bin in array bins loop
        counts[bin + 1] := counts[bin + 1] + 1;
    end loop;
    return counts;
end
$$;

-- The sum of two arrays of counts.
create function demora.add_counts(counts int[], more int[]) returns int[] language plpgsql immutable parallel safe as $$
begin
    if counts is null or more is null then return coalesce(counts, more); end if;
    if cardinality(more) > cardinality(counts) then
        counts := counts || array_fill(0, array[cardinality(more) - cardinality(counts)]);
    end if;
    for n in 1 .. cardinality(more) loop
        if more[n] <> 0 then counts[n] := counts[n] + more[n]; end if;
    end loop;
    return counts;
end
$$;
