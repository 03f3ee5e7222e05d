-- The statements of the PostgreSQL engine, in port order: those of the verbs of `Store`, then those of each part under its name.
--
-- `demora.` stands for the schema in the settings, {name} for the block of that name.
-- The loader replaces a status by its number, as in core/states.py:
--   waiting  {PENDING} 0, {QUEUED} 1, {RETRYING} 2       status < {PROCESSING}
--   running  {PROCESSING} 3                              status = {PROCESSING}
--   ended    {COMPLETED} 4, {FAILED} 5, {CANCELLED} 6    status > {PROCESSING}
-- The lanes from {PARKED} on are those of parked jobs; lane % {PARKED} is the lane of any job.
--
-- Locks: a statement that writes to several jobs first locks them in the order of `seq`, so that writers cannot deadlock. It
-- decides by the rows as they are once they are locked.
--
-- Plans: the server keeps a plan that it may have made for an empty table. `status + 0` and `seq + 0` keep such a plan from
-- walking the index of all waiting jobs to find a row by its id. `= any(array(…))` and `(select wall from clock)` keep it from
-- reading a whole table for a few rows.

-- ==== store ====

-- name: clock
-- The time of this statement, read once; the triggers of an audit read it from the setting. Only tests set :clock.
clock as materialized (
    select us, set_config('demora_clock.wall', (us / 1000)::text, true)::bigint as wall
    from ({now}) as read
)

-- name: reading_clock
-- As `clock`, for statements that write nothing: PostgreSQL runs a statement that changes a setting on one core.
clock as materialized (
    select us, us / 1000 as wall
    from ({now}) as read
)

-- name: move
-- The transaction in which a row moves into waiting; null while there is no line.
case when :lined::boolean then pg_current_xact_id() end

-- name: parked_offset
-- {PARKED} for a new job of a type that claims have parked in its queue, so that it is parked at once; 0 for all others, and with
-- a line, which does not know parked jobs.
(case when not :lined::boolean and exists (
    select from demora.parked_types where parked_types.type = request.type and parked_types.queue = request.queue
) then {PARKED} else 0 end)::smallint

-- name: settling
-- The transaction in which a row is settled; null before the first listener to events.
case when exists (select from demora.meta where name = 'settled') then pg_current_xact_id() end

-- name: now
select coalesce(:clock::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as us

-- name: database_numbers
-- The unique numbers of this server and of this database on it.
select system_identifier as server, oid::bigint as database, datname as name
from pg_control_system(), pg_database where datname = current_database()

-- name: identity
select value as name from demora.meta where name = 'identity'

-- name: transaction
-- The number of this transaction, null if it has written nothing.
select pg_current_xact_id_if_assigned()::text as number

-- name: transaction_status
-- What became of a transaction of this server; null if the number is ahead of the server, which then is another one.
select case when :number::text::xid8 < pg_snapshot_xmax(pg_current_snapshot())
    then pg_xact_status(:number::text::xid8) end as status

-- name: savepoint
savepoint demora_add

-- name: release_savepoint
release savepoint demora_add

-- name: unwind
rollback to savepoint demora_add

-- name: fence
-- End the session of a lost connection, and wait until it has ended: from then on it commits nothing.
select pg_terminate_backend(pid, :limit::bigint) from pg_stat_activity
where pid = :pid and backend_start = :started and pid <> pg_backend_pid()

-- name: only_one
select pg_advisory_xact_lock(hashtext(:what::text))

-- name: due_time
-- `due_ms` in core/job.py: the time that was asked for, or now if that has passed.
greatest(coalesce(at, wall + delay, wall), wall)

-- name: take_keys
-- Take keys that are new or have expired; the others stay locked until the end of the transaction. The column `scope` has the
-- namespace of a key.
with {clock}
insert into demora.idempotency_keys (scope, key, request_hash, job_id, created_at, scheduled_at, expires_at)
select scope, key, request_hash, id, wall, {due_time}, wall + kept
from clock, unnest(:scopes::text[], :keys::text[], :hashes::bytea[], :ids::uuid[], :ats::bigint[], :delays::bigint[],
                   :kepts::bigint[]) as new (scope, key, request_hash, id, at, delay, kept)
order by scope, key
on conflict (scope, key) do update set
    request_hash = excluded.request_hash, job_id = excluded.job_id, created_at = excluded.created_at,
    scheduled_at = excluded.scheduled_at, expires_at = excluded.expires_at
    where idempotency_keys.expires_at <= excluded.created_at
returning scope, key

-- name: keys_taken
select taken.* from unnest(:scopes::text[], :keys::text[]) as asked (scope, key), lateral (
    select scope, key, request_hash, job_id, created_at, scheduled_at from demora.idempotency_keys
    where scope = asked.scope and key = asked.key limit 1
) as taken

-- name: rekey
update demora.idempotency_keys set job_id = :id where scope = :scope and key = :key

-- name: ids_taken
select id, created_at, coalesce(scheduled_at, created_at) as scheduled_at from demora.jobs where id = any(:ids::uuid[])

-- name: kinds
-- What the jobs of a call have in common, and whether jobs of this type are parked in this queue: both are read once.
kind as materialized (
    select request.*, {parked_offset} as parked from (
        select number, new->>0 as type, new->>1 as name, new->>2 as queue, (new->>3)::smallint as rank, wall,
            (new->>4)::int as max_retries, (new->>5)::bigint as retry_delay, (new->>6)::bigint as timeout, new->>7 as tags,
            new->>8 as webhook_url, coalesce((new->>9)::bigint, wall + (new->>10)::bigint) as expires_at,
            new->>11 as unique_key, (new->>12)::boolean as webhook_on_cancel, (new->>13)::uuid as cause,
            new->>14 as namespace, new->>15 as submitter, new->>16 as traceparent
        from clock, jsonb_array_elements(:kinds::jsonb) with ordinality as given (new, number)
    ) as request
)

-- name: add
-- Returns when the jobs were added; the ids of the new ones if some existed already; and whether to wake waiters: because a
-- job is ready or the first of its queue, lane and rank, and because a job expires first. Lanes are those of `lane_for` in
-- core/job.py.
with {clock},
{kinds},
request as materialized (
    select given.*, kind.*, {due_time} as due_at
    from unnest(:ids::uuid[], :payloads::text[], :kinds_of::int[], :ats::bigint[], :delays::bigint[]) with ordinality
        as given (id, payload, kind, at, delay, place) join kind on kind.number = coalesce(given.kind, 1)
),
added as (
    insert into demora.jobs (id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, expires_at,
                             max_retries, retry_delay, timeout, payload, tags, webhook_url, unique_key, webhook_on_cancel,
                             cause, namespace, submitter, traceparent, moved)
    select id, type, name, queue, :queued::smallint,
        (case when due_at > wall then :scheduled::smallint else :realtime::smallint end) + parked, rank, due_at,
        wall, case when due_at > wall then due_at end, expires_at, max_retries, retry_delay, timeout, payload, tags, webhook_url,
        unique_key, webhook_on_cancel, cause, namespace, submitter, traceparent, {move}
    from request order by place
    on conflict do nothing
    returning id, queue, lane, rank, due_at, expires_at
),
named as (
    insert into demora.queues (name) select name from unnest(:unnamed::text[]) as name order by name on conflict do nothing
),
head as (select queue, lane, rank, min(due_at) as due_at from added group by queue, lane, rank),
woken as (
    select
        exists (
            select from head where lane = :realtime::smallint or lane >= {PARKED} or not exists (
                select from demora.jobs
                where status < {PROCESSING} and queue = head.queue and lane = head.lane and rank = head.rank
                    and due_at <= head.due_at
            )
        ) as ready,
        exists (
            select from (select min(expires_at) as first from added) as soonest where first is not null
                and coalesce(first < (
                select min(expires_at) from demora.jobs where status < {PROCESSING} and expires_at is not null
                    and token = credits
            ), true)
        ) as expiry
)
select ready, expiry, wall,
    (select case when count(*) < cardinality(:payloads::text[]) then coalesce(array_agg(id), '{}') end from added) as added
from clock, woken

-- name: add_due
-- `add` for jobs that are due at once and never expire, whose ids are new. The caller then knows all that `add` returns, except
-- the time.
with {clock},
{kinds},
request as (
    select given.*, kind.* from unnest(:ids::uuid[], :payloads::text[], :kinds_of::int[]) with ordinality
        as given (id, payload, kind, place) join kind on kind.number = coalesce(given.kind, 1)
),
added as (
    insert into demora.jobs (id, type, name, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, timeout,
                             payload, tags, webhook_url, webhook_on_cancel, cause, namespace, submitter, traceparent, moved)
    select id, type, name, queue, :queued::smallint, :realtime::smallint + parked, rank, wall, wall, max_retries, retry_delay,
        timeout, payload, tags, webhook_url, webhook_on_cancel, cause, namespace, submitter, traceparent, {move}
    from request order by place
),
named as (
    insert into demora.queues (name) select name from unnest(:unnamed::text[]) as name order by name on conflict do nothing
)
select wall from clock

-- name: add_one
-- A job that is due at once and never expires, in a queue that is on record. No row if its id exists already.
with {clock}
insert into demora.jobs (id, type, name, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, timeout,
                         payload, tags, webhook_url, webhook_on_cancel, cause, namespace, submitter, traceparent, moved)
select :id::uuid, request.type, :name::text, request.queue, :queued::smallint, :realtime::smallint + {parked_offset}, :rank::smallint,
    wall, wall,
    :max_retries::int, :retry_delay::bigint, :timeout::bigint, :payload::text, :tags::text,
    :webhook_url::text, :webhook_on_cancel::boolean,
    :cause::uuid, :namespace::text, :submitter::text, :traceparent::text, {move}
from clock, (select :type::text as type, :queue::text as queue) as request
on conflict do nothing
returning created_at

-- name: unique_waiting
select id, created_at, coalesce(scheduled_at, created_at) as scheduled_at, queue from demora.jobs
where unique_key = :key and type = :type and namespace = :namespace and status < {PROCESSING} and token = 0
    and generation = 1
for update

-- name: replace_waiting
-- The lane is that of `lane_for` in core/job.py.
with {clock},
request as (select wall, {due_time} as due_at from clock, (select :at::bigint as at, :delay::bigint as delay) as new)
update demora.jobs set name = :name, queue = :queue, rank = :rank,
    lane = case when due > wall then :scheduled::smallint else :realtime::smallint end,
    due_at = due, scheduled_at = due, expires_at = coalesce(:expiry::bigint, wall + :expires_in::bigint),
    max_retries = :max_retries, retry_delay = :retry_delay, timeout = :timeout, payload = :payload, tags = :tags,
    webhook_url = :webhook_url,
    webhook_on_cancel = :webhook_on_cancel, cause = :cause, submitter = :submitter,
    traceparent = :traceparent, moved = {move}
from (select wall, due_at as due from request) as request
where id = :id
returning due_at

-- name: claim
-- Lease the first ready jobs: merges a short scan for each queue, lane and rank with waiting jobs. It reads more rows than are
-- wanted, since other workers may be claiming the first ones, and skips locked rows. Parked rows are read by their type; with
-- :types null they are like all others. It leases nothing if there are `too_many` heads.
--
-- `head` is where each scan begins, `served` the heads of queues that are not paused, with the order of their queue and whether its
-- pace holds them. `found` are the first ready rows of all scans in the order of the claim, `chosen` those of them that it locked,
-- `taken` those that it leased. `summary` is one row about the whole claim: `found` is the number of rows that it read,
-- `other_types` the number of those of other types if it leased fewer than it could, `any_parked` whether a head is that of
-- parked jobs, `next_due` when the next job is due, and `held` the first job that each pace holds.
with recursive {clock},
{heads},
{claiming}

-- name: claim_of_queues
with recursive {clock},
{heads_of_queues},
{claiming}

-- name: claim_of_types
with recursive {clock},
{heads_of_types},
{claiming}

-- name: heads
-- Each queue, lane and rank with waiting jobs, at most :most: a skip scan of the index, so that rows behind the first cost nothing.
-- A head has the place of its first row. Later scans begin there, since the index still has many entries before it for a while:
-- those of jobs that were claimed or parked.
head as (
    (
        select queue, lane, rank, due_at, seq, 1 as number from demora.jobs where status < {PROCESSING}
        order by queue, lane, rank, due_at, seq limit 1
    )
    union all
    select next.*, number + 1
    from head, lateral (
        select queue, lane, rank, due_at, seq from demora.jobs
        where status < {PROCESSING} and (queue, lane, rank) > (head.queue, head.lane, head.rank)
        order by queue, lane, rank, due_at, seq limit 1
    ) as next
    where number < :most::int
),
heads as (select count(*) >= :most::int as too_many, null::bigint as next_due from head)

-- name: heads_of_queues
head as (
    select first.* from unnest(:queues::text[]) as named (queue), lateral (
        select queue, lane, rank, due_at, seq from demora.jobs where status < {PROCESSING} and queue = named.queue
        order by lane, rank, due_at, seq limit 1
    ) as first
    union all
    select next.* from head, lateral (
        select queue, lane, rank, due_at, seq from demora.jobs
        where status < {PROCESSING} and queue = head.queue and (lane, rank) > (head.lane, head.rank)
        order by lane, rank, due_at, seq limit 1
    ) as next
),
heads as (select false as too_many, null::bigint as next_due)

-- name: heads_of_types
-- The heads of all due jobs of these types, unless :most or more are due. `next_due` is when the next of them is due. A head has
-- the place of the first job of these types, so that no scan passes jobs of other types before it, nor what the index keeps of
-- those that were parked.
kind as (select type, status from unnest(:types::text[]) as known (type), unnest(:waiting::smallint[]) as waiting (status)),
due as materialized (
    select kind.type, kind.status, job.* from clock, kind, lateral (
        select queue, lane, rank, due_at, seq from demora.jobs
        where jobs.status in ({PENDING}, {QUEUED}, {RETRYING}) and jobs.type = kind.type and jobs.status = kind.status
            and due_at <= wall
        order by due_at, seq limit :most::int
    ) as job
),
head as (
    select distinct on (queue, lane, rank) queue, lane, rank, due_at, seq from due order by queue, lane, rank, due_at, seq
),
heads as (
    select exists (select from due group by type, status having count(*) >= :most::int) as too_many, (
        select min(next.due_at) from clock, kind, lateral (
            select due_at from demora.jobs
            where jobs.status in ({PENDING}, {QUEUED}, {RETRYING}) and jobs.type = kind.type
                and jobs.status = kind.status and due_at > wall
            order by due_at, seq limit 1
        ) as next
    ) as next_due
)

-- name: claiming
{parked_heads},
served as materialized (
    select head.type, head.queue, lane, rank, head.due_at as first_due, head.seq as first_seq,
        (coalesce(offsets, :usual::bigint[]))[lane * :ranks::int + rank + 1] as extra,
        case when :in_turn::boolean then array_position(:queues::text[], head.queue) else 0 end as turn,
        lane = any(coalesce(policy.lanes, '{}')) as held, own.state
    from (select null::text as type, queue, lane, rank, due_at, seq from head union all select * from parked_head) as head
        {rules_of_queue}
    where paused_at is null and (:queues::text[] is null or head.queue = any(:queues::text[]))
        and not (select too_many from heads)
),
found as materialized (
    select turn, scan.due_at + extra as place, scan.seq
    from clock, served, lateral (
        (select due_at, seq from demora.jobs
        where served.type is null and status < {PROCESSING} and queue = served.queue and lane = served.lane
            and rank = served.rank and {from_head} and due_at <= wall
        order by due_at, seq limit :window::int)
        union all
        (select due_at, seq from demora.jobs
        where {parked} and type = served.type and queue = served.queue and lane = served.lane
            and rank = served.rank and {from_head} and due_at <= wall
        order by due_at, seq limit :window::int)
    ) as scan
    where not held and {is_read}
    order by turn, place, seq limit :window::int
),
chosen as materialized (
    -- One by one, by `seq`, in the order of `found`: a plan for any number of rows might read all jobs.
    select turn, place, job.* from clock, found, lateral (
        select {chosen} from demora.jobs
        where jobs.seq = found.seq and status + 0 < {PROCESSING} and due_at <= wall and {of_types}
        for update of jobs skip locked
    ) as job
    limit :limit::int
),
{leasing},
summary as materialized (
    select {summary}, (select count(*) from found) as found,
        case when (select count(*) from chosen) < (select least(count(*), :limit::int) from found) then (
            select count(*) from found, lateral (select type from demora.jobs where jobs.seq = found.seq limit 1) as jobs
            where not {of_types}
        ) else 0 end as other_types,
        (select too_many from heads) as too_many,
        exists (select from head where lane >= {PARKED}) as any_parked,
        least((select next_due from heads), (
            select min(next.due_at) from served, lateral (
                (select due_at from demora.jobs
                where served.type is null and status < {PROCESSING} and queue = served.queue and lane = served.lane
                    and rank = served.rank and due_at > wall
                order by due_at limit 1)
                union all
                (select due_at from demora.jobs
                where {parked} and type = served.type and queue = served.queue and lane = served.lane
                    and rank = served.rank and due_at > wall
                order by due_at limit 1)
            ) as next
            where not held and {is_read}
        )) as next_due,
        (
            select json_agg(json_build_array(served.queue, state, first.due_at)) from served, lateral (
                select due_at from demora.jobs
                where status < {PROCESSING} and queue = served.queue and lane = served.lane and rank = served.rank
                    and {from_head}
                order by due_at limit 1
            ) as first
            where held and served.type is null
        ) as held
    from clock
)
select summary.*, taken.* from summary left join taken on true order by turn, place, seq

-- name: parked
status < {PROCESSING} and lane >= {PARKED}

-- name: parked_heads
-- Each type, queue, lane and rank with parked jobs, for these types; none if no head shows that any job is parked.
parked_head as (
    select known as type, first.*
    from unnest(:types::text[]) as known, lateral (
        select queue, lane, rank, due_at, seq from demora.jobs where {parked} and type = known
        order by queue, lane, rank, due_at, seq limit 1
    ) as first
    where exists (select from head where lane >= {PARKED})
    union all
    {next_parked}
)

-- name: next_parked
select parked_head.type, next.*
from parked_head, lateral (
    select queue, lane, rank, due_at, seq from demora.jobs
    where {parked} and type = parked_head.type
        and (queue, lane, rank) > (parked_head.queue, parked_head.lane, parked_head.rank)
    order by queue, lane, rank, due_at, seq limit 1
) as next

-- name: from_head
-- Begins a scan of the rows of a head of `served` at its first row.
(due_at, seq) >= (served.first_due, served.first_seq)

-- name: is_read
-- Whether a claim reads the rows behind a head of `served`. It reads parked rows by their type.
(served.type is not null or served.lane < {PARKED} or :types::text[] is null)

-- name: of_types
(:types::text[] is null or jobs.type = any(:types::text[]))

-- name: park
-- Park those of the first ready rows of each queue, lane and rank that are not of these types. Locked rows are skipped.
with recursive {clock},
{heads},
{parking_heads}

-- name: park_of_queues
with recursive {clock},
{heads_of_queues},
{parking_heads}

-- name: park_of_types
with recursive {clock},
{heads_of_types},
{parking_heads}

-- name: parking_heads
found as materialized (
    select scan.seq from clock, head, lateral (
        select seq from demora.jobs
        where status < {PROCESSING} and queue = head.queue and lane = head.lane and rank = head.rank
            and (due_at, seq) >= (head.due_at, head.seq) and due_at <= wall
        order by due_at, seq limit :window::int
    ) as scan
    where lane < {PARKED} and (:queues::text[] is null or queue = any(:queues::text[]))
),
{parking}

-- name: park_by_ids
-- Park those of these jobs that are due and not of these types.
with {clock},
found as materialized (
    select seq from clock, demora.jobs where id = any(:ids::uuid[]) and status + 0 < {PROCESSING} and due_at <= wall
),
{parking}

-- name: parking
of_other_types as materialized (
    -- One by one, as in `claim`.
    select job.row from found, lateral (
        select jobs.ctid as row from demora.jobs
        where jobs.seq = found.seq and status + 0 < {PROCESSING} and lane < {PARKED} and not {of_types}
        for update of jobs skip locked
    ) as job
),
moved as (
    update demora.jobs set lane = lane + {PARKED} from of_other_types as other where jobs.ctid = other.row returning type, queue
),
noted as (
    insert into demora.parked_types (type, queue, unknown_since)
    select distinct type, queue, wall from clock, moved order by type, queue
    on conflict do nothing
)
select distinct type from moved

-- name: rules_of_queue
-- The settings and the pace of the queue of each `head`, one by one: a plan for many of them might read all queues.
left join lateral (select offsets, paused_at from demora.queues where name = head.queue limit 1) as named on true
        left join lateral (select state, follows from demora.paces where queue = head.queue limit 1) as own on true
        left join lateral (
            select lanes from demora.paces where queue = case when {follows} then '*' else head.queue end limit 1
        ) as policy on true

-- name: follows
-- Whether a queue keeps to the pace of `*`; `own` is its row among the paces, if it has one.
own.follows is not false

-- name: chosen
-- What the statement remembers of a job that it chose and locked. It finds the row again by its ctid; a row that has changed
-- since the statement began is skipped.
jobs.seq, jobs.ctid as row, token = credits and coalesce(expires_at <= wall, false) as expired

-- name: kept_message
-- The message of the last run, for jobs whose next run needs it.
case when jobs.type = any(:resumed::text[]) then jobs.progress_message end

-- name: leasing
-- Lease the chosen jobs, except those that expired, which the caller then ends.
taken as (
    update demora.jobs set status = :processing, token = token + 1, worker_id = :worker_id, claim = :claim, claim_id = :claim_id,
        lease_until = wall + :lease::bigint, claimed_at = wall, started_at = null, progress = null,
        progress_message = {kept_message}
    from clock, chosen where jobs.ctid = chosen.row and not chosen.expired
    returning turn, place, jobs.seq, {claimed_job}
)

-- name: claimed_job
id, token, type, name, queue, rank, payload, credits, strays, max_retries, retry_delay, timeout,
    coalesce(scheduled_at, created_at) as scheduled_at, tags, schedule, slot_at, traceparent

-- name: summary
-- What a claim returns besides the jobs: the time, the number of jobs that expired, and the lapsed leases.
us, wall, (select count(*) from chosen where expired) as expired,
    (select min(lease_until) from demora.jobs where status = {PROCESSING}) as next_lapse,
    (
        select json_agg(json_build_array(id, token, credits, strays, max_retries, retry_delay, worker_id, type))
        from (
            select * from demora.jobs where status = {PROCESSING} and lease_until <= wall order by lease_until
                limit :lapsed::int
        ) as run_out
    ) as lapsed

-- name: leased_before
-- The jobs that the first try of a call leased.
select {claimed_job} from demora.jobs
where status = {PROCESSING} and claim = :claim and worker_id = :worker_id order by seq

-- name: claimed
with {clock}
select {claimed_job} from clock, demora.jobs
where worker_id = :worker_id and claim_id = :claim_id and status = {PROCESSING} and lease_until > wall order by seq

-- name: in_order
-- The requests in the order in which their rows are locked. The statements then look up one row at a time: a plan that joins
-- them with the table may read all jobs.
(select request.*, (select seq from demora.jobs where jobs.id = request.id) as its_seq from request order by its_seq)

-- name: renew
with {clock},
request as (
    select * from unnest(:ids::uuid[], :tokens::int[], :rans::bigint[], :progresses::float8[], :messages::text[])
        with ordinality as request (id, token, ran, progress, message, number)
),
locked as materialized (
    select request.*, job.* from {in_order} as request, lateral (
        select seq, token as current, status, lease_until, cancel_requested_at is not null as cancel_requested
        from demora.jobs where jobs.seq = request.its_seq for update
    ) as job
),
renewed as (
    update demora.jobs set lease_until = wall + :lease::bigint,
        started_at = coalesce(started_at, greatest(claimed_at, wall - ran)),
        progress = coalesce(locked.progress, jobs.progress), progress_message = coalesce(message, progress_message)
    from clock, locked
    where jobs.seq = locked.seq and locked.token = current and locked.status = {PROCESSING} and locked.lease_until > wall
    returning number, jobs.id, jobs.token, jobs.lease_until, cancel_requested
),
logged as (
    insert into demora.logs (job_id, at, line)
    select locked.id, wall - log.ran + after, line
    from clock, unnest(:log_ids::uuid[], :log_tokens::int[], :log_rans::bigint[], :log_afters::bigint[], :lines::text[])
        with ordinality as log (id, token, ran, after, line, place)
        join locked using (id, token) left join renewed using (number)
    where renewed.number is not null or (locked.token = current and locked.status <> {PROCESSING})
    order by place
),
traced as (
    insert into demora.events (at, job_id, kind, wrote, old_status, old_token, token, old_lease_until)
    select wall, request.id, case when renewed.number is null then 'stale' else 'accepted' end, 'renew',
        status, current, request.token, coalesce(renewed.lease_until, locked.lease_until)
    from clock, request left join locked using (number) left join renewed using (number)
    where request.id is not null and exists (select from demora.meta where name = 'audit')
    order by number
)
select id, token, cancel_requested from renewed

-- name: lease_status
with {clock}
select id, token, cancel_requested_at is not null as cancel_requested from clock, demora.jobs
where id = any(:ids::uuid[]) and status + 0 = {PROCESSING} and lease_until > wall

-- name: leased
with {clock}
select {leased_job} from clock, demora.jobs where worker_id = :worker_id and status = {PROCESSING} and lease_until > wall
order by claimed_at, seq

-- name: leased_of
with {clock}
select {leased_job} from clock, demora.jobs
where id = any(:ids::uuid[]) and status + 0 = {PROCESSING} and worker_id = :worker_id and lease_until > wall
order by claimed_at, seq

-- name: leased_job
id, token, type, credits, strays, max_retries, retry_delay, timeout, wall - claimed_at as leased_for

-- name: settle
-- A verdict that would ignore a request to cancel gives way to CANCELLED: where `gives_way`, each column is written as
-- `Verdict.after_cancel_request` in core/verdict.py has it. A verdict that ends a job with a webhook is not applied
-- but returned in `put_off`, unless :with_deliveries says that the caller records the deliveries in the same transaction.
with {clock},
request as (
    select * from unnest(
        :ids::uuid[], :tokens::int[], :lapsed::boolean[], :statuses::smallint[], :ends::boolean[], :stands::boolean[],
        :results::text[], :errors::text[], :cancel_errors::text[], :tracebacks::text[], :delays::bigint[], :lanes::smallint[],
        :credits::int[], :retries::int[], :strays::boolean[], :rans::bigint[], :progresses::float8[], :messages::text[],
        :ran_us::bigint[]
    ) with ordinality as request (id, token, lapsed, status, ends, stands, result, error, cancel_error, traceback, delay, lane,
                               credit, retry, stray, ran, progress, message, ran_us, number)
),
locked as materialized (
    select request.*, seq, current, old_status, old_lane, old_due, lease_until, cancel_requested, cancel_requested and not stands as gives_way,
        hooked and not :with_deliveries::boolean and (ends or (cancel_requested and not stands)) as put_off
    from {in_order} as request, lateral (
        select seq, token as current, status as old_status, lease_until, cancel_requested_at is not null as cancel_requested,
            {hooked} as hooked, lane as old_lane, due_at as old_due
        from demora.jobs where jobs.seq = request.its_seq for update
    ) as job
),
moved as (
    update demora.jobs set
        status = case when gives_way then :cancelled else locked.status end,
        completed_at = case when ends or gives_way then wall end,
        lease_until = null,
        result = locked.result,
        error = case when gives_way then cancel_error else locked.error end,
        due_at = case when gives_way then jobs.due_at else coalesce(wall + delay, jobs.due_at) end,
        lane = case when gives_way then jobs.lane else coalesce(locked.lane, jobs.lane) end,
        credits = jobs.credits + credit,
        retries = jobs.retries + case when gives_way then 0 else retry end,
        strays = case when stray and not gives_way then jobs.strays + 1 else 0 end,
        started_at = case when credit = 0 then greatest(claimed_at, coalesce(started_at, wall - ran, claimed_at)) end,
        worker_id = case when credit = 0 then worker_id end,
        moved = {move},
        settled = case when credit = 0 or ends or gives_way then {settling} else settled end,
        progress = coalesce(locked.progress, jobs.progress), progress_message = coalesce(message, progress_message)
    from clock, locked
    where jobs.seq = locked.seq and locked.token = current and old_status = {PROCESSING} and (locked.lease_until <= wall) = lapsed
        and not put_off
    returning jobs.id, jobs.token, jobs.status, jobs.started_at, jobs.worker_id, jobs.error, credit, traceback,
        queue, type, jobs.lane, rank, jobs.due_at, number, old_lane,
        case when credit = 0 and not locked.lapsed then greatest(jobs.started_at - old_due, 0) * 1000 end as late_us, ran_us
),
{counted_runs},
recorded as (
    insert into demora.attempts (job_id, token, started_at, ended_at, worker_id, error, traceback)
    select id, token, started_at, wall, worker_id, error, traceback from clock, moved where credit = 0
        and status <> :completed
),
logged as (
    insert into demora.logs (job_id, at, line)
    select id, wall - log.ran + after, line
    from clock, unnest(:log_ids::uuid[], :log_tokens::int[], :log_rans::bigint[], :log_afters::bigint[], :lines::text[])
        with ordinality as log (id, token, ran, after, line, place) join moved using (id, token)
    order by place
),
{traced_settlements},
woken as (
    select (select array_agg(number::int) from locked where put_off) as put_off,
        exists (select from moved where status > {PROCESSING}) as ended,
        exists (
            select from clock, moved where moved.status < {PROCESSING} and (moved.due_at <= wall or not exists (
                select from demora.jobs
                where status < {PROCESSING} and moved.lane < {PARKED} and queue = moved.queue and lane = moved.lane and rank = moved.rank
                    and due_at <= moved.due_at
            ))
        ) as ready
)
select put_off, ended, ready, number, status from woken left join moved on true

-- name: complete
-- `settle` for runs that succeeded without a log or progress: they need 4 values each instead of 19. Jobs with a webhook are put off.
with {clock},
request as (
    select *, false as lapsed from unnest(:ids::uuid[], :tokens::int[], :results::text[], :ran_us::bigint[])
        with ordinality as request (id, token, result, ran_us, number)
),
locked as materialized (
    select request.*, seq, current, old_status, old_lane, old_due, lease_until, put_off
    from {in_order} as request, lateral (
        select seq, token as current, status as old_status, lease_until, {hooked} as put_off, lane as old_lane, due_at as old_due
        from demora.jobs where jobs.seq = request.its_seq for update
    ) as job
),
moved as (
    update demora.jobs set
        status = {COMPLETED}, completed_at = wall, lease_until = null, result = locked.result, error = null, strays = 0,
        started_at = greatest(claimed_at, coalesce(started_at, wall - ran_us / 1000)), moved = {move}, settled = {settling}
    from clock, locked
    where jobs.seq = locked.seq and locked.token = current and old_status = {PROCESSING} and locked.lease_until > wall and not put_off
    returning jobs.status, queue, type, number, old_lane, 0 as credit,
        greatest(jobs.started_at - old_due, 0) * 1000 as late_us, ran_us
),
{counted_runs},
{traced_settlements},
woken as (
    select (select array_agg(number::int) from locked where put_off) as put_off, exists (select from moved) as ended, false as ready
)
select put_off, ended, ready, number, status from woken left join moved on true

-- name: counted_runs
-- The classes of runs are those of `Tally.add_run` in core/statistics.py, by which SQLite counts them.
-- `test_a_run_is_counted_by_what_became_of_its_job` keeps both equal.
counted as (
    -- Only this store writes these rows, one statement at a time.
    insert into demora.tallies as kept
        (process, queue, type, at, completed, failed, retried, cancelled, returned, realtime, delayed, run,
        latest_realtime, latest_delayed, longest)
    select :process, queue, type, wall - wall % :window::bigint,
        count(*) filter (where status = :completed), count(*) filter (where status = :failed),
        count(*) filter (where status < {PROCESSING} and credit = 0), count(*) filter (where status = :cancelled),
        count(*) filter (where status < {PROCESSING} and credit = 1),
        demora.count_bins(array_agg(width_bucket(late_us, {BOUNDS})) filter
            (where late_us is not null and old_lane = :realtime)),
        demora.count_bins(array_agg(width_bucket(late_us, {BOUNDS})) filter (where late_us is not null and old_lane <> :realtime)),
        demora.count_bins(array_agg(width_bucket(ran_us, {BOUNDS})) filter (where late_us is not null)),
        coalesce(max(late_us) filter (where old_lane = :realtime), 0),
        coalesce(max(late_us) filter (where old_lane <> :realtime), 0),
        coalesce(max(ran_us) filter (where late_us is not null), 0)
    from clock, moved group by queue, type, wall
    on conflict (at, queue, type, process) do update set completed = kept.completed + excluded.completed,
        failed = kept.failed + excluded.failed, retried = kept.retried + excluded.retried,
        cancelled = kept.cancelled + excluded.cancelled, returned = kept.returned + excluded.returned,
        realtime = demora.add_counts(kept.realtime, excluded.realtime),
        delayed = demora.add_counts(kept.delayed, excluded.delayed), run = demora.add_counts(kept.run, excluded.run),
        latest_realtime = greatest(kept.latest_realtime, excluded.latest_realtime),
        latest_delayed = greatest(kept.latest_delayed, excluded.latest_delayed),
        longest = greatest(kept.longest, excluded.longest)
)

-- name: traced_settlements
traced as (
    insert into demora.events (at, job_id, kind, wrote, old_status, old_token, token, old_lease_until)
    select wall, request.id, case when moved.number is null then 'stale' else 'accepted' end,
        case when request.lapsed then 'lapse' else 'settle' end,
        coalesce(moved.status, old_status), current, request.token, case when moved.number is null then locked.lease_until end
    from clock, request left join locked using (number) left join moved using (number)
    where request.id is not null and put_off is not true and exists (select from demora.meta where name = 'audit')
    order by number
)

-- name: settled
-- For a second try of `settle`: the state of a job, and the recorded attempt.
select jobs.id, jobs.token, status, request.token as asked, attempts.token is not null as recorded, attempts.error as attempt_error
from unnest(:ids::uuid[], :tokens::int[]) as request (id, token) join demora.jobs on jobs.id = request.id
left join demora.attempts on attempts.job_id = request.id and attempts.token = request.token

-- name: logged
select distinct job_id from demora.logs join unnest(:ids::uuid[], :lines::text[]) as log (id, line)
on job_id = id and logs.line = log.line

-- name: cancel
with {clock},
locked as materialized (
    select seq, id, status, status < {PROCESSING} and {hooked} and not :with_deliveries::boolean as put_off
    from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update
),
cancelled as (
    update demora.jobs set status = :cancelled, completed_at = wall, error = :error, settled = {settling}
    from clock, locked where jobs.seq = locked.seq and locked.status < {PROCESSING} and not put_off
    returning jobs.seq
),
requested as (
    update demora.jobs set cancel_requested_at = coalesce(cancel_requested_at, wall)
    from clock, locked where jobs.seq = locked.seq and locked.status = {PROCESSING}
    returning jobs.seq
)
select id, case when cancelled.seq is null
    then status else :cancelled::smallint end as status, status <= {PROCESSING} as did,
    cancelled.seq is not null as ended, put_off
from locked left join cancelled using (seq) left join requested using (seq)

-- name: retry
with {clock},
locked as materialized (select seq, id, status from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update),
retried as (
    update demora.jobs set status = :queued, lane = :lane, due_at = greatest(wall, :at::bigint), generation = generation + 1,
        credits = token, retries = 0, strays = 0, expires_at = null, completed_at = null, started_at = null, cancel_requested_at = null,
        progress = null, progress_message = {kept_message}, result = null, error = null, moved = {move}
    from clock, locked where jobs.seq = locked.seq and locked.status = any(:from::smallint[])
    returning jobs.seq
)
select id, case when retried.seq is null then status else :queued::smallint end as status, retried.seq is not null as did
from locked left join retried using (seq)

-- name: restore
-- A job that this transaction has locked. If it waits to be retried, it has the error of its last attempt.
with {clock},
found as materialized (select seq, status from demora.jobs where id = :id),
restored as (
    update demora.jobs set status = :status::smallint, generation = generation + 1,
        error = case when :status::smallint = {RETRYING}
            then (select attempts.error from demora.attempts where job_id = jobs.id order by attempts.token desc limit 1) end,
        completed_at = null, moved = {move}
    from clock, found where jobs.seq = found.seq and found.status = {CANCELLED} and error = :error and cancel_requested_at is null
        and completed_at > wall - :within::bigint
        and not exists (
            select from demora.jobs as told where told.cause = jobs.id and told.created_at >= jobs.completed_at
        )
    returning jobs.seq, jobs.status
)
select coalesce(restored.status, found.status) as status, restored.seq is not null as did
from found left join restored using (seq)

-- name: change
with {clock},
locked as materialized (
    select seq, id, status, {due_time} as due, at is not null or delay is not null as moves
    from clock, (select :at::bigint as at, :delay::bigint as delay) as new, demora.jobs where id = :id for update of jobs
),
changed as (
    update demora.jobs set rank = coalesce(:rank::smallint, rank), tags = coalesce(:tags::text, tags),
        due_at = case when moves then due else due_at end, scheduled_at = case when moves then due else scheduled_at end,
        lane = case when moves then :lane else lane end, moved = {move}
    from locked where jobs.seq = locked.seq and locked.status < {PROCESSING}
    returning jobs.seq, queue, lane, rank, due_at
)
select locked.status, changed.seq is not null as did, changed.seq is not null and (changed.due_at <= wall or not exists (
    select from demora.jobs
    where status < {PROCESSING} and changed.lane < {PARKED} and queue = changed.queue and lane = changed.lane and rank = changed.rank
        and due_at <= changed.due_at and jobs.seq <> changed.seq
)) as ready
from clock, locked left join changed using (seq)

-- name: lock
select id, status, token - credits as attempt from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update

-- name: delete
-- Jobs that this transaction has locked, with their attempts and log lines. The lock was a statement of its own, so this one
-- sees all that other transactions have written about them.
with {clock},
removed as (delete from demora.jobs using clock where id = any(:ids::uuid[]) returning id),
forgotten as (delete from demora.attempts where job_id = any(:ids::uuid[]))
delete from demora.logs where job_id = any(:ids::uuid[])

-- name: queue_names
select name from demora.queues order by name

-- name: purge
-- Lock the oldest jobs of a queue that ended with a status. Concurrent purges skip each other's rows.
with {clock}
select id from demora.jobs
where queue = :queue and status = :status and status > {PROCESSING} and completed_at <= (select wall
    from clock) - :older_than::bigint
order by completed_at, seq limit :limit::int for update skip locked

-- name: purge_beyond
-- The same, but lock all except the :newest ones.
select id from demora.jobs where jobs.seq in (
    select seq from demora.jobs where queue = :queue and status = :status and status > {PROCESSING}
    order by completed_at desc, seq desc limit :limit::int offset :newest::int
) and status > {PROCESSING}
order by jobs.seq for update of jobs skip locked

-- name: purge_keys
with {clock},
doomed as materialized (
    select ctid as row from demora.idempotency_keys where expires_at <= (select wall from clock)
    order by expires_at limit :limit::int for update skip locked
)
delete from demora.idempotency_keys where ctid = any(array(select row from doomed))

-- name: expire
with {clock},
due as materialized (
    select seq, {hooked} and not :with_deliveries::boolean as put_off from demora.jobs
    where status < {PROCESSING} and expires_at is not null and token = credits and expires_at <= (select wall from clock)
    order by expires_at limit :limit::int for update skip locked
),
expired as (
    update demora.jobs set status = :cancelled, completed_at = wall, error = :expired, settled = {settling}
    from clock where seq = any(array(select seq from due where not put_off))
    returning id
)
select (select array_agg(id) from expired) as ids, exists (select from due where put_off) as put_off

-- name: parked_types
-- Also those that were forgotten while jobs of them were parked: a skip scan of the index finds these.
with recursive kind as (
    (select type, queue from demora.jobs where {parked} order by type, queue limit 1)
    union all
    select next.type, next.queue from kind, lateral (
        select type, queue from demora.jobs where {parked} and (type, queue) > (kind.type, kind.queue)
        order by type, queue limit 1
    ) as next
)
select type, queue, unknown_since from demora.parked_types
union all
select type, queue, null from kind where not exists (
    select from demora.parked_types as noted where noted.type = kind.type and noted.queue = kind.queue
)
order by type, queue

-- name: note_unknown
insert into demora.parked_types (type, queue, unknown_since) values (:type, :queue, :since)
on conflict (type, queue) do update set unknown_since = excluded.unknown_since

-- name: forget_parked
delete from demora.parked_types where type = :type and queue = :queue

-- name: parked_firsts
-- When the first job of each of these parked types in these queues was due.
select asked.type, asked.queue, min(first.due_at) as due_at
from unnest(:types::text[], :queues::text[]) as asked (type, queue),
    generate_series({PARKED}, 2 * {PARKED} - 1) as level (lane), generate_series(0, :ranks::int - 1) as rank, lateral (
        select due_at from demora.jobs
        where {parked} and type = asked.type and queue = asked.queue and lane = level.lane and jobs.rank = rank.rank
        order by due_at limit 1
    ) as first
group by asked.type, asked.queue

-- name: fail_unknown
-- End parked jobs of a type in a queue that were due by a time.
with {clock},
due as materialized (
    select job.seq
    from generate_series({PARKED}, 2 * {PARKED} - 1) as level (lane), generate_series(0, :ranks::int - 1) as rank, lateral (
        select seq from demora.jobs
        where {parked} and type = :type and queue = :queue and lane = level.lane and jobs.rank = rank.rank
            and due_at <= :until::bigint
        order by due_at limit :limit::int
    ) as job
    limit :limit::int
),
locked as materialized (
    select seq from demora.jobs where seq = any(array(select seq from due)) and status + 0 < {PROCESSING} and lane >= {PARKED}
        and due_at <= :until
    order by seq for update skip locked
)
update demora.jobs set status = :failed::smallint, completed_at = wall, error = :error::text, settled = {settling}
from clock where seq = any(array(select seq from locked))
returning id

-- name: ended_kinds
-- Each queue and status that has ended jobs, with the oldest end: a skip scan of the index.
with recursive kind as (
    (select queue, status, completed_at as oldest from demora.jobs where status > {PROCESSING}
     order by queue, status, completed_at limit 1)
    union all
    select next.queue, next.status, next.oldest
    from kind, lateral (
        select queue, status, completed_at as oldest from demora.jobs
        where status > {PROCESSING} and (queue, status) > (kind.queue, kind.status)
        order by queue, status, completed_at limit 1
    ) as next
)
select queue, status, oldest from kind

-- name: retentions
select name, retention from demora.queues where retention is not null

-- name: next_expiry
select min(expires_at) as expires_at from demora.jobs where status < {PROCESSING} and expires_at is not null
    and token = credits

-- name: forget_silent
with {clock} delete from demora.workers where heartbeat_at <= (select wall from clock) - :silent::bigint

-- name: job_columns
id, type, name, queue, status, lane, rank, due_at, created_at, coalesce(scheduled_at, created_at) as scheduled_at, max_retries,
    retry_delay, timeout, token, credits, retries, generation, payload, tags, webhook_url, worker_id, lease_until, started_at,
    completed_at, cancel_requested_at, progress, progress_message, result, error, expires_at, unique_key, webhook_on_cancel, cause,
    schedule, slot_at,
    (select json_agg(json_build_array(token, started_at, ended_at, worker_id, error, traceback) order by token)::text
     from demora.attempts where job_id = jobs.id) as attempts

-- name: jobs
select {job_columns},
    (select json_agg(json_build_array(at, line) order by seq)::text from demora.logs where job_id = jobs.id) as log
from demora.jobs where id = any(:ids::uuid[])

-- name: listed
select {job_columns}, null as log
from (
    select id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay, timeout, token,
        credits, retries, generation, null as payload, tags, webhook_url, worker_id, lease_until, started_at, completed_at,
        cancel_requested_at, progress, progress_message, '' as result, error, expires_at, unique_key, webhook_on_cancel, cause,
        schedule, slot_at
    from demora.jobs where id = any(:ids::uuid[])
) as jobs

-- name: find
-- The jobs that a walk found, in its order. A page ends before it would exceed the given bytes. PostgreSQL knows the length of a
-- text without reading it, so only the payloads and results of the page are read.
select {job_columns}, null as log
from (
    select *, sum(size) over (order by place) as bytes
    from (
        select place, seq, id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, expires_at, max_retries,
            retry_delay, timeout, token, credits, retries, generation, case when :with_payload::boolean
                then payload end as payload, tags, webhook_url,
            unique_key, worker_id, lease_until, started_at, completed_at, cancel_requested_at, progress, progress_message,
            case when :with_result::boolean then result else '' end as result, error, webhook_on_cancel, cause,
            schedule, slot_at,
            case when :bytes::bigint is null then 0 else case when :with_payload then octet_length(payload) else 0 end
                + case when :with_result then coalesce(octet_length(result), 0) else 0 end + coalesce(octet_length(error), 0)
                + (select coalesce(sum(coalesce(octet_length(attempts.error), 0) + coalesce(octet_length(traceback), 0)), 0)
                   from demora.attempts where job_id = jobs.id) end as size
        from unnest(:ids::uuid[]) with ordinality as wanted (wanted_id, place)
        join demora.jobs on jobs.id = wanted_id
    ) as jobs
) as jobs
where :bytes::bigint is null or place = 1 or bytes <= :bytes
order by place

-- name: walked
-- The places of the first :wanted jobs that a walk read and that match, in order, and that of the last one it read. `read` counts
-- all that it read.
select at, row, id, matches, read from (
    select walked.*, row_number() over walk as place, count(*) filter (where matches) over walk as number, count(*) over () as read
    from (/* walk */) as walked
    window walk as (order by /* order */ rows unbounded preceding)
) as walked
where (matches and number <= :wanted::int) or place = read
order by place

-- A walk reads the place of each job in the list, its id, and whether it matches the rest of the filter.

-- name: walk_all
select 0::bigint as at, seq as row, id, /* matches */ as matches from demora.jobs
where id < :before::uuid order by id desc limit :chunk::int

-- name: walk_created
select 0::bigint as at, seq as row, id, /* matches */ as matches from demora.jobs
where seq >= :first_row::bigint and seq <= :last_row::bigint and seq < :row::bigint order by seq desc limit :chunk::int

-- name: row_at
-- The first row of a job that was added at this time or later: a binary search.
with recursive half as (
    select 0::bigint as low, (select coalesce(max(seq), 0) + 1 from demora.jobs) as high
    union all
    select case when earlier then (low + high) / 2 + 1 else low end, case when earlier then high else (low + high) / 2 end
    from (
        select low, high, coalesce((select created_at from demora.jobs where seq >= (half.low + half.high) / 2
            order by seq limit 1) < :moment::bigint, false) as earlier
        from half where low < high
    ) as probe
)
select low from half where low >= high

-- name: walk_processing
-- `offset 0` keeps the planner from walking the ids of all jobs.
select 0::bigint as at, seq as row, id, /* matches */ as matches
from (select * from demora.jobs where status = {PROCESSING} offset 0) as jobs
where id < :before::uuid order by id desc limit :chunk::int

-- name: walk_dead
select 0::bigint as at, seq as row, id, /* matches */ as matches from demora.jobs
where status = {FAILED} and id < :before::uuid order by id desc limit :chunk::int

-- name: walk_of_error
select 0::bigint as at, seq as row, id, /* matches */ as matches from demora.jobs
where error is not null and {error_class} = :error and id < :before::uuid order by id desc limit :chunk::int

-- name: walk_schedule
select 0::bigint as at, seq as row, id, /* matches */ as matches from demora.jobs
where schedule is not null and schedule = :schedule and id < :before::uuid
order by id desc limit :chunk::int

-- name: walk_tag
select 0::bigint as at, row, id, matches
from (select job_id from demora.job_tags where tag = :tag and job_id < :before::uuid
      order by job_id desc limit :chunk::int) as tagged
cross join lateral (
    select seq as row, id, /* matches */ as matches from demora.jobs where id = tagged.job_id
) as one

-- name: before_end
completed_at >= :since::bigint and completed_at < :until::bigint and (completed_at, seq) < (:at::bigint, :row::bigint)
    order by completed_at desc, seq desc limit :chunk::int

-- name: after_due
due_at >= :since::bigint and due_at < :until::bigint and (due_at, seq) > (:at::bigint, :row::bigint)
    order by due_at, seq limit :chunk::int

-- name: walk_ended_of_queue
select one.* from unnest(:kinds::text[], :kind_statuses::smallint[]) as kind (queue, status)
cross join lateral (
    select completed_at as at, seq as row, id, /* matches */ as matches from demora.jobs
    where status > {PROCESSING} and queue = kind.queue and status = kind.status and {before_end}
) as one
order by at desc, row desc limit :chunk

-- name: walk_ended_of_type
select one.* from unnest(:kinds::text[], :kind_statuses::smallint[]) as kind (type, status)
cross join lateral (
    select completed_at as at, seq as row, id, /* matches */ as matches from demora.jobs
    where status in ({COMPLETED}, {FAILED}, {CANCELLED}) and type = kind.type and status = kind.status and {before_end}
) as one
order by at desc, row desc limit :chunk

-- name: walk_dead_of_error
select completed_at as at, seq as row, id, /* matches */ as matches from demora.jobs
where status = {FAILED} and {error_class} = :error and {before_end}

-- name: walk_due_of_queue
select one.* from unnest(:kinds::text[], :lanes::smallint[], :ranks::smallint[]) as kind (queue, lane, rank)
cross join lateral (
    select due_at as at, seq as row, id, /* matches */ as matches from demora.jobs
    where status < {PROCESSING} and queue = kind.queue and lane = kind.lane and rank = kind.rank and {after_due}
) as one
order by at, row limit :chunk

-- name: walk_due_of_type
select one.* from unnest(:kinds::text[], :kind_statuses::smallint[]) as kind (type, status)
cross join lateral (
    select due_at as at, seq as row, id, /* matches */ as matches from demora.jobs
    where status in ({PENDING}, {QUEUED}, {RETRYING}) and type = kind.type and status = kind.status and {after_due}
) as one
order by at, row limit :chunk

-- name: walk_retrying
select one.* from unnest(:kinds::text[]) as kind (queue)
cross join lateral (
    select due_at as at, seq as row, id, /* matches */ as matches from demora.jobs
    where status = {RETRYING} and queue = kind.queue and {after_due}
) as one
order by at, row limit :chunk

-- name: waiting_kinds
-- Each queue, lane and rank that has waiting jobs: a skip scan of the index.
with recursive kind as (
    (select queue, lane, rank from demora.jobs where status < {PROCESSING} order by queue, lane, rank limit 1)
    union all
    select next.* from kind, lateral (
        select queue, lane, rank from demora.jobs
        where status < {PROCESSING} and (queue, lane, rank) > (kind.queue, kind.lane, kind.rank)
        order by queue, lane, rank limit 1
    ) as next
)
select queue, lane, rank from kind

-- name: retrying_kinds
with recursive kind as (
    (select queue from demora.jobs where status = {RETRYING} order by queue limit 1)
    union all
    select next.* from kind, lateral (
        select queue from demora.jobs where status = {RETRYING} and queue > kind.queue order by queue limit 1
    ) as next
)
select queue from kind

-- name: waiting_types
-- The types of waiting jobs that begin with a prefix: a skip scan of the index.
with recursive kind as (
    (select type from demora.jobs where status in ({PENDING}, {QUEUED}, {RETRYING}) and type >= :prefix order by type limit 1)
    union all
    select next.* from kind, lateral (
        select type from demora.jobs
        where status in ({PENDING}, {QUEUED}, {RETRYING}) and type > kind.type and starts_with(kind.type, :prefix) order by type limit 1
    ) as next
)
select type from kind where starts_with(type, :prefix)

-- name: ended_types
with recursive kind as (
    (select type from demora.jobs where status in ({COMPLETED}, {FAILED}, {CANCELLED}) and type >= :prefix order by type limit 1)
    union all
    select next.* from kind, lateral (
        select type from demora.jobs
        where status in ({COMPLETED}, {FAILED}, {CANCELLED}) and type > kind.type and starts_with(kind.type, :prefix) order by type limit 1
    ) as next
)
select type from kind where starts_with(type, :prefix)

-- name: error_class
left(split_part(error, ':', 1), 200) collate "C"

-- name: match_statuses
status = any(:statuses::smallint[])

-- name: match_queue
queue = :queue

-- name: match_type
type = :type

-- name: match_prefix
starts_with(type, :prefix)

-- name: match_priorities
rank = any(:priorities::smallint[])

-- name: match_tags
tags is not null and not exists (select from unnest(:tags::text[]) as wanted
    where not exists (select from json_array_elements_text(tags::json) as own where own = wanted))

-- name: match_error
coalesce({error_class} = :error, false)

-- name: match_text
(strpos(lower(coalesce(name, type) collate "C"), :text) > 0 or coalesce(strpos(lower(error collate "C"), :text), 0) > 0)

-- name: match_created_since
created_at >= :created_since::bigint

-- name: match_created_until
created_at < :created_until::bigint

-- name: match_due_since
(status < {PROCESSING} and due_at >= :due_since::bigint)

-- name: match_due_until
(status < {PROCESSING} and due_at < :due_until::bigint)

-- name: match_ended_since
(status > {PROCESSING} and completed_at >= :ended_since::bigint)

-- name: match_ended_until
(status > {PROCESSING} and completed_at < :ended_until::bigint)

-- name: match_schedule
coalesce(schedule = :schedule, false)

-- name: match_older_than
coalesce(completed_at, created_at) <= (select us / 1000 from ({now}) as now) - :older_than::bigint

-- name: queue_settings
name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url

-- name: waiting_by_lane
-- To join each job with the clock would take longer than to count it.
select queue, lane, count(*) as jobs, count(*) filter (where due_at <= (select wall from clock)) as due
from demora.jobs where status < {PROCESSING}

-- name: dead_by_queue
select queue, count(*) as dead from demora.jobs where status = {FAILED}

-- name: shown_only
queue >= (select first from shown) and queue <= (select last from shown)

-- name: queues_with_counts
waiting as (
    select lane_count.queue, sum(case when held then 0 else due end)::bigint as ready,
        sum(case when held then jobs else jobs - due end)::bigint as delayed
    from {held_lanes}
    group by lane_count.queue
),
processing as (select queue, count(*) as processing from demora.jobs where status = {PROCESSING} group by queue)
select {queue_settings}, coalesce(ready, 0) as ready, coalesce(delayed, 0) as delayed,
    coalesce(processing, 0) as processing, coalesce(dead, 0) as dead
from named
left join waiting on waiting.queue = name
left join processing on processing.queue = name
left join dead on dead.queue = name
order by name

-- name: queues
-- One statement sees one snapshot: a job that moves meanwhile is counted once.
with {clock},
named as materialized (
    select {queue_settings} from demora.queues
    where name >= :first and name <= :last and (:after::text is null or name > :after) order by name limit :limit::int
),
shown as materialized (select min(name) as first, max(name) as last from named),
lane_count as ({waiting_by_lane} and {shown_only} group by queue, lane),
dead as ({dead_by_queue} and {shown_only} group by queue),
{queues_with_counts}

-- name: all_queues
-- As `queues`, and the planner knows how many jobs there are to count: many are counted on several cores.
with {reading_clock},
named as (select {queue_settings} from demora.queues),
lane_count as ({waiting_by_lane} group by queue, lane),
dead as ({dead_by_queue} group by queue),
{queues_with_counts}

-- name: queue
select {queue_settings} from demora.queues where name = :name for update

-- name: name_queue
insert into demora.queues (name) values (:name) on conflict do nothing

-- name: set_queue
with {clock}
update demora.queues set step = :step, strict = :strict, head_start = :head_start, offsets = :offsets::bigint[],
    paused_at = case when :paused::boolean is null then paused_at when :paused then coalesce(paused_at, wall) end,
    pause_reason = case when :paused::boolean is null then pause_reason when :paused
        then coalesce(:reason, pause_reason) end,
    paused_by = case when :paused::boolean is null or :paused and paused_at is not null and :reason::text is null
        then paused_by
        when :paused then :by end,
    retention = coalesce(:retention, retention), webhook_url = nullif(coalesce(:webhook_url, webhook_url), ''), changed_at = wall
from clock where name = :name
returning {queue_settings}

-- name: heartbeat
with {clock}
insert into demora.workers (id, host, pid, slots, queues, types, started_at, heartbeat_at, paces)
select :id::text, :host::text, :pid::int, :slots::int, :queues::text, :types::text, wall, wall, :paces::text from clock
on conflict (id) do update set slots = excluded.slots, queues = excluded.queues, types = excluded.types,
    heartbeat_at = excluded.heartbeat_at

-- name: retire
delete from demora.workers where id = :id

-- name: workers
with {clock}
select id, host, pid, slots, queues, types, started_at, greatest(wall - heartbeat_at, 0) as silent, paces
from clock, demora.workers order by id

-- name: notify
select pg_notify(channel, :sender) from unnest(:channels::text[]) as channel

-- ==== paces ====

-- name: touch_queue
with {clock}
update demora.queues set changed_at = wall from clock where name = :name

-- name: set_by_settings
select setting from demora.pace_changes where queue = :queue and setting is not null order by seq desc limit 1

-- name: pace_state
-- A release may change it before the pace is set: `set_pace` leaves the state of a row that is there as it is.
select state from demora.paces where queue = :queue

-- name: set_pace
-- The caller has locked the row of the queue, so that no other call inserts this one.
with {clock},
recorded as (
    insert into demora.pace_changes (queue, at, by, pace, setting)
    select :queue::text, wall, :by::text, :pace::text, :setting::text from clock
)
insert into demora.paces (queue, pace, lanes, protects, reach, state, set_at, set_by)
select :queue::text, :pace::text, :lanes::smallint[], :protects::text[], :reach::int, :state::text, wall, :by::text
    from clock
on conflict (queue) do update set pace = excluded.pace, lanes = excluded.lanes, protects = excluded.protects,
    reach = excluded.reach, set_at = excluded.set_at, set_by = excluded.set_by, follows = false

-- name: follow_again
with {clock},
changed as (
    update demora.paces set pace = null, lanes = null, protects = null, reach = null, follows = true, set_at = wall,
        set_by = :by::text
    from clock where queue = :queue and not follows
    returning queue
)
insert into demora.pace_changes (queue, at, by, follows) select queue, wall, :by::text, true from clock, changed
returning queue

-- name: follow
-- A queue that follows `*` gets its row when it first releases a job.
insert into demora.paces (queue, state, set_at, set_by, follows) values (:queue, :state, :wall::bigint, '*', true)
on conflict do nothing

-- name: protects
-- The queues that the pace of a queue protects. That of `*` protects the queue itself unless it names others.
case when cardinality(policy.protects) = 0 then array[queues.name] else policy.protects end

-- name: held
-- For each queue that has a pace and is not paused, what a plan needs: when its first held jobs were due, whether jobs before
-- them have expired, and when the next one is due.
with {clock}
select us, wall, queues.name as queue, policy.pace, own.state, {follows} as inherited, policy.lanes, offsets, dues, expired, coming,
    not exists (
        select from demora.jobs where status < {PROCESSING} and queue = any({protects})
            and lane in (:realtime, :realtime + {PARKED}) and due_at <= wall
    ) as quiet
from clock, demora.queues left join demora.paces as own on own.queue = queues.name
    join demora.paces as policy on policy.queue = case when {follows} then '*' else queues.name end, lateral (
    select array(
            select scan.due_at
            from unnest(policy.lanes) as governed (lane), generate_series(0, :ranks::int - 1) as level (rank), lateral (
                select due_at from demora.jobs
                where status < {PROCESSING} and queue = queues.name and lane = governed.lane and rank = level.rank
                    and due_at <= wall
                    and (expires_at is null or expires_at > wall or token > credits)
                order by due_at limit least(:width::int, policy.reach)
            ) as scan
            order by scan.due_at limit least(:width::int, policy.reach)
        ) as dues
) as held, lateral (
    select coalesce(min(first.due_at) filter (where first.due_at <= wall) < coalesce(dues[1], wall + 1), false) as expired,
        min(next.due_at) as coming
    from unnest(policy.lanes) as governed (lane), generate_series(0, :ranks::int - 1) as level (rank)
    left join lateral (
        select due_at from demora.jobs where status < {PROCESSING} and queue = queues.name and lane = governed.lane
            and rank = level.rank
        order by due_at limit 1
    ) as first on true
    left join lateral (
        select due_at from demora.jobs
        where status < {PROCESSING} and queue = queues.name and lane = governed.lane and rank = level.rank and due_at > wall
        order by due_at limit 1
    ) as next on true
) as others
where policy.pace is not null and paused_at is null and (:queues::text[] is null or queues.name = any(:queues::text[]))
    and (own.queue is not null or {delayed})
order by queues.name

-- name: delayed
-- Whether a queue has jobs that its pace governs.
exists (select from demora.jobs where status < {PROCESSING} and jobs.queue = queues.name and lane = any(policy.lanes))

-- name: every_pace
select pace from demora.paces where queue = '*' and pace is not null

-- name: release_held
-- Does nothing if the pace was used or changed since `held`. It reads more rows than it may release, since other calls may be
-- changing the first ones, and skips locked rows. The state that it stores is the one for the number of jobs that it moved.
with {clock},
every as materialized (
    select queue from demora.paces where queue = '*' and pace = :pace and :inherited::boolean for share skip locked
),
taken as materialized (
    select queue from demora.paces
    where queue = :queue and state = :before and case when follows then exists (select from every) else pace = :pace end
    for update skip locked
),
found as materialized (
    select scan.due_at + (:offsets::bigint[])[governed.lane * :ranks::int + level.rank + 1] as place, scan.seq
    from taken, unnest(:lanes::smallint[]) as governed (lane), generate_series(0, :ranks::int - 1) as level (rank), lateral (
        select due_at, seq from demora.jobs
        where status < {PROCESSING} and queue = :queue and lane = governed.lane and rank = level.rank and due_at <= :wall::bigint
            and (expires_at is null or expires_at > :wall or token > credits)
        order by due_at, seq limit :window::int
    ) as scan
    order by place, seq limit :window::int
),
chosen as materialized (
    -- One by one, by their `seq`: a plan for any number of rows would read all waiting jobs.
    select place, job.seq, job.old_due from found, lateral (
        select seq, due_at as old_due from demora.jobs
        where jobs.seq = found.seq and status < {PROCESSING} and queue = :queue and lane = any(:lanes) and due_at <= :wall
        for update skip locked
    ) as job
    limit cardinality(:release_times::bigint[])
),
numbered as (select seq, old_due, row_number() over (order by place, seq) as number from chosen),
moved as (
    update demora.jobs set lane = :released, due_at = (:release_times::bigint[])[number], moved = {move}
    from clock, numbered where jobs.seq = numbered.seq and jobs.seq = any(array(select seq from chosen))
    returning number, id, rank, due_at, type, (greatest(:wall - old_due, 0)) * 1000 as held_us
),
counted as (
    -- The lock of the pace lets one release write these rows at a time.
    insert into demora.tallies as kept (process, queue, type, at, released, held, longest_held)
    select :process, :queue, type, :wall - :wall % :window_ms::bigint, count(*),
        demora.count_bins(array_agg(width_bucket(held_us, {BOUNDS}))), max(held_us)
    from moved group by type order by type
    on conflict (at, queue, type, process) do update set released = kept.released + excluded.released,
        held = demora.add_counts(kept.held, excluded.held), longest_held = greatest(kept.longest_held, excluded.longest_held)
),
kept as (
    update demora.paces set state = (:states::text[])[greatest(jobs, 1)] from taken, (select count(*) as jobs from moved) as done
    where paces.queue = taken.queue and (jobs > 0 or cardinality(:release_times::bigint[]) = 0)
)
select id, rank, due_at from moved order by number

-- name: pacings
with {clock}
select queues.name as queue, policy.pace, own.state, policy.set_at, policy.set_by, wall, held, coming, soon, first, not exists (
    select from demora.jobs where status < {PROCESSING} and queue = any({protects})
            and lane in (:realtime, :realtime + {PARKED}) and due_at <= wall
) as quiet, {follows} as inherited
from clock, (
    select name from demora.queues where :queues::text[] is null union all select unnest(coalesce(:queues::text[], '{*}'))
) as queues left join demora.paces as own on own.queue = queues.name
    join demora.paces as policy on policy.queue = case when {follows} then '*' else queues.name end, lateral (
    select count(*) filter (where due_at <= wall) as held, count(*) filter (where due_at > wall) as coming,
        count(*) filter (where due_at <= wall + :hour::bigint) as soon, min(due_at) as first
    from demora.jobs where status < {PROCESSING} and queue = queues.name and lane = any(policy.lanes)
) as counts
where policy.pace is not null and (:queues::text[] is not null or own.queue is not null or held + coming > 0)
order by queues.name collate "C"

-- name: pace_changes
select queue, at, by, pace, follows from demora.pace_changes where queue = :queue order by seq desc limit :limit::int

-- name: surroundings
-- The queues as they are, also those that have no row, and how many of their jobs were completed lately.
select asked.name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url, (
    select count(*) from demora.jobs
    where queue = asked.name and status = :completed and status > {PROCESSING} and completed_at > :since::bigint
) as recent
from unnest(:queues::text[]) as asked (name) left join demora.queues on queues.name = asked.name

-- name: count_before
-- For each job the sum over the lanes and ranks of its queue.
select number, sum(counted)::bigint as ahead
from unnest(:numbers::int[], :ids::uuid[], :queues::text[], :lanes::smallint[], :ranks::smallint[], :dues::bigint[])
    as bound (number, id, queue, lane, rank, due), lateral (
    select count(*) as counted from (
        select from demora.jobs
        where status < {PROCESSING} and jobs.queue = bound.queue and jobs.lane = bound.lane and jobs.rank = bound.rank
            and due_at <= least(:wall::bigint, due)
            and (due_at < due or seq < (select seq from demora.jobs as asked where asked.id = bound.id))
        limit :most::bigint
    ) as before
) as jobs_before
group by number

-- name: pace_facts
select queue, at, pace, follows from demora.pace_changes order by seq

-- ==== schedules ====

-- name: add_of_schedules
with {clock},
{kinds},
request as materialized (
    select given.*, kind.*, {due_time} as due_at
    from unnest(:ids::uuid[], :payloads::text[], :kinds_of::int[], :ats::bigint[], :delays::bigint[], :schedules::text[],
                :fire_times::bigint[]) with ordinality
        as given (id, payload, kind, at, delay, schedule, slot_at, place) join kind on kind.number = coalesce(given.kind, 1)
),
named as (
    insert into demora.queues (name) select name from unnest(:unnamed::text[]) as name order by name on conflict do nothing
)
insert into demora.jobs (id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay,
                         timeout, payload, tags, webhook_url, webhook_on_cancel, namespace, submitter, moved, schedule, slot_at)
select id, type, name, queue, :queued::smallint, :scheduled::smallint, rank, due_at, wall, due_at, max_retries, retry_delay,
    timeout, payload, tags, webhook_url, webhook_on_cancel, namespace, submitter, {move}, schedule, slot_at
from request order by place
on conflict do nothing

-- name: schedule_columns
name, schedule, exclusive, revision, decided_to, next_at, kept_at, origin, changed_by, defined, application, release,
    last_run_at, last_job_id, run_count, records, forgotten_to

-- name: last_status
(select status from demora.jobs where id = schedules.last_job_id) as last_status

-- name: add_schedule
-- If a schedule of this name was removed, which of its fire times had a job is no longer known.
insert into demora.schedules (name, schedule, exclusive, revision, decided_to, next_at, origin, changed_by, defined, application,
                              release, forgotten_to)
values (:name::text, :schedule::text, :exclusive::boolean, 1, :decided_to::bigint, :next_at::bigint, :origin::text, :by::text,
        :defined::text, :application::text, :release::text,
        case when exists (select from demora.jobs where jobs.schedule is not null and jobs.schedule = :name::text)
            then :decided_to::bigint end)
on conflict (name) do nothing
returning name

-- name: schedule
select {schedule_columns}, {last_status} from demora.schedules where name = :name

-- name: lock_schedule
select {schedule_columns}, {last_status} from demora.schedules where name = :name for update of schedules

-- name: schedules
select {schedule_columns}, {last_status} from demora.schedules where name > :after order by name limit :limit::int

-- name: schedules_of_application
-- The schedules of these names, and all of the application.
select {schedule_columns}, {last_status} from demora.schedules
where name = any(:names::text[]) or application = :application
order by name for update of schedules

-- name: write_schedule
update demora.schedules set schedule = :schedule, exclusive = :exclusive, revision = revision + 1, decided_to = :decided_to,
    next_at = :next_at, kept_at = :kept_at, changed_by = :by, defined = :defined, application = :application,
    release = :release
where name = :name

-- name: remove_schedule
delete from demora.schedules where name = :name returning name

-- name: remove_records
-- Runs after `remove_schedule`, so that it also sees the records of a firing that had locked the row of the schedule.
delete from demora.schedule_slots where schedule = :name

-- name: register_names
with {clock},
forgotten as (
    delete from demora.schedule_processes
    where registered_at <= (select wall from clock) - :within::bigint and process_id <> :process_id
        and process_id not in (select id from {processes} as processes)
)
insert into demora.schedule_processes (application, process_id, names, registered_at, release)
select :application, :process_id, :names::text, wall, :release::text from clock
on conflict (application, process_id) do update set names = excluded.names, registered_at = excluded.registered_at,
    release = excluded.release

-- name: processes
-- The processes that fire schedules: those with a worker, and those that attend.
(select id, heartbeat_at from demora.workers union all select id, heartbeat_at from demora.schedulers)

-- name: registered_elsewhere
with {clock}
select names, release from clock, demora.schedule_processes join {processes} as processes on processes.id = process_id
where application = :application and process_id <> :process_id and heartbeat_at > wall - :within::bigint

-- name: attend
with {clock},
forgotten as (
    delete from demora.schedulers where heartbeat_at <= (select wall from clock) - :within::bigint and id <> :id
)
insert into demora.schedulers (id, heartbeat_at, paces) select :id, wall, :paces from clock
on conflict (id) do update set heartbeat_at = excluded.heartbeat_at, paces = excluded.paces

-- name: leave
delete from demora.schedulers where id = :id

-- name: live_processes
with {clock}
select id from clock, {processes} as processes where heartbeat_at > wall - :within::bigint order by id

-- name: attending
with {clock}
select id, paces from clock, demora.schedulers where heartbeat_at > wall - :within::bigint order by id

-- name: schedules_due
-- Returns at least one row, which says when to look next. A skip scan of the index finds the coming fire times.
with recursive {clock},
due as materialized (
    (
        select * from demora.schedules where next_at is not null and next_at <= (select wall from clock)
        order by next_at, name limit :limit::int
    )
    union all
    (
        select * from demora.schedules
        where kept_at <= (select wall from clock) and (next_at is null or next_at > (select wall from clock)) and not exists (
            select from demora.jobs
            where jobs.schedule is not null and jobs.schedule = schedules.name and status < {COMPLETED}
        )
        limit :limit::int
    )
),
coming as (
    (
        select next_at as at, next_at + :coming::bigint as upto from demora.schedules
        where next_at is not null and next_at > (select wall from clock) order by next_at limit 1
    )
    union all
    select (
        select next_at from demora.schedules where next_at is not null and next_at > at order by next_at limit 1
    ), upto
    from coming where at <= upto
),
summary as materialized (
    select us, wall, exists (select from demora.schedules where kept_at is not null) as keeps,
        array(select at from (select * from coming limit :most_coming::int) as first where at <= upto) as coming
    from clock
)
select us, wall, keeps, coming, name, due.schedule, revision, decided_to, next_at, kept_at, waiting, claimed
from summary left join due on true left join lateral (
    select bool_or(status < {PROCESSING} and token = 0) as waiting, bool_or(status = {PROCESSING} or token > 0) as claimed
    from demora.jobs
    where due.exclusive and jobs.schedule is not null and jobs.schedule = due.name and status < {COMPLETED}
) as previous on true
order by next_at nulls last, name

-- name: lock_schedules
select name, revision from demora.schedules where name = any(:names::text[]) order by name for update

-- name: lock_unended
-- The unended jobs of these schedules. No worker claims one of them until the transaction ends.
select schedule, id, status < {PROCESSING} and token = 0 as waiting from demora.jobs
where schedule is not null and schedule = any(:names::text[]) and status < {COMPLETED} order by seq for update

-- name: record_fire_times
-- With :refill a fire time that was recorded without a job gets one. No row is returned for a fire time whose record stays.
with {clock}
insert into demora.schedule_slots (schedule, slot_at, outcome, decided_at, job_id)
select schedule, slot_at, outcome, wall, job_id
from clock, unnest(:schedules::text[], :fire_times::bigint[], :outcomes::text[], :ids::uuid[]) as new (schedule, slot_at, outcome, job_id)
order by schedule, slot_at
on conflict (schedule, slot_at) do update set outcome = excluded.outcome, decided_at = excluded.decided_at,
    job_id = excluded.job_id
    where :refill::boolean and schedule_slots.job_id is null
returning schedule, slot_at, xmax = 0 as new

-- name: replace_fire_times
update demora.schedule_slots set outcome = 'replaced' from demora.jobs
where jobs.id = any(:ids::uuid[]) and schedule_slots.schedule = jobs.schedule and schedule_slots.slot_at = jobs.slot_at

-- name: fired
with {clock}
update demora.schedules set revision = revision + 1, decided_to = new.decided_to, next_at = new.next_at, kept_at = new.kept_at,
    run_count = run_count + added, records = records + recorded,
    last_run_at = case when job_id is null then last_run_at else wall end, last_job_id = coalesce(job_id, last_job_id)
from clock, unnest(:names::text[], :decided_tos::bigint[], :next_ats::bigint[], :kept_ats::bigint[], :added::int[],
                   :recorded::int[], :job_ids::uuid[]) as new (name, decided_to, next_at, kept_at, added, recorded, job_id)
where schedules.name = new.name
returning case when records > :most::int then schedules.name end as crowded

-- name: forget_records
with beyond as materialized (
    select slot_at from demora.schedule_slots where schedule = :name order by slot_at desc limit 1 offset :kept::int
),
gone as (
    delete from demora.schedule_slots where schedule = :name and slot_at <= (select slot_at from beyond)
)
update demora.schedules set records = :kept::int, forgotten_to = slot_at from beyond where name = :name

-- name: backfilled
update demora.schedules set revision = revision + 1, run_count = run_count + :added::int, records = records + :recorded::int
where name = :name

-- name: fire_records
select schedule, slot_at, outcome, decided_at, job_id from demora.schedule_slots
where schedule = :name and (:before::bigint is null or slot_at < :before) order by slot_at desc limit :limit::int

-- name: zones
select value from demora.meta where name = 'zones'

-- name: lock_all_schedules
select {schedule_columns}, {last_status} from demora.schedules order by name for update of schedules

-- name: note_zones
insert into demora.meta (name, value) values ('zones', :zones) on conflict (name) do update set value = excluded.value

-- name: foresee
update demora.schedules set next_at = new.next_at, revision = revision + 1
from unnest(:names::text[], :next_ats::bigint[]) as new (name, next_at) where schedules.name = new.name

-- ==== api_keys ====

-- name: key_columns
id, digest, name, scopes, created_at, expires_at, revoked_at, last_used_at, namespace, limits, former_digest, former_until

-- name: add_key
with {clock}
insert into demora.api_keys (id, digest, name, scopes, created_at, expires_at, namespace, limits)
select :id::text, :digest::bytea, :name::text, :scopes::text[], wall, wall + :expires_in::bigint, :namespace::text, :limits::text
from clock
returning {key_columns}

-- name: keys
-- Returns the time also if there is no key.
with {clock}
select {key_columns}, wall from clock left join demora.api_keys on true order by created_at, id

-- name: find_key
with {clock}
select {key_columns}, wall, exists (select from demora.api_keys) as any from clock left join demora.api_keys on id = :id

-- name: revoke_key
with {clock}
update demora.api_keys set revoked_at = coalesce(revoked_at, wall) from clock where id = :id
returning {key_columns}

-- name: rotate_key
-- A second try finds its own secret, and keeps the one before that. Sessions end with the secret that opened them.
with {clock},
rotated as (
    update demora.api_keys set digest = :digest,
        former_digest = case when digest = :digest then former_digest when :overlap::bigint is not null then digest end,
        former_until = wall + :overlap::bigint, expires_at = coalesce(wall + :expires_in::bigint, expires_at)
    from clock where id = :id and revoked_at is null and (expires_at is null or expires_at > wall)
    returning {key_columns}
),
ended as (
    update demora.sessions set expires_at = least(expires_at, wall + coalesce(:overlap::bigint, 0))
    from clock where key_id = any(array(select id from rotated))
)
select {key_columns} from rotated

-- name: limit_key
update demora.api_keys set limits = :limits where id = :id
returning {key_columns}

-- name: forget_key
with {clock},
forgotten as (
    delete from demora.api_keys using clock where id = :id and (revoked_at is not null or expires_at <= wall) returning id
),
ended as (delete from demora.sessions where key_id = any(array(select id from forgotten)))
select id from forgotten

-- name: forget_names
-- Runs after `forget_key`, so that it also sees the names of a call that had locked the row of the key.
delete from demora.key_names where key_id = :id

-- name: lock_key
select id from demora.api_keys where id = :id for update

-- name: name_for_key
insert into demora.key_names (key_id, kind, name)
select :id::text, kind, name from unnest(:kinds::text[], :names::text[]) as new (kind, name)
on conflict do nothing
returning kind

-- name: names_of_key
select kind, count(*) as count from demora.key_names where key_id = :id group by kind

-- name: waiting_for_key
select count(*) as count from (
    select from demora.jobs where status < {PROCESSING} and submitter is not null and submitter = :id limit :most
) as waiting

-- name: use_key
with {clock}
update demora.api_keys set last_used_at = wall from clock
where id = :id and (last_used_at is null or last_used_at <= wall - :within::bigint)
returning id

-- name: open_session
-- A second try finds its own session.
with {clock},
expired as (delete from demora.sessions using clock where expires_at <= wall)
insert into demora.sessions (digest, key_id, expires_at)
select :digest::bytea, :key_id::text, wall + :expires_in::bigint from clock
on conflict do nothing

-- name: find_sessions
-- Returns the time also if there is no session.
with {clock},
found as (select digest as session, key_id from demora.sessions, clock where digest = any(:digests) and expires_at > wall)
select {key_columns}, session, wall, exists (select from demora.api_keys) as any
from clock left join (found join demora.api_keys on id = key_id) on true

-- name: end_session
delete from demora.sessions where digest = :digest returning digest

-- ==== webhooks ====

-- name: hooked
-- Whether a job has a webhook: its own, or that of its queue. A plan cannot turn this subquery into one that reads all queues.
(jobs.webhook_url is not null
    or coalesce((select queues.webhook_url is not null from demora.queues where queues.name = jobs.queue limit 1), false))

-- name: ended
-- What deliveries say of jobs that ended; no row for a job without a webhook.
select id, type, generation, status, completed_at, token - credits as attempts,
    coalesce(jobs.webhook_url, queues.webhook_url) as webhook_url, webhook_on_cancel, result, error, schedule, slot_at
from demora.jobs left join demora.queues on queues.name = queue
where id = any(:ids::uuid[]) and status + 0 > {PROCESSING}
    and coalesce(jobs.webhook_url, queues.webhook_url) is not null order by seq + 0

-- name: deliveries
select {job_columns}, null as log from demora.jobs where cause = :cause order by id

-- name: add_secret
with {clock},
ended as (update demora.webhook_secrets set ends_at = wall + :others_end_in::bigint
          from clock where ends_at is null and :others_end_in::bigint is not null and id <> :id)
insert into demora.webhook_secrets (id, secret, created_at) select :id::text, :secret::bytea, wall from clock
on conflict (id) do update set secret = excluded.secret
returning created_at

-- name: ensure_secret
-- A second try finds the secret of the first one.
with {clock}
insert into demora.webhook_secrets as first (id, secret, created_at) select :id::text, :secret::bytea, wall from clock
where not exists (select from demora.webhook_secrets where (ends_at is null or ends_at > wall) and secret <> :secret::bytea)
on conflict (id) do update set secret = excluded.secret, created_at = excluded.created_at, ends_at = null
    where first.ends_at <= excluded.created_at or first.secret = excluded.secret
returning created_at

-- name: forget_secret
delete from demora.webhook_secrets where id = :id returning id

-- name: secrets
with {clock}
select id, secret, created_at, ends_at, wall from clock left join demora.webhook_secrets on true order by created_at desc, id

-- name: find_disabled
select url, reason, disabled_at from demora.disabled_webhooks where url = :url

-- name: disable
with {clock}
insert into demora.disabled_webhooks (url, reason, disabled_at) select :url::text, :reason::text, wall from clock
on conflict do nothing

-- name: enable
delete from demora.disabled_webhooks where url = :url returning url

-- name: disabled
select url, reason, disabled_at from demora.disabled_webhooks order by disabled_at, url

-- ==== events ====

-- name: event_columns
id, name, type, queue, status, tags, token - credits, token, due_at

-- name: snapshot
-- Which transactions have ended. With too many running ones in between, all that are newer than the oldest of these count as
-- running.
case when (select count(*) from pg_snapshot_xip(pg_current_snapshot())) <= :most::int then pg_current_snapshot()::text
    else pg_snapshot_xmin(pg_current_snapshot())::text || ':' || pg_snapshot_xmin(pg_current_snapshot())::text || ':' end

-- name: begin_events
-- Returns the transaction if it is the first.
insert into demora.meta (name, value) values ('settled', '') on conflict do nothing returning pg_current_xact_id()::text as number

-- name: has_ended
-- Whether all transactions up to this one have ended.
select pg_snapshot_xmin(pg_current_snapshot()) > :number::text::xid8 as ended

-- name: settled_position
select {snapshot} as position

-- name: settled_since
-- One page of the jobs that were settled by transactions that the snapshot :since does not see, in the order of their
-- numbers. `known` is false if the snapshot is ahead of this server: it comes from another server, or was lost in a crash. Rows
-- that were copied from another server may carry numbers that are ahead of this one: they count as old.
with here as materialized (
    select {snapshot} as position, pg_snapshot_xmax(coalesce(:until::text::pg_snapshot, pg_current_snapshot())) as ahead,
        pg_snapshot_xmax(:since::text::pg_snapshot) <= pg_snapshot_xmax(pg_current_snapshot()) as known
),
found as (
    (
        select settled, seq from demora.jobs
        where settled is not null and settled >= pg_snapshot_xmax(:since::text::pg_snapshot)
            and settled < (select ahead from here) and (settled, seq) > (:settled::text::xid8, :seq::bigint)
            and (status > {PROCESSING} or status = {RETRYING})
        order by settled, seq limit :limit::int
    )
    union all
    (
        select scan.settled, scan.seq from pg_snapshot_xip(:since::text::pg_snapshot) as running, lateral (
            select settled, seq from demora.jobs
            where settled is not null and settled = running and (settled, seq) > (:settled::text::xid8, :seq::bigint)
                and (status > {PROCESSING} or status = {RETRYING})
            order by settled, seq limit :limit::int
        ) as scan
    )
    order by settled, seq limit :limit::int
)
select here.position, here.known, found.settled::text as settled, found.seq, job.*
from here left join found on true left join lateral (
    select {event_columns},
        coalesce(completed_at, (select ended_at from demora.attempts where job_id = jobs.id and token = jobs.token)),
        worker_id, progress, progress_message, left(error, 1000)
    from demora.jobs where jobs.seq = found.seq
) as job on true
order by found.settled, found.seq

-- name: added_since
-- The jobs after a number, the last number, and which transactions run: one that began before may still add smaller numbers.
with here as materialized (
    select coalesce((select seq from demora.jobs order by seq desc limit 1), 0) as last,
        pg_snapshot_xmin(pg_current_snapshot())::text as oldest, pg_snapshot_xmax(pg_current_snapshot())::text as ahead
)
select here.*, job.* from here left join lateral (
    select seq, {event_columns}, created_at, null as worker_id, null as progress, null as progress_message, null as error
    from demora.jobs where seq > :seq::bigint and :seq >= 0 order by seq limit :limit::int
) as job on true

-- name: running_jobs
with {clock}
select wall, job.* from clock left join lateral (
    select {event_columns}, coalesce(started_at, claimed_at), worker_id, progress, progress_message, null as error
    from demora.jobs where status = {PROCESSING} order by lease_until limit :limit::int
) as job on true

-- name: paused_queues
select name, paused_at, pause_reason, paused_by from demora.queues where paused_at is not null

-- name: paced_since
select seq, queue, at, by, pace, follows from demora.pace_changes where seq > :seq::bigint order by seq

-- name: last_paced
select coalesce(max(seq), 0) as seq from demora.pace_changes

-- ==== diagnostics ====

-- name: held_lanes
-- Waiting jobs counted by lane, and whether a pace holds them.
lane_count left join demora.paces as own on own.queue = lane_count.queue
    left join demora.paces as policy on policy.queue = case when {follows} then '*' else lane_count.queue end,
    lateral (select lane = any(coalesce(policy.lanes, '{}')) as held) as pace

-- name: overview_waiting
-- Jobs that a pace holds count as delayed, and not as those that wait longest.
select lane_count.queue, type, coalesce(sum(due) filter (where not held), 0)::bigint,
    sum(case when held then jobs else jobs - due end)::bigint, coalesce(min(first) filter (where not held), min(first))
from (
    select queue, type, lane, count(*) as jobs, count(*) filter (where due_at <= :wall::bigint) as due, min(due_at) as first
    from demora.jobs where status < {PROCESSING} group by queue, type, lane
) as {held_lanes}
group by lane_count.queue, type

-- name: overview_lapsed
select count(*) as lapsed, min(lease_until) as first from demora.jobs where status = {PROCESSING}
    and lease_until <= :wall::bigint

-- name: overview_ahead
select count(*) as ahead, count(*) filter (where status < {PROCESSING}) as waiting, max(created_at) as latest
from demora.jobs where created_at > :wall::bigint

-- name: overview_ahead_waiting
select count(*) as ahead, count(*) as waiting, max(created_at) as latest
from demora.jobs where status < {PROCESSING} and created_at > :wall::bigint

-- name: running
select worker_id, type, count(*) as jobs, (array_agg(id order by coalesce(started_at, claimed_at), seq))[1] as longest,
    min(coalesce(started_at, claimed_at)) as since, max(coalesce(started_at, claimed_at)) as latest
from demora.jobs where status = {PROCESSING} and lease_until > :wall::bigint group by worker_id, type

-- name: sizes
-- Every table of the schema with its indexes and long values.
select relname::text as name, pg_total_relation_size(oid) as bytes from pg_class
where relkind = 'r' and relnamespace = (select relnamespace from pg_class where oid = 'demora.jobs'::regclass)
order by bytes desc, name

-- name: coming
with {clock}
select ((due_at - wall) * :steps::bigint / :until::bigint)::int as step, count(*)::bigint as jobs
from clock, lateral (
    select due_at from demora.jobs where status < {PROCESSING} and due_at > wall and due_at < wall + :until limit 1000000
) as coming
group by 1

-- name: dead_letters
with {clock},
newest as (
    select queue, type, coalesce({error_class}, '') as error, completed_at, id::text as id
    from demora.jobs where status = {FAILED} order by jobs.id desc limit :limit::int
),
aged as (
    select newest.*, (select count(*)::int from unnest(:ages::bigint[]) as age where completed_at <= wall - age) as band
    from clock, newest
)
select queue, type, error, band, count(*), min(completed_at), max(completed_at), max(id) from aged
group by queue, type, error, band

-- name: activity_mark
select coalesce(max(seq), 0) as mark from demora.jobs

-- name: activity_added
select queue, count(*) from demora.jobs where seq > :mark::bigint group by queue

-- name: activity_running
select worker_id, count(*) from demora.jobs where status = {PROCESSING} group by worker_id

-- name: activity_due
select lane_count.queue, min(first) from (
    select queue, lane, min(due_at) as first from demora.jobs where status < {PROCESSING}
        and due_at <= :wall::bigint group by queue, lane
) as {held_lanes}
where not held
group by lane_count.queue

-- ==== statistics ====

-- name: statistics_since
select width, at, queue, type, tally from demora.statistics
where width = any(:widths::bigint[]) and at >= :since::bigint and queue <> ''

-- name: tallies_since
select {tally_columns} from demora.tallies where at >= :since::bigint

-- name: tally_columns
at, queue, type, completed, failed, retried, cancelled, returned, released, realtime, delayed, run, held,
    latest_realtime, latest_delayed, longest, longest_held

-- name: merges_alone
select pg_try_advisory_xact_lock(hashtext(:what::text)) as alone

-- name: take_tallies
delete from demora.tallies where (at, queue, type, process) in (
    select at, queue, type, process from demora.tallies where at < :before::bigint order by at limit :limit::int for update
)
returning {tally_columns}

-- name: take_statistics
delete from demora.statistics where (width, at, queue, type) in (
    select width, at, queue, type from demora.statistics where width = :width::bigint and at < :before::bigint
    order by at limit :limit::int
)
returning width, at, queue, type, tally

-- name: statistics_names
-- The names in those of these windows that have :enough of them or more.
select width, at, queue, type from demora.statistics
where (width, at) in (
    select width, at from demora.statistics join unnest(:widths::bigint[], :ats::bigint[]) as asked (width, at)
        using (width, at)
    group by width, at having count(*) >= :enough::int
)

-- name: statistics_of
select width, at, queue, type, tally from demora.statistics join
    unnest(:widths::bigint[], :ats::bigint[], :queues::text[], :types::text[]) as asked (width, at, queue, type)
    using (width, at, queue, type)

-- name: keep_statistics
insert into demora.statistics (width, at, queue, type, tally)
select * from unnest(:widths::bigint[], :ats::bigint[], :queues::text[], :types::text[], :tallies::text[])
on conflict (width, at, queue, type) do update set tally = excluded.tally

-- name: forget_statistics
delete from demora.statistics where width = any(:widths::bigint[]) and at < :before::bigint

-- name: mark_sampled
insert into demora.statistics (width, at, queue, type, tally) values (:width, :at, '', '', :tally)
on conflict do nothing returning width

-- name: count_added
select (select count(*) from demora.jobs where id >= first and id < next) as added
from unnest(:firsts::uuid[], :nexts::uuid[]) with ordinality as asked (first, next, number) order by number

-- ==== audit ====

-- name: end_audit
drop trigger if exists audit_added on demora.jobs;
drop trigger if exists audit_moved on demora.jobs;
drop trigger if exists audit_removed on demora.jobs;
delete from demora.meta where name = 'audit';
truncate demora.events restart identity

-- name: audited
select value from demora.meta where name = 'audit'

-- name: unsound
-- Constraints and indexes that the database itself marks as invalid.
select 'constraint ' || conname as name from pg_constraint where connamespace = :schema::text::regnamespace
    and not convalidated
union all
select 'index ' || relname from pg_index join pg_class on oid = indexrelid
where relnamespace = :schema::text::regnamespace and not (indisvalid and indisready)

-- name: events
select seq, at, job_id, kind, wrote, old_status, status, old_token, token,
    coalesce(credits, 0), coalesce(retries, 0), coalesce(generation, 1), coalesce(max_retries, 0), queue,
    lane % {PARKED}, rank, coalesce(due_at, 0), worker_id, old_lease_until, lease_until, wished, error, expires_at, unique_key
from demora.events where seq > :after order by seq

-- name: job_facts
select id, status, queue, token, token - credits, retries, generation, max_retries, created_at, due_at, lease_until,
    completed_at, worker_id, cancel_requested_at is not null, error,
    array(select token from demora.attempts where job_id = jobs.id order by token),
    case when cause is null then {hooked} else webhook_url is not null end, webhook_on_cancel, cause,
    lane % {PARKED}, schedule, slot_at
from demora.jobs order by seq

-- name: fire_facts
select schedule, slot_at, outcome, job_id from demora.schedule_slots

-- name: key_facts
select scope, key, job_id, created_at, expires_at from demora.idempotency_keys

-- name: orphan_attempts
select distinct job_id from demora.attempts where job_id not in (select id from demora.jobs)

-- ==== line_feed ====

-- name: name_line
insert into demora.meta (name, value) values ('line_database', :database), ('line_epoch', '0'), ('line_run', '')
on conflict do nothing

-- name: line_record
with {clock}
select us, (select value from demora.meta where name = 'line_database') as database,
    (select value::int from demora.meta where name = 'line_epoch') as epoch,
    (select value from demora.meta where name = 'line_run') as run
from clock

-- name: bump_line
with locked as (select name from demora.meta where name = 'line_epoch' and value = :expected::text for update)
update demora.meta set value = case name when 'line_epoch' then :epoch::text else :run::text end
where name in ('line_epoch', 'line_run') and exists (select from locked)

-- name: claim_by_ids
-- Lease the jobs that a line handed out, if they still wait in that queue and are due; locked rows are skipped.
with recursive {clock},
parked_head as (
    select known.type, first.*
    from unnest(coalesce(:types::text[], array(select distinct type from demora.jobs where {parked}))) as known (type), lateral (
        select queue, lane, rank, due_at, seq from demora.jobs where {parked} and type = known.type
        order by queue, lane, rank, due_at, seq limit 1
    ) as first
    where (select type from demora.jobs where {parked} order by type limit 1) is not null
    union all
    {next_parked}
),
request as (select * from unnest(:ids::uuid[], :queues::text[]) with ordinality as request (id, queue, number)),
restricted as materialized (
    select head.queue as name, paused_at is not null as paused, coalesce(policy.lanes, '{}') as held
    from (select distinct queue from request) as head
        {rules_of_queue}
    where paused_at is not null or policy.lanes is not null
),
chosen as materialized (
    select 0 as turn, number as place, job.* from clock, request, lateral (
        select {chosen} from demora.jobs
        where jobs.id = request.id and jobs.queue = request.queue and status + 0 < {PROCESSING} and due_at <= wall
            and {of_types}
            and not exists (select from restricted where name = jobs.queue and (paused or lane = any(held)))
        for update of jobs skip locked
    ) as job
),
{leasing},
summary as materialized (
    select {summary}, null::bigint as next_due,
        (
            select min(parked_head.due_at) from parked_head
            where :served::text[] is null or parked_head.queue = any(:served::text[])
        ) as parked_due
    from clock
)
select summary.*, taken.* from summary left join taken on true order by place

-- name: row_places
select id, queue, lane, rank, due_at, status from demora.jobs where id = any(:ids::uuid[])

-- name: position
-- The last transaction that moved a waiting job, and the transactions before it that have not ended yet.
select coalesce(seen, '0')::text as seen,
    array(select xid::text from pg_snapshot_xip(pg_current_snapshot()) as xid where xid < seen) as running
from (
    select (select moved from demora.jobs where status < {PROCESSING} and moved is not null order by moved desc
        limit 1) as seen
) as last

-- name: moved
-- One page of the jobs that moved into waiting since a position, and the position of this read. `known` is false if the given
-- position is ahead of this server: it comes from another server, or was lost in a crash.
with {clock},
last as materialized (
    select greatest(
        (select moved from demora.jobs where status < {PROCESSING} and moved is not null order by moved desc
            limit 1), :seen::text::xid8
    ) as seen
),
here as materialized (
    select seen::text as seen, :seen::text::xid8 < pg_snapshot_xmax(pg_current_snapshot()) as known,
        array(select xid::text from pg_snapshot_xip(pg_current_snapshot()) as xid where xid < seen) as running
    from last
),
found as (
    select scan.* from clock, lateral (
        select id, queue, lane, rank, due_at, moved, seq from demora.jobs
        where status < {PROCESSING} and moved > :seen::text::xid8 and due_at <= wall + :within::bigint
            and (moved, seq) > (:moved::text::xid8, :seq::bigint) and lane < {PARKED}
        order by moved, seq limit :limit::int
    ) as scan
    union all
    select scan.* from clock, unnest(:running::text[]) as running, lateral (
        select id, queue, lane, rank, due_at, moved, seq from demora.jobs
        where status < {PROCESSING} and moved = running::xid8 and due_at <= wall + :within::bigint
            and (moved, seq) > (:moved::text::xid8, :seq::bigint) and lane < {PARKED}
        order by seq limit :limit::int
    ) as scan
    order by moved, seq limit :limit::int
)
select known, here.seen, here.running, id, queue, lane, rank, due_at, found.moved::text as moved, seq
from here left join found on true
order by found.moved, seq

-- name: walk
-- One page, by the index that a claim reads.
with recursive {clock},
head as (
    (
        select queue, lane, rank from demora.jobs
        where status < {PROCESSING} and (queue, lane, rank) >= (:queue::text, :lane::smallint, :rank::smallint)
        order by queue, lane, rank limit 1
    )
    union all
    select next.queue, next.lane, next.rank
    from head, lateral (
        select queue, lane, rank from demora.jobs
        where status < {PROCESSING} and (queue, lane, rank) > (head.queue, head.lane, head.rank)
        order by queue, lane, rank limit 1
    ) as next
)
select scan.* from clock, head, lateral (
    select id, queue, lane, rank, due_at, seq from demora.jobs
    where status < {PROCESSING} and queue = head.queue and lane = head.lane and rank = head.rank
        and due_at <= wall + :within::bigint and head.lane < {PARKED}
        and (due_at, seq) > (
            case when (head.queue, head.lane, head.rank) = (:queue::text, :lane::smallint, :rank::smallint)
                then :due_at::bigint else :first::bigint end,
            case when (head.queue, head.lane, head.rank) = (:queue, :lane, :rank) then :seq::bigint else 0 end
        )
    order by due_at, seq limit :limit::int
) as scan
order by queue, lane, rank, due_at, seq limit :limit::int

-- name: arrangements
-- Also `*`, if there ever was a pace of all queues.
select name, step, strict, head_start, paused_at, coalesce(policy.lanes, '{}') as held
from demora.queues left join demora.paces as own on own.queue = name
    left join demora.paces as policy on policy.queue = case when {follows} then '*' else name end
where changed_at is not null
union all
select queue, null, null, null, null, coalesce(lanes, '{}') from demora.paces where queue = '*'
