-- The statements of the PostgreSQL engine, in port order.
--
-- `demora.` stands for the schema in the settings, {name} for the block of that name.
-- The loader replaces a status by its number, as in core/states.py:
--   waiting  {PENDING} 0, {QUEUED} 1, {RETRYING} 2       status < {PROCESSING}
--   running  {PROCESSING} 3                              status = {PROCESSING}
--   ended    {COMPLETED} 4, {FAILED} 5, {CANCELLED} 6    status > {PROCESSING}
--
-- Locks: a statement that writes to several jobs first locks them in the order of `seq`, so that writers cannot deadlock. It
-- decides by the rows as they are once they are locked.
--
-- Plans: the server keeps a plan that it may have made for an empty table. `status + 0` and `seq + 0` keep such a plan from
-- walking the index of all waiting jobs to find a row by its id. `= any(array(…))` and `(select wall from clock)` keep it from
-- reading a whole table for a few rows.

-- name: clock
-- The time of this statement, read once; the triggers of an audit read it from the setting. Only tests set :clock.
clock as materialized (
    select us, set_config('demora_clock.wall', (us / 1000)::text, true)::bigint as wall
    from (select coalesce(:clock::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as us) as read
)

-- name: move
-- The transaction in which a row moves into waiting; null while there is no line.
case when :lined::boolean then pg_current_xact_id() end

-- name: now
select coalesce(:clock::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as us

-- name: place
-- The unique numbers of this server and of this database on it.
select system_identifier as server, oid::bigint as database, datname as name
from pg_control_system(), pg_database where datname = current_database()

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

-- name: take_keys
-- Take keys that are new or have expired; the others stay locked until the end of the transaction.
with {clock}
insert into demora.idempotency_keys (scope, key, request_hash, job_id, created_at, scheduled_at, expires_at)
select scope, key, request_hash, id, wall, greatest(coalesce(at, wall + delay, wall), wall), wall + kept
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
-- What the jobs of a call have in common.
kind as materialized (
    select number, new->>0 as type, new->>1 as name, new->>2 as queue, (new->>3)::smallint as rank, wall,
        (new->>4)::int as max_retries, (new->>5)::bigint as retry_delay, (new->>6)::bigint as timeout, new->>7 as tags,
        new->>8 as webhook_url, coalesce((new->>9)::bigint, wall + (new->>10)::bigint) as expires_at,
        new->>11 as unique_key, (new->>12)::boolean as webhook_on_cancel, (new->>13)::uuid as cause,
        new->>14 as namespace, new->>15 as submitter
    from clock, jsonb_array_elements(:kinds::jsonb) with ordinality as given (new, number)
)

-- name: add
-- Returns when the jobs were added; the ids of the new ones if some existed already; and whether to wake waiters: because a
-- job is ready or the first of its queue, lane and rank, and because a job expires first.
with {clock},
{kinds},
request as materialized (
    select given.*, kind.*, greatest(coalesce(at, wall + delay, wall), wall) as due_at
    from unnest(:ids::uuid[], :payloads::text[], :kinds_of::int[], :ats::bigint[], :delays::bigint[]) with ordinality
        as given (id, payload, kind, at, delay, place) join kind on kind.number = coalesce(given.kind, 1)
),
added as (
    insert into demora.jobs (id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, expires_at,
                             max_retries, retry_delay, timeout, payload, tags, webhook_url, unique_key, webhook_on_cancel,
                             cause, namespace, submitter, moved)
    select id, type, name, queue, :queued::smallint,
        case when due_at > wall then :scheduled::smallint else :realtime::smallint end, rank, due_at,
        wall, case when due_at > wall then due_at end, expires_at, max_retries, retry_delay, timeout, payload, tags, webhook_url,
        unique_key, webhook_on_cancel, cause, namespace, submitter, {move}
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
            select from head where lane = :realtime::smallint or not exists (
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

-- name: add_one
-- A job that is due at once and never expires, in a queue that is on record. No row if its id exists already.
with {clock}
insert into demora.jobs (id, type, name, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, timeout,
                         payload, tags, webhook_url, webhook_on_cancel, cause, namespace, submitter, moved)
select :id::uuid, :type::text, :name::text, :queue::text, :queued::smallint, :realtime::smallint, :rank::smallint, wall, wall,
    :max_retries::int, :retry_delay::bigint, :timeout::bigint, :payload::text, :tags::text,
    :webhook_url::text, :webhook_on_cancel::boolean,
    :cause::uuid, :namespace::text, :submitter::text, {move}
from clock
on conflict do nothing
returning created_at

-- name: unique_waiting
select id, created_at, coalesce(scheduled_at, created_at) as scheduled_at, queue from demora.jobs
where unique_key = :key and type = :type and namespace = :namespace and status < {PROCESSING} and token = 0
    and generation = 1
for update

-- name: replace_waiting
with {clock},
request as (select wall, greatest(coalesce(:at::bigint, wall + :delay::bigint, wall), wall) as due_at from clock)
update demora.jobs set name = :name, queue = :queue, rank = :rank,
    lane = case when due > wall then :scheduled::smallint else :realtime::smallint end,
    due_at = due, scheduled_at = due, expires_at = coalesce(:expiry::bigint, wall + :expires_in::bigint),
    max_retries = :max_retries, retry_delay = :retry_delay, timeout = :timeout, payload = :payload, tags = :tags,
    webhook_url = :webhook_url,
    webhook_on_cancel = :webhook_on_cancel, cause = :cause, submitter = :submitter, moved = {move}
from (select wall, due_at as due from request) as request
where id = :id
returning due_at

-- name: claim
-- Merges a short scan for each queue, lane and rank with waiting jobs; a skip scan of the index finds these, so that rows
-- behind the first one cost nothing. It reads more rows than are wanted, since other workers may be claiming the first ones,
-- and skips locked rows. `found` is the number of rows that it read.
with recursive {clock},
head as (
    (select queue, lane, rank from demora.jobs where status < {PROCESSING} order by queue, lane, rank limit 1)
    union all
    select next.queue, next.lane, next.rank
    from head, lateral (
        select queue, lane, rank from demora.jobs
        where status < {PROCESSING} and (queue, lane, rank) > (head.queue, head.lane, head.rank)
        order by queue, lane, rank limit 1
    ) as next
),
served as materialized (
    select head.queue, lane, rank, (coalesce(offsets, :usual::bigint[]))[lane * :ranks::int + rank + 1] as extra,
        case when :in_turn::boolean then array_position(:queues::text[], head.queue) else 0 end as turn,
        lane = any(coalesce(policy.lanes, '{}')) as held, own.state
    from head left join demora.queues on name = head.queue left join demora.paces as own on own.queue = head.queue
        left join demora.paces as policy on policy.queue = case when {follows} then '*' else head.queue end
    where paused_at is null and (:queues::text[] is null or head.queue = any(:queues::text[]))
),
found as materialized (
    select turn, scan.due_at + extra as place, scan.seq
    from clock, served, lateral (
        select due_at, seq from demora.jobs
        where status < {PROCESSING} and queue = served.queue and lane = served.lane and rank = served.rank and due_at <= wall
        order by due_at, seq limit :window::int
    ) as scan
    where not held
    order by turn, place, seq limit :window::int
),
chosen as materialized (
    select turn, place, {chosen}
    from clock, found join demora.jobs using (seq)
    where status + 0 < {PROCESSING} and due_at <= wall
    order by turn, place, seq limit :limit::int
    for update of jobs skip locked
),
{leasing},
sight as materialized (
    select {sight}, (select count(*) from found) as found,
        (
            select min(next.due_at) from served, lateral (
                select due_at from demora.jobs
                where status < {PROCESSING} and queue = served.queue and lane = served.lane and rank = served.rank
                    and due_at > wall
                order by due_at limit 1
            ) as next
            where not held
        ) as next_due,
        (
            select json_agg(json_build_array(served.queue, state, first.due_at)) from served, lateral (
                select due_at from demora.jobs
                where status < {PROCESSING} and queue = served.queue and lane = served.lane and rank = served.rank
                order by due_at limit 1
            ) as first
            where held
        ) as held
    from clock
)
select sight.*, taken.* from sight left join taken on true order by turn, place, seq

-- name: follows
-- Whether a queue keeps to the pace of `*`; `own` is its row among the paces, if it has one.
own.follows is not false

-- name: chosen
-- What the statement remembers of a job that it chose and locked. It finds the row again by its ctid; a row that has changed
-- since the statement began is skipped.
jobs.seq, jobs.ctid as row, token = credits and coalesce(expires_at <= wall, false) as expired, {hooked} as hooked

-- name: leasing
-- Lease the chosen jobs; those that expired are ended instead, unless they have a webhook.
expired as (
    update demora.jobs set status = :cancelled, completed_at = wall, error = :expired
    from clock, chosen where jobs.ctid = chosen.row and chosen.expired and not chosen.hooked
    returning 1
),
taken as (
    update demora.jobs set status = :processing, token = token + 1, worker_id = :worker_id, claim = :claim,
        lease_until = wall + :lease::bigint, claimed_at = wall, started_at = null, progress = null, progress_message = null
    from clock, chosen where jobs.ctid = chosen.row and not chosen.expired
    returning turn, place, jobs.seq, id, token, type, name, queue, rank, payload, credits, strays, max_retries, retry_delay,
        timeout, coalesce(scheduled_at, created_at) as scheduled_at, tags, schedule, slot_at
)

-- name: sight
-- What a worker that leases jobs also wants to know.
us, wall, (select count(*) from expired) as gone, (select count(*) from chosen where expired and hooked) as expired_hooked,
    (select min(lease_until) from demora.jobs where status = {PROCESSING}) as next_lapse,
    (
        select json_agg(json_build_array(id, token, credits, strays, max_retries, retry_delay, worker_id, type))
        from (
            select * from demora.jobs where status = {PROCESSING} and lease_until <= wall order by lease_until
                limit :lapsed::int
        ) as run_out
    ) as lapsed

-- name: claimed
-- The jobs that the first try of a call leased.
select id, token, type, name, queue, rank, payload, credits, strays, max_retries, retry_delay, timeout,
    coalesce(scheduled_at, created_at) as scheduled_at, tags, schedule, slot_at
from demora.jobs where status = {PROCESSING} and claim = :claim and worker_id = :worker_id order by seq

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
held as materialized (
    select request.*, job.* from {in_order} as request, lateral (
        select seq, token as current, status, lease_until, cancel_requested_at is not null as cancel_requested
        from demora.jobs where jobs.seq = request.its_seq for update
    ) as job
),
renewed as (
    update demora.jobs set lease_until = wall + :lease::bigint,
        started_at = coalesce(started_at, greatest(claimed_at, wall - ran)),
        progress = coalesce(held.progress, jobs.progress), progress_message = coalesce(message, progress_message)
    from clock, held
    where jobs.seq = held.seq and held.token = current and held.status = {PROCESSING} and held.lease_until > wall
    returning number, jobs.id, jobs.token, jobs.lease_until, cancel_requested
),
logged as (
    insert into demora.logs (job_id, at, line)
    select held.id, wall - log.ran + after, line
    from clock, unnest(:log_ids::uuid[], :log_tokens::int[], :log_rans::bigint[], :log_afters::bigint[], :lines::text[])
        with ordinality as log (id, token, ran, after, line, place)
        join held using (id, token) left join renewed using (number)
    where renewed.number is not null or (held.token = current and held.status <> {PROCESSING})
    order by place
),
traced as (
    insert into demora.events (at, job_id, kind, wrote, old_status, old_token, token, old_lease_until)
    select wall, request.id, case when renewed.number is null then 'stale' else 'accepted' end, 'renew',
        status, current, request.token, coalesce(renewed.lease_until, held.lease_until)
    from clock, request left join held using (number) left join renewed using (number)
    where request.id is not null and exists (select from demora.meta where name = 'audit')
    order by number
)
select id, token, cancel_requested from renewed

-- name: lease_status
with {clock}
select id, token, cancel_requested_at is not null as cancel_requested from clock, demora.jobs
where id = any(:ids::uuid[]) and status + 0 = {PROCESSING} and lease_until > wall

-- name: settle
-- A verdict that would ignore a request to cancel gives way to CANCELLED. A verdict that ends a job with a webhook is put off,
-- unless :with_deliveries says that the caller records the deliveries in the same transaction.
with {clock},
request as (
    select * from unnest(
        :ids::uuid[], :tokens::int[], :lapsed::boolean[], :statuses::smallint[], :ends::boolean[], :stands::boolean[],
        :results::text[], :errors::text[], :cancel_errors::text[], :tracebacks::text[], :delays::bigint[], :lanes::smallint[],
        :credits::int[], :retries::int[], :strays::boolean[], :rans::bigint[], :progresses::float8[], :messages::text[]
    ) with ordinality as request (id, token, lapsed, status, ends, stands, result, error, cancel_error, traceback, delay, lane,
                               credit, retry, stray, ran, progress, message, number)
),
held as materialized (
    select request.*, seq, current, old_status, lease_until, cancel_requested, cancel_requested and not stands as gives_way,
        hooked and not :with_deliveries::boolean and (ends or (cancel_requested and not stands)) as put_off
    from {in_order} as request, lateral (
        select seq, token as current, status as old_status, lease_until, cancel_requested_at is not null as cancel_requested,
            {hooked} as hooked
        from demora.jobs where jobs.seq = request.its_seq for update
    ) as job
),
moved as (
    update demora.jobs set
        status = case when gives_way then :cancelled else held.status end,
        completed_at = case when ends or gives_way then wall end,
        lease_until = null,
        result = held.result,
        error = case when gives_way then cancel_error else held.error end,
        due_at = case when gives_way then jobs.due_at else coalesce(wall + delay, jobs.due_at) end,
        lane = case when gives_way then jobs.lane else coalesce(held.lane, jobs.lane) end,
        credits = jobs.credits + credit,
        retries = jobs.retries + case when gives_way then 0 else retry end,
        strays = case when stray and not gives_way then jobs.strays + 1 else 0 end,
        started_at = case when credit = 0 then greatest(claimed_at, coalesce(started_at, wall - ran, claimed_at)) end,
        worker_id = case when credit = 0 then worker_id end,
        moved = {move},
        progress = coalesce(held.progress, jobs.progress), progress_message = coalesce(message, progress_message)
    from clock, held
    where jobs.seq = held.seq and held.token = current and old_status = {PROCESSING} and (held.lease_until <= wall) = lapsed
        and not put_off
    returning jobs.id, jobs.token, jobs.status, jobs.started_at, jobs.worker_id, jobs.error, credit, traceback,
        queue, jobs.lane, rank, jobs.due_at, number
),
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
traced as (
    insert into demora.events (at, job_id, kind, wrote, old_status, old_token, token, old_lease_until)
    select wall, request.id, case when moved.number is null then 'stale' else 'accepted' end,
        case when request.lapsed then 'lapse' else 'settle' end,
        coalesce(moved.status, old_status), current, request.token, case when moved.number is null then held.lease_until end
    from clock, request left join held using (number) left join moved using (number)
    where request.id is not null and put_off is not true and exists (select from demora.meta where name = 'audit')
    order by number
),
woken as (
    select (select array_agg(number::int) from held where put_off) as put_off,
        exists (select from moved where status > {PROCESSING}) as ended,
        exists (
            select from clock, moved where moved.status < {PROCESSING} and (moved.due_at <= wall or not exists (
                select from demora.jobs
                where status < {PROCESSING} and queue = moved.queue and lane = moved.lane and rank = moved.rank
                    and due_at <= moved.due_at
            ))
        ) as ready
)
select put_off, ended, ready, number, status from woken left join moved on true

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
held as materialized (
    select seq, id, status, status < {PROCESSING} and {hooked} and not :with_deliveries::boolean as put_off
    from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update
),
cancelled as (
    update demora.jobs set status = :cancelled, completed_at = wall, error = :error
    from clock, held where jobs.seq = held.seq and held.status < {PROCESSING} and not put_off
    returning jobs.seq
),
requested as (
    update demora.jobs set cancel_requested_at = coalesce(cancel_requested_at, wall)
    from clock, held where jobs.seq = held.seq and held.status = {PROCESSING}
    returning jobs.seq
)
select id, case when cancelled.seq is null
    then status else :cancelled::smallint end as status, status <= {PROCESSING} as did,
    cancelled.seq is not null as ended, put_off
from held left join cancelled using (seq) left join requested using (seq)

-- name: retry
with {clock},
held as materialized (select seq, id, status from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update),
retried as (
    update demora.jobs set status = :queued, lane = :lane, due_at = wall, generation = generation + 1, credits = token,
        retries = 0, strays = 0, expires_at = null, completed_at = null, started_at = null, cancel_requested_at = null,
        progress = null, progress_message = null, result = null, error = null, moved = {move}
    from clock, held where jobs.seq = held.seq and held.status = any(:from::smallint[])
    returning jobs.seq
)
select id, case when retried.seq is null then status else :queued::smallint end as status, retried.seq is not null as did
from held left join retried using (seq)

-- name: change
with {clock},
held as materialized (
    select seq, id, status, greatest(coalesce(:at::bigint, wall + :delay::bigint), wall) as due,
        :at::bigint is not null or :delay::bigint is not null as moves
    from clock, demora.jobs where id = :id for update of jobs
),
changed as (
    update demora.jobs set rank = coalesce(:rank::smallint, rank), tags = coalesce(:tags::text, tags),
        due_at = case when moves then due else due_at end, scheduled_at = case when moves then due else scheduled_at end,
        lane = case when moves then :lane else lane end, moved = {move}
    from held where jobs.seq = held.seq and held.status < {PROCESSING}
    returning jobs.seq, queue, lane, rank, due_at
)
select held.status, changed.seq is not null as did, changed.seq is not null and (changed.due_at <= wall or not exists (
    select from demora.jobs
    where status < {PROCESSING} and queue = changed.queue and lane = changed.lane and rank = changed.rank
        and due_at <= changed.due_at and jobs.seq <> changed.seq
)) as ready
from clock, held left join changed using (seq)

-- name: lock
select id, status from demora.jobs where id = any(:ids::uuid[]) order by seq + 0 for update

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
-- Lock all except the newest so many.
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
    update demora.jobs set status = :cancelled, completed_at = wall, error = :expired
    from clock where seq = any(array(select seq from due where not put_off))
    returning id
)
select (select count(*) from expired) as expired, (select array_agg(id) from expired) as ids,
    exists (select from due where put_off) as put_off

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

-- name: job
select {job_columns},
    (select json_agg(json_build_array(at, line) order by seq)::text from demora.logs where job_id = jobs.id) as log
from demora.jobs where id = :id

-- name: find
-- A page ends before it would exceed the given bytes; `matching` counts the jobs that its limit allows. PostgreSQL knows the
-- length of a text without reading it, so only the payloads and results of the page are read.
select {job_columns}, null as log, matching
from (
    select *, sum(size) over pages as bytes, row_number() over pages as place, count(*) over () as matching
    from (
{matching}
    ) as jobs
    window pages as (order by id desc)
) as jobs
where :bytes::bigint is null or place = 1 or bytes <= :bytes
order by id desc

-- name: matching
select seq, id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, expires_at, max_retries, retry_delay,
    timeout, token, credits, retries, generation, case when :with_payload::boolean
        then payload end as payload, tags, webhook_url,
    unique_key, worker_id, lease_until, started_at, completed_at, cancel_requested_at, progress, progress_message,
    case when :with_result::boolean then result else '' end as result, error, webhook_on_cancel, cause,
    schedule, slot_at,
    case when :bytes::bigint is null then 0 else case when :with_payload then octet_length(payload) else 0 end
        + case when :with_result then coalesce(octet_length(result), 0) else 0 end + coalesce(octet_length(error), 0)
        + (select coalesce(sum(coalesce(octet_length(attempts.error), 0) + coalesce(octet_length(traceback), 0)), 0)
           from demora.attempts where job_id = jobs.id) end as size
from demora.jobs /* narrowed to */ where true
    and (:after::uuid is null or id < :after)
    and (:statuses::smallint[] is null or status = any(:statuses))
    and (:queue::text is null or queue = :queue)
    and (:type::text is null or type = :type)
    and (:tag::text is null or exists (select from json_array_elements_text(tags::json) as one where one = :tag))
    and (:schedule::text is null or schedule = :schedule)
    and (:older_than::bigint is null or coalesce(completed_at, created_at) <= (select us / 1000
        from ({now}) as now) - :older_than)
order by id desc limit :limit::int

-- name: narrow_dead
where status = {FAILED}

-- name: narrow_processing
where status = {PROCESSING}

-- name: narrow_schedule
where schedule is not null

-- name: queues
-- One statement sees one snapshot: a job that moves meanwhile is counted once.
with {clock},
named as materialized (
    select name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url from demora.queues
    where name >= :first and name <= :last and (:after::text is null or name > :after) order by name limit :limit::int
),
shown as materialized (select min(name) as first, max(name) as last from named),
lane_count as (
    select queue, lane, count(*) as jobs, count(*) filter (where due_at <= wall) as due
    from clock, demora.jobs
    where status < {PROCESSING} and queue >= (select first from shown) and queue <= (select last from shown)
        group by queue, lane
),
waiting as (
    select lane_count.queue, sum(case when held then 0 else due end)::bigint as ready,
        sum(case when held then jobs else jobs - due end)::bigint as delayed
    from {held_lanes}
    group by lane_count.queue
),
processing as (select queue, count(*) as processing from demora.jobs where status = {PROCESSING} group by queue),
dead as (
    select queue, count(*) as dead from demora.jobs
    where status = {FAILED} and queue >= (select first from shown) and queue <= (select last from shown) group by queue
)
select name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url,
    coalesce(ready, 0) as ready, coalesce(delayed, 0) as delayed, coalesce(processing, 0) as processing,
    coalesce(dead, 0) as dead
from named
left join waiting on waiting.queue = name
left join processing on processing.queue = name
left join dead on dead.queue = name
order by name

-- name: queue
select name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url
from demora.queues where name = :name for update

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
returning name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url

-- name: touch_queue
with {clock}
update demora.queues set changed_at = wall from clock where name = :name

-- name: set_by_settings
select setting from demora.pace_changes where queue = :queue and setting is not null order by seq desc limit 1

-- name: lock_pace
select pace, state, follows from demora.paces where queue = :queue for update

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
        select from demora.jobs where status < {PROCESSING} and queue = any({protects}) and lane = :realtime and due_at <= wall
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
-- changing the first ones, and skips locked rows.
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
    select place, job.seq from found, lateral (
        select seq from demora.jobs
        where jobs.seq = found.seq and status < {PROCESSING} and queue = :queue and lane = any(:lanes) and due_at <= :wall
        for update skip locked
    ) as job
    limit cardinality(:release_times::bigint[])
),
numbered as (select seq, row_number() over (order by place, seq) as number from chosen),
moved as (
    update demora.jobs set lane = :released, due_at = (:release_times::bigint[])[number], moved = {move}
    from clock, numbered where jobs.seq = numbered.seq and jobs.seq = any(array(select seq from chosen))
    returning number, id, rank, due_at
),
kept as (update demora.paces set state = :after from taken where paces.queue = taken.queue)
select id, rank, due_at from moved order by number

-- name: pacings
with {clock}
select queues.name as queue, policy.pace, own.state, policy.set_at, policy.set_by, wall, held, coming, soon, first, not exists (
    select from demora.jobs where status < {PROCESSING} and queue = any({protects}) and lane = :realtime and due_at <= wall
) as quiet, {follows} as inherited
from clock, (
    select name from demora.queues where :queue::text is null union all select coalesce(:queue::text, '*')
) as queues left join demora.paces as own on own.queue = queues.name
    join demora.paces as policy on policy.queue = case when {follows} then '*' else queues.name end, lateral (
    select count(*) filter (where due_at <= wall) as held, count(*) filter (where due_at > wall) as coming,
        count(*) filter (where due_at <= wall + :hour::bigint) as soon, min(due_at) as first
    from demora.jobs where status < {PROCESSING} and queue = queues.name and lane = any(policy.lanes)
) as counts
where policy.pace is not null and (:queue::text is not null or own.queue is not null or held + coming > 0)
order by queues.name collate "C"

-- name: pace_changes
select queue, at, by, pace from demora.pace_changes where queue = :queue order by seq desc limit :limit::int

-- name: queue_as_it_is
select name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url
    from demora.queues where name = :name

-- name: count_recent
select count(*) as recent from demora.jobs
where queue = :queue and status = :completed and status > {PROCESSING} and completed_at > :since::bigint

-- name: count_before
select coalesce(sum(jobs), 0)::bigint as ahead
from unnest(:lanes::smallint[], :ranks::smallint[], :dues::bigint[]) as bound (lane, rank, due), lateral (
    select count(*) as jobs from demora.jobs
    where status < {PROCESSING} and queue = :queue and lane = bound.lane and rank = bound.rank and due_at <= :wall::bigint
        and (due_at < due or (due_at = due and seq < (select seq from demora.jobs where id = :id)))
) as counted

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
-- A second try finds its own secret, and keeps the one before that.
with {clock}
update demora.api_keys set digest = :digest,
    former_digest = case when digest = :digest then former_digest when :overlap::bigint is not null then digest end,
    former_until = wall + :overlap::bigint, expires_at = coalesce(wall + :expires_in::bigint, expires_at)
from clock where id = :id and revoked_at is null and (expires_at is null or expires_at > wall)
returning {key_columns}

-- name: limit_key
update demora.api_keys set limits = :limits where id = :id
returning {key_columns}

-- name: forget_key
with {clock},
forgotten as (
    delete from demora.api_keys using clock where id = :id and (revoked_at is not null or expires_at <= wall) returning id
),
names as (delete from demora.key_names where key_id = any(array(select id from forgotten)))
select id from forgotten

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

-- name: hooked
-- Whether a job has a webhook: its own, or that of its queue. A statement reads the queues once.
(jobs.webhook_url is not null or jobs.queue = any(array(select name from demora.queues where webhook_url is not null)))

-- name: ended
-- What deliveries say of jobs that ended; no row for a job without a webhook.
select id, type, generation, status, completed_at, token - credits as attempts,
    coalesce(jobs.webhook_url, queues.webhook_url) as webhook_url, webhook_on_cancel, result, error
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
-- Of concurrent calls one inserts the row, and the others find it in force. A second try finds the secret of the first one.
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

-- name: running
select worker_id, type, count(*) as jobs, (array_agg(id order by coalesce(started_at, claimed_at), seq))[1] as longest,
    min(coalesce(started_at, claimed_at)) as since, max(coalesce(started_at, claimed_at)) as latest
from demora.jobs where status = {PROCESSING} and lease_until > :wall::bigint group by worker_id, type

-- name: dead_letters
with {clock},
newest as (
    select queue, type, split_part(coalesce(error, ''), ':', 1) as error, completed_at, id::text as id
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
with held as (select name from demora.meta where name = 'line_epoch' and value = :expected::text for update)
update demora.meta set value = case name when 'line_epoch' then :epoch::text else :run::text end
where name in ('line_epoch', 'line_run') and exists (select from held)

-- name: draw
-- Lease the jobs that a line handed out, if they still wait in that queue and are due; locked rows are skipped.
with {clock},
request as (select * from unnest(:ids::uuid[], :queues::text[]) with ordinality as request (id, queue, number)),
barred as materialized (
    select asked.queue as name, paused_at is not null as paused, coalesce(policy.lanes, '{}') as held
    from (select distinct queue from request) as asked left join demora.queues on name = asked.queue
        left join demora.paces as own on own.queue = asked.queue
        left join demora.paces as policy on policy.queue = case when {follows} then '*' else asked.queue end
    where paused_at is not null or policy.lanes is not null
),
chosen as materialized (
    select 0 as turn, number as place, job.* from clock, request, lateral (
        select {chosen} from demora.jobs
        where jobs.id = request.id and jobs.queue = request.queue and status + 0 < {PROCESSING} and due_at <= wall
            and not exists (select from barred where name = jobs.queue and (paused or lane = any(held)))
        for update of jobs skip locked
    ) as job
),
{leasing},
sight as materialized (select {sight}, null::bigint as next_due from clock)
select sight.*, taken.* from sight left join taken on true order by place

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
            and (moved, seq) > (:moved::text::xid8, :seq::bigint)
        order by moved, seq limit :limit::int
    ) as scan
    union all
    select scan.* from clock, unnest(:running::text[]) as running, lateral (
        select id, queue, lane, rank, due_at, moved, seq from demora.jobs
        where status < {PROCESSING} and moved = running::xid8 and due_at <= wall + :within::bigint
            and (moved, seq) > (:moved::text::xid8, :seq::bigint)
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
        and due_at <= wall + :within::bigint
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

-- name: notify
select pg_notify(channel, :sender) from unnest(:channels::text[]) as channel

-- name: fence
-- End the session of a lost connection, and wait until it has ended: from then on it commits nothing.
select pg_terminate_backend(pid, :limit::bigint) from pg_stat_activity
where pid = :pid and backend_start = :started and pid <> pg_backend_pid()

-- name: only_one
select pg_advisory_xact_lock(hashtext(:what::text))

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
    coalesce(credits, 0), coalesce(retries, 0), coalesce(generation, 1), coalesce(max_retries, 0), queue, lane, rank,
    coalesce(due_at, 0), worker_id, old_lease_until, lease_until, wished, error, expires_at, unique_key
from demora.events where seq > :after order by seq

-- name: job_facts
select id, status, queue, token, token - credits, retries, generation, max_retries, created_at, due_at, lease_until,
    completed_at, worker_id, cancel_requested_at is not null, error,
    array(select token from demora.attempts where job_id = jobs.id order by token),
    case when cause is null then {hooked} else webhook_url is not null end, webhook_on_cancel, cause, lane,
    schedule, slot_at
from demora.jobs order by seq

-- name: slot_facts
select schedule, slot_at, outcome, job_id from demora.schedule_slots

-- name: key_facts
select scope, key, job_id, created_at, expires_at from demora.idempotency_keys

-- name: orphan_attempts
select distinct job_id from demora.attempts where job_id not in (select id from demora.jobs)

-- name: pace_facts
select queue, at, pace from demora.pace_changes order by seq

-- name: add_of_schedules
-- Jobs of schedules enter the scheduled lane, also if they are due at once.
with {clock},
{kinds},
request as materialized (
    select given.*, kind.*, greatest(coalesce(at, wall + delay, wall), wall) as due_at
    from unnest(:ids::uuid[], :payloads::text[], :kinds_of::int[], :ats::bigint[], :delays::bigint[], :schedules::text[],
                :slots::bigint[]) with ordinality
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
insert into demora.schedules (name, schedule, exclusive, revision, decided_to, next_at, origin, changed_by, defined, application,
                              release)
values (:name::text, :schedule::text, :exclusive::boolean, 1, :decided_to::bigint, :next_at::bigint, :origin::text, :by::text,
        :defined::text, :application::text, :release::text)
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
with slots as (delete from demora.schedule_slots where schedule = :name)
delete from demora.schedules where name = :name returning name

-- name: register_names
with {clock},
forgotten as (
    delete from demora.schedule_processes
    where registered_at <= (select wall from clock) - :within::bigint and process_id <> :process_id
        and process_id not in (select id from demora.workers)
)
insert into demora.schedule_processes (application, process_id, names, registered_at)
select :application, :process_id, :names::text, wall from clock
on conflict (application, process_id) do update set names = excluded.names, registered_at = excluded.registered_at

-- name: names_elsewhere
with {clock}
select names from clock, demora.schedule_processes join demora.workers on workers.id = process_id
where application = :application and process_id <> :process_id and heartbeat_at > wall - :within::bigint

-- name: schedules_due
-- With one row at least, which says when to look next.
with {clock},
due as materialized (
    (
        select * from demora.schedules where next_at is not null and next_at <= (select wall from clock)
        order by next_at, name limit :limit::int
    )
    union all
    (
        select * from demora.schedules
        where kept_at is not null and (next_at is null or next_at > (select wall from clock)) and not exists (
            select from demora.jobs
            where jobs.schedule is not null and jobs.schedule = schedules.name and status < {COMPLETED}
        )
        limit :limit::int
    )
),
sight as materialized (
    select us, wall, exists (select from demora.schedules where kept_at is not null) as keeps,
        (
            select next_at from demora.schedules where next_at is not null and next_at > (select wall from clock)
            order by next_at limit 1
        ) as following
    from clock
)
select us, wall, keeps, following, name, due.schedule, revision, decided_to, next_at, kept_at, waiting, claimed
from sight left join due on true left join lateral (
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

-- name: record_slots
-- With :refill a slot that was recorded without a job gets one. No row is returned for a slot whose record stays.
with {clock}
insert into demora.schedule_slots (schedule, slot_at, outcome, decided_at, job_id)
select schedule, slot_at, outcome, wall, job_id
from clock, unnest(:schedules::text[], :slots::bigint[], :outcomes::text[], :ids::uuid[]) as new (schedule, slot_at, outcome, job_id)
order by schedule, slot_at
on conflict (schedule, slot_at) do update set outcome = excluded.outcome, decided_at = excluded.decided_at,
    job_id = excluded.job_id
    where :refill::boolean and schedule_slots.job_id is null
returning schedule, slot_at, xmax = 0 as new

-- name: replace_slots
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

-- name: forget_slots
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

-- name: slot_records
select schedule, slot_at, outcome, decided_at, job_id from demora.schedule_slots
where schedule = :name and (:before::bigint is null or slot_at < :before) order by slot_at desc limit :limit::int

-- name: zones
select value from demora.meta where name = 'zones'

-- name: note_zones
insert into demora.meta (name, value) values ('zones', :zones) on conflict (name) do update set value = excluded.value

-- name: foresee
update demora.schedules set next_at = new.next_at, revision = revision + 1
from unnest(:names::text[], :next_ats::bigint[]) as new (name, next_at) where schedules.name = new.name
