-- The statements of the SQLite engine, in port order: those of the verbs of `Store`, then those of each part under its name.
--
-- :wall is the wall clock in milliseconds, :boot the clock of leases: milliseconds since the machine started.
-- {name} stands for the block of that name.
-- The loader replaces a status by its number, as in core/states.py:
--   waiting  {PENDING} 0, {QUEUED} 1, {RETRYING} 2       status < {PROCESSING}
--   running  {PROCESSING} 3                              status = {PROCESSING}
--   ended    {COMPLETED} 4, {FAILED} 5, {CANCELLED} 6    status > {PROCESSING}
-- The lanes from {PARKED} on are those of parked jobs; lane % {PARKED} is the lane of any job.

-- ==== store ====

-- name: boot_id
select value from meta where name = 'boot_id'

-- name: record_boot
insert or replace into meta (name, value) values ('boot_id', ?)

-- name: touch
-- A new value each time, since SQLite does not write a row that stays the same.
insert into meta (name, value) values ('touched_at', ?) on conflict (name) do update set value = excluded.value

-- name: lapse_all
update jobs set lease_until = 0 where status = {PROCESSING}

-- name: forget_workers
delete from workers

-- name: forget_schedulers
delete from schedulers

-- name: key_taken
-- The column `scope` has the namespace of a key.
select job_id, request_hash, created_at, scheduled_at from idempotency_keys
where scope = ? and key = ? and expires_at > ?

-- name: take_key
insert or replace into idempotency_keys (scope, key, request_hash, job_id, created_at, scheduled_at, expires_at)
values (?, ?, ?, ?, ?, ?, ?)

-- name: id_taken
-- When a job was added and when it is due, and whether it is older than the last ?2 rows: row ids grow.
select created_at, coalesce(scheduled_at, created_at), rowid <= (select max(rowid) from jobs) - ?2 from jobs where id = ?1

-- name: name_queue
insert or ignore into queues (name) values (?)

-- name: add
-- Where claims have parked jobs of this type, a new one is parked at once. With a line it is not: the line does not know
-- parked jobs.
insert into jobs (id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay,
                  timeout, payload, tags, webhook_url, expires_at, unique_key, webhook_on_cancel, cause,
                  moved, namespace, submitter, traceparent, schedule, slot_at)
values (?1, ?2, ?3, ?4, ?5,
        ?6 + {PARKED} * (?21 is null and exists (select 1 from parked_types where type = ?2 and queue = ?4)),
        ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25,
        ?26)
on conflict (id) do nothing

-- name: add_tags
insert or ignore into job_tags (tag, job_id)
select one.value, jobs.id from jobs join json_each(jobs.tags) as one where jobs.id = ?

-- name: unique_waiting
select id, created_at, coalesce(scheduled_at, created_at), queue from jobs
where unique_key = ? and type = ? and namespace = ? and status < {PROCESSING} and token = 0 and generation = 1

-- name: replace_waiting
-- Replaces everything that a request can set; the job keeps its row id. The parameters are the first of `add`.
update jobs set name = ?3, queue = ?4, status = ?5, lane = ?6, rank = ?7, due_at = ?8, scheduled_at = ?8,
    max_retries = ?11, retry_delay = ?12, timeout = ?13, payload = ?14, tags = ?15,
    webhook_url = ?16, expires_at = ?17, webhook_on_cancel = ?19, cause = ?20, moved = ?21, submitter = ?23,
    traceparent = ?24
where id = ?1 and type = ?2 and unique_key = ?18 and namespace = ?22

-- name: expires_earlier
-- Whether another job expires as early.
select 1 from jobs where status < {PROCESSING} and expires_at is not null and token = credits and expires_at <= ?
    and id <> ? limit 1

-- name: earlier
-- Whether another job of the same queue, lane and rank is due as early.
select 1 from jobs where status < {PROCESSING} and queue = ? and lane = ? and rank = ? and due_at <= ? and id <> ? limit 1

-- name: queues_set
-- Also `*`, if there ever was a pace of all queues.
select name, step, strict, head_start, paused_at, pace, state, follows
from queues left join paces on paces.queue = name where changed_at is not null
union all
select queue, null, null, null, null, pace, state, follows from paces where queue = '*'

-- name: heads
-- The first row of each (queue, lane, rank) that has one: a skip scan of the index, so that rows behind a head cost nothing.
with recursive head (queue, lane, rank, due_at, number) as (
    select * from (
        select queue, lane, rank, due_at, rowid from jobs where status < {PROCESSING}
        order by queue, lane, rank, due_at, rowid limit 1
    )
    union all
    select next.queue, next.lane, next.rank, next.due_at, next.rowid
    from head
    join jobs as next on next.rowid = coalesce(
        {next_of_queue},
        (select rowid from jobs where status < {PROCESSING} and queue > head.queue
         order by queue, lane, rank, due_at, rowid limit 1)
    )
    limit ?
)
select queue, lane, rank, due_at, number from head

-- name: heads_of_queues
with recursive head (queue, lane, rank, due_at, number) as (
    select first.queue, first.lane, first.rank, first.due_at, first.rowid
    from json_each(?) as named join jobs as first on first.rowid = (
        select rowid from jobs where status < {PROCESSING} and queue = named.value order by lane, rank, due_at, rowid limit 1
    )
    union all
    select next.queue, next.lane, next.rank, next.due_at, next.rowid
    from head join jobs as next on next.rowid = coalesce({next_of_queue}, null)
)
select queue, lane, rank, due_at, number from head

-- name: next_of_queue
(select rowid from jobs where status < {PROCESSING} and queue = head.queue and lane = head.lane and rank > head.rank
 order by rank, due_at, rowid limit 1),
(select rowid from jobs where status < {PROCESSING} and queue = head.queue and lane > head.lane
 order by lane, rank, due_at, rowid limit 1)

-- name: head
select due_at, rowid from jobs where status < {PROCESSING} and queue = ? and lane = ? and rank = ?
order by due_at, rowid limit 1

-- name: due_of_type
select queue, lane, rank from jobs indexed by jobs_waiting_of_type
where status < {PROCESSING} and type = ? and status = ? and due_at <= ? limit ?

-- name: coming_of_type
select queue, lane, rank, due_at, rowid from jobs indexed by jobs_waiting_of_type
where status < {PROCESSING} and type = ? and status = ? and due_at > ? order by due_at limit 1

-- name: claim_scan
select rowid, due_at from jobs
where status < {PROCESSING} and queue = ? and lane = ? and rank = ? and due_at <= ?
order by due_at, rowid limit ?

-- name: parked_heads
-- The first parked row of each of these types, queue, lane and rank. A skip scan finds the queues, and each lane and rank is then
-- looked up: a skip scan over lanes would read all rows of a lane to find the next one, since SQLite takes the condition of the
-- index for the lower bound.
with recursive place (type, queue) as (
    select value, (select queue from {parked} and type = value order by queue limit 1) from json_each(?1)
    union all
    select type, (select queue from {parked} and type = place.type and queue > place.queue order by queue limit 1)
    from place where queue is not null
)
select first.type, first.queue, first.lane, first.rank, first.due_at, first.rowid
from place, json_each(?2) as lane, json_each(?3) as level join jobs as first on first.rowid = (
    select rowid from {parked} and type = place.type and queue = place.queue and lane = lane.value and rank = level.value
    order by due_at, rowid limit 1
)

-- name: parked
-- By the index that leads with the type: SQLite would prefer the other one, in which all types are mixed.
jobs indexed by jobs_parked where status < {PROCESSING} and lane >= {PARKED}

-- name: any_parked
select 1 from {parked} limit 1

-- name: parked_scan
select rowid, due_at from {parked} and type = ? and queue = ? and lane = ? and rank = ? and due_at <= ?
order by due_at, rowid limit ?

-- name: parked_next_due
select due_at from {parked} and type = ? and queue = ? and lane = ? and rank = ? and due_at > ?
order by due_at limit 1

-- name: kept_message
-- The message of the last run, for jobs whose next run needs it.
iif(type in (select value from json_each(:resumed)), progress_message, null)

-- name: claim_take
update jobs set status = :status, token = token + 1, worker_id = :worker_id, claim_id = :claim_id,
    lease_until = :until, claimed_at = :wall,
    started_at = null, progress = null, progress_message = {kept_message}
where rowid in (select value from json_each(:chosen)) and (expires_at is null or expires_at > :wall or token > credits)
    and (:types is null or type in (select value from json_each(:types)))
returning {claimed_job}

-- name: claimed
select {claimed_job} from jobs
where worker_id = :worker_id and claim_id = :claim_id and status = {PROCESSING} and lease_until > :boot order by rowid

-- name: claimed_job
rowid, id, token, type, name, queue, rank, payload, credits, strays, max_retries, retry_delay, timeout,
    coalesce(scheduled_at, created_at), tags, schedule, slot_at, traceparent

-- name: of_other_types
select rowid from jobs where rowid in (select value from json_each(?)) and type not in (select value from json_each(?))

-- name: park
-- Park those of the first ready rows of a queue, lane and rank that are not of these types.
update jobs set lane = lane + {PARKED}
where rowid in (
    select rowid from jobs where status < {PROCESSING} and queue = ? and lane = ? and rank = ? and due_at <= ?
    order by due_at, rowid limit ?
) and type not in (select value from json_each(?))
returning type, queue

-- name: park_chosen
update jobs set lane = lane + {PARKED} where rowid in (select value from json_each(?)) and lane < {PARKED}
returning type, queue

-- name: note_parked
insert or ignore into parked_types (type, queue, unknown_since) values (?, ?, ?)

-- name: end_chosen
update jobs set status = ?, completed_at = ?, error = ?, settled = ? where rowid in (select value from json_each(?))
    and status < {PROCESSING}
returning id, {hooked}

-- name: lapsed
select id, token, credits, strays, max_retries, retry_delay, worker_id, type from jobs
where status = {PROCESSING} and lease_until <= ? order by lease_until limit ?

-- name: next_due
select due_at from jobs where status < {PROCESSING} and queue = ? and lane = ? and rank = ? and due_at > ?
    order by due_at limit 1

-- name: next_lapse
select lease_until from jobs where status = {PROCESSING} order by lease_until limit 1

-- name: renew
update jobs set lease_until = :until, started_at = coalesce(started_at, max(claimed_at, :wall - :ran)),
    progress = coalesce(:progress, progress), progress_message = coalesce(:message, progress_message)
where id = :id and token = :token and status = {PROCESSING} and lease_until > :boot

-- name: settled_under
select 1 from jobs where id = ? and token = ? and status <> {PROCESSING}

-- name: lease_status
select id, token, cancel_requested_at is not null from jobs
where id in (select unhex(value) from json_each(?)) and status = {PROCESSING} and lease_until > ?

-- name: leased
select {leased_job} from jobs where worker_id = :worker_id and status = {PROCESSING} and lease_until > :boot
order by claimed_at, rowid

-- name: leased_of
select {leased_job} from jobs
where id in (select unhex(value) from json_each(:ids)) and status = {PROCESSING} and worker_id = :worker_id
    and lease_until > :boot
order by claimed_at, rowid

-- name: leased_job
id, token, type, credits, strays, max_retries, retry_delay, timeout, claimed_at

-- name: log
insert into logs (job_id, at, line) values (?, ?, ?)

-- name: complete
-- `settle` for successes: many in one statement, since most writes of a worker are successes.
update jobs set status = :status, completed_at = :wall, lease_until = null, result = done.result, error = null, strays = 0,
    settled = :settled, started_at = max(claimed_at, coalesce(jobs.started_at, done.started_at)),
    progress = coalesce(done.progress, jobs.progress), progress_message = coalesce(done.message, progress_message)
from (
    select unhex(value ->> 0) as id, value ->> 1 as token, value ->> 2 as result, value ->> 3 as started_at,
        value ->> 4 as progress, value ->> 5 as message
    from json_each(:done)
) as done
where jobs.id = done.id and jobs.token = done.token and status = {PROCESSING} and lease_until > :boot
returning jobs.id, jobs.token, {hooked}, queue, type, lane, due_at, jobs.started_at

-- name: settle
update jobs set status = :status, completed_at = :completed_at, lease_until = null, result = :result, error = :error,
    due_at = coalesce(:due_at, due_at), lane = coalesce(:lane, lane), moved = :moved,
    settled = coalesce(:settled, settled),
    credits = credits + :credit, retries = retries + :retry, strays = iif(:stray, strays + 1, 0),
    started_at = iif(:credit, null, max(claimed_at, coalesce(started_at, :started_at, claimed_at))),
    worker_id = iif(:credit, null, worker_id),
    progress = coalesce(:progress, progress), progress_message = coalesce(:message, progress_message)
where id = :id and token = :token and status = {PROCESSING} and (lease_until <= :boot) = :lapsed
    and (cancel_requested_at is null or :stands)
returning queue, lane, rank, due_at, {hooked}, started_at

-- name: claimed_as
select type, lane, due_at from jobs where id = ?

-- name: record_attempt
insert into attempts (job_id, token, started_at, ended_at, worker_id, error, traceback)
select id, token, started_at, ?, worker_id, ?, ? from jobs where id = ?

-- name: cancel_waiting
update jobs set status = ?, completed_at = ?, error = ?, settled = ? where id = ? and status < {PROCESSING}
returning {hooked}

-- name: cancel_running
update jobs set cancel_requested_at = coalesce(cancel_requested_at, ?) where id = ? and status = {PROCESSING}

-- name: status
select status from jobs where id = ?

-- name: retry
update jobs set status = :status, lane = :lane, due_at = :due_at, generation = generation + 1, credits = token, retries = 0,
    strays = 0, completed_at = null, started_at = null, cancel_requested_at = null, progress = null,
    progress_message = {kept_message}, result = null, error = null, expires_at = null, moved = :moved
where id = :id and status in (select value from json_each(:from))

-- name: attempt
select token - credits from jobs where id = ?

-- name: restore
-- A job that waits to be retried has the error of its last attempt.
update jobs set status = :status, generation = generation + 1,
    error = iif(:status = {RETRYING}, (select error from attempts where job_id = jobs.id order by token desc limit 1), null),
    completed_at = null, moved = :moved
where id = :id and status = {CANCELLED} and error = :error and cancel_requested_at is null and completed_at > :wall - :within
    and not exists (select 1 from jobs as told where told.cause = jobs.id and told.created_at >= jobs.completed_at)

-- name: change
update jobs set rank = coalesce(:rank, rank), tags = iif(:tags is null, tags, :tags), due_at = coalesce(:due_at, due_at),
    scheduled_at = coalesce(:due_at, scheduled_at), lane = iif(:due_at is null, lane, :lane), moved = :moved
where id = :id and status < {PROCESSING}
returning queue, lane, rank, due_at

-- name: remove
delete from jobs where id = ? and status > {PROCESSING} returning coalesce(settled, 0)

-- name: remove_attempts
delete from attempts where job_id = ?

-- name: remove_logs
delete from logs where job_id = ?

-- name: purgeable
select id from jobs where queue = ? and status = ? and status > {PROCESSING} and completed_at <= ?
    order by completed_at limit ?

-- name: purge_keys
delete from idempotency_keys where (scope, key) in (
    select scope, key from idempotency_keys where expires_at <= ? limit ?
)

-- name: queue_names
select name from queues

-- name: expired
select rowid from jobs where status < {PROCESSING} and expires_at is not null and token = credits and expires_at <= ?
order by expires_at limit ?

-- name: next_expiry
select expires_at from jobs where status < {PROCESSING} and expires_at is not null and token = credits
    order by expires_at limit 1

-- name: parked_types
-- Also those that were forgotten while jobs of them were parked: a skip scan of the index finds these.
with recursive kind (type, queue) as (
    select type, queue from (select type, queue from {parked} order by type, queue limit 1)
    union all
    select next.type, next.queue from kind join jobs as next on next.rowid = coalesce(
        (select rowid from {parked} and type = kind.type and queue > kind.queue order by queue limit 1),
        (select rowid from {parked} and type > kind.type order by type, queue limit 1)
    )
)
select type, queue, unknown_since from parked_types
union all
select type, queue, null from kind where not exists (
    select 1 from parked_types as noted where noted.type = kind.type and noted.queue = kind.queue
)
order by type, queue

-- name: note_unknown
insert into parked_types (unknown_since, type, queue) values (?, ?, ?)
on conflict (type, queue) do update set unknown_since = excluded.unknown_since

-- name: forget_parked
delete from parked_types where type = ? and queue = ?

-- name: retentions
select name, retention from queues where retention is not null

-- name: ended_kinds
-- Each queue and status that has ended jobs, with the oldest end: a skip scan of the index.
with recursive kind (queue, status, oldest) as (
    select * from (select queue, status, completed_at from jobs where status > {PROCESSING}
        order by queue, status, completed_at limit 1)
    union all
    select next.queue, next.status, next.completed_at
    from kind
    join jobs as next on next.rowid = coalesce(
        (select rowid from jobs where likely(status > {PROCESSING}) and queue = kind.queue and status > kind.status
         order by status, completed_at limit 1),
        (select rowid from jobs where status > {PROCESSING} and queue > kind.queue
            order by queue, status, completed_at limit 1)
    )
)
select queue, status, oldest from kind

-- name: beyond
-- The ended jobs of a queue and status, except the newest ones.
select id from jobs where queue = ? and status = ? and status > {PROCESSING} order by completed_at desc, rowid desc
    limit ? offset ?

-- name: fill_tags
-- The tags of jobs that a process of a version before the table `job_tags` has added since the migration. A database that was made
-- with the table has no such jobs, and nothing is filled.
insert or ignore into job_tags (tag, job_id)
select one.value, jobs.id
from (select cast(value as int) as done from meta where name = 'tags.filled') as filled
join jobs on filled.done > 0 and jobs.rowid > filled.done and jobs.rowid <= filled.done + ? and jobs.tags is not null
join json_each(jobs.tags) as one

-- name: tags_filled
update meta set value = min(cast(value as int) + ?, (select coalesce(max(rowid), 0) from jobs))
where name = 'tags.filled' and cast(value as int) between 1 and (select coalesce(max(rowid), 0) from jobs) - 1

-- name: forget_silent
delete from workers where heartbeat_at <= ?

-- name: job
select {to_payload}, payload, {to_result}, result, {after_result} from jobs where id = ?

-- A whole job is these columns with the payload and the result between them, or with what stands for those that are not read.

-- name: to_payload
id, type, name, queue, status, lane, rank, due_at, created_at, scheduled_at, max_retries, retry_delay, timeout,
    token, credits, retries, generation

-- name: to_result
tags, webhook_url, worker_id, lease_until, started_at, completed_at, cancel_requested_at, progress, progress_message

-- name: after_result
error, expires_at, unique_key, webhook_on_cancel, cause, schedule, slot_at

-- name: attempts
select job_id, token, started_at, ended_at, worker_id, error, traceback from attempts
where job_id in (select unhex(value) from json_each(?)) order by job_id, token

-- name: logs
select at, line from logs where job_id = ? order by rowid

-- name: listed
select {to_payload}, null, {to_result}, '', {after_result} from jobs where id in (select unhex(value) from json_each(?))

-- name: find
-- The rows that a walk found, in its order. The last column is the size of a job in bytes, if the page is limited by them: only
-- what differs much between jobs counts.
select {to_payload}, iif(:payload, payload, null), {to_result}, iif(:result, result, ''), {after_result},
    iif(:bytes is null, 0, iif(:payload, octet_length(payload), 0) + iif(:result, coalesce(octet_length(result), 0), 0)
        + coalesce(octet_length(error), 0)
        + (select coalesce(sum(coalesce(octet_length(error), 0) + coalesce(octet_length(traceback), 0)), 0)
           from attempts where job_id = jobs.id))
from (select value as wanted from json_each(:rows)) cross join jobs on jobs.rowid = wanted

-- A walk reads the place of each job in the list, its id, and whether it matches the rest of the filter.

-- name: walk_all
select 0, jobs.rowid, id, /* matches */ from jobs where id < :before order by id desc

-- name: walk_created
select 0, jobs.rowid, id, /* matches */ from jobs
where jobs.rowid >= :first_row and jobs.rowid <= :last_row and jobs.rowid < :row order by jobs.rowid desc

-- name: row_at
-- The first row of a job that was added at this time or later: a binary search.
with recursive half (low, high) as (
    select 0, (select coalesce(max(rowid), 0) + 1 from jobs)
    union all
    select iif(created_at < :moment, (low + high) / 2 + 1, low), iif(created_at < :moment, high, (low + high) / 2)
    from half left join jobs on jobs.rowid = (select min(rowid) from jobs where rowid >= (low + high) / 2)
    where low < high
)
select low from half where low >= high

-- name: walk_processing
select 0, jobs.rowid, id, /* matches */ from jobs indexed by jobs_leased
where status = {PROCESSING} and id < :before order by id desc

-- name: walk_dead
select 0, jobs.rowid, id, /* matches */ from jobs indexed by jobs_dead
where status = {FAILED} and id < :before order by id desc

-- name: walk_of_error
select 0, jobs.rowid, id, /* matches */ from jobs indexed by jobs_of_error
where error is not null and {error_class} = :error and id < :before order by id desc

-- name: walk_schedule
select 0, jobs.rowid, id, /* matches */ from jobs indexed by jobs_of_schedule
where schedule is not null and schedule = :schedule and id < :before order by id desc

-- name: walk_tag
select 0, jobs.rowid, id, /* matches */ from job_tags cross join jobs on jobs.id = job_tags.job_id
where tag = :tag and job_id < :before order by job_id desc

-- name: before_end
completed_at >= :since and completed_at < :until and completed_at <= :at and (completed_at < :at or jobs.rowid < :row)
order by completed_at desc, jobs.rowid desc

-- name: after_due
due_at >= :since and due_at < :until and due_at >= :at and (due_at > :at or jobs.rowid > :row) order by due_at, jobs.rowid

-- name: walk_ended_of_queue
select completed_at, jobs.rowid, id, /* matches */ from jobs indexed by jobs_ended
where status > {PROCESSING} and queue = :kind and status = :status and {before_end}

-- name: walk_ended_of_type
select completed_at, jobs.rowid, id, /* matches */ from jobs indexed by jobs_ended_of_type
where status > {PROCESSING} and type = :kind and status = :status and {before_end}

-- name: walk_dead_of_error
select completed_at, jobs.rowid, id, /* matches */ from jobs indexed by jobs_dead_of_error
where status = {FAILED} and {error_class} = :error and {before_end}

-- name: walk_due_of_queue
select due_at, jobs.rowid, id, /* matches */ from jobs indexed by jobs_waiting
where status < {PROCESSING} and queue = :kind and lane = :lane and rank = :rank and {after_due}

-- name: walk_due_of_type
select due_at, jobs.rowid, id, /* matches */ from jobs indexed by jobs_waiting_of_type
where status < {PROCESSING} and type = :kind and status = :status and {after_due}

-- name: walk_retrying
select due_at, jobs.rowid, id, /* matches */ from jobs indexed by jobs_retrying
where status = {RETRYING} and queue = :kind and {after_due}

-- name: waiting_kinds
-- Each queue, lane and rank that has waiting jobs: a skip scan of the index.
with recursive kind (queue, lane, rank) as (
    select * from (select queue, lane, rank from jobs where status < {PROCESSING} order by queue, lane, rank limit 1)
    union all
    select next.queue, next.lane, next.rank
    from kind
    join jobs as next on next.rowid = coalesce(
        (select rowid from jobs indexed by jobs_waiting where status < {PROCESSING} and queue = kind.queue
         and lane = kind.lane and rank > kind.rank order by rank limit 1),
        (select rowid from jobs indexed by jobs_waiting where status < {PROCESSING} and queue = kind.queue
         and lane > kind.lane order by lane, rank limit 1),
        (select rowid from jobs indexed by jobs_waiting where status < {PROCESSING} and queue > kind.queue
         order by queue, lane, rank limit 1)
    )
)
select queue, lane, rank from kind

-- name: retrying_kinds
with recursive kind (queue) as (
    select min(queue) from jobs indexed by jobs_retrying where status = {RETRYING}
    union all
    select (select min(queue) from jobs indexed by jobs_retrying where status = {RETRYING} and queue > kind.queue)
    from kind where kind.queue is not null
)
select queue from kind where queue is not null

-- name: waiting_types
-- The types of waiting jobs that begin with a prefix: a skip scan of the index.
with recursive kind (type) as (
    select min(type) from jobs indexed by jobs_waiting_of_type where status < {PROCESSING} and type >= :prefix
    union all
    select (select min(type) from jobs indexed by jobs_waiting_of_type where status < {PROCESSING} and type > kind.type)
    from kind where substr(kind.type, 1, length(:prefix)) = :prefix
)
select type from kind where substr(type, 1, length(:prefix)) = :prefix

-- name: ended_types
with recursive kind (type) as (
    select min(type) from jobs indexed by jobs_ended_of_type where status > {PROCESSING} and type >= :prefix
    union all
    select (select min(type) from jobs indexed by jobs_ended_of_type where status > {PROCESSING} and type > kind.type)
    from kind where substr(kind.type, 1, length(:prefix)) = :prefix
)
select type from kind where substr(type, 1, length(:prefix)) = :prefix

-- name: error_class
substr(error, 1, min(instr(error || ':', ':') - 1, 200))

-- name: match_statuses
status in (select value from json_each(:statuses))

-- name: match_queue
queue = :queue

-- name: match_type
type = :type

-- name: match_prefix
substr(type, 1, length(:prefix)) = :prefix

-- name: match_priorities
rank in (select value from json_each(:priorities))

-- name: match_tags
not exists (select 1 from json_each(:tags) as wanted
    where not exists (select 1 from json_each(jobs.tags) as own where own.value = wanted.value))

-- name: match_error
coalesce({error_class} = :error, 0)

-- name: match_text
(instr(lower(coalesce(name, type)), :text) or coalesce(instr(lower(error), :text), 0))

-- name: match_created_since
created_at >= :created_since

-- name: match_created_until
created_at < :created_until

-- name: match_due_since
(status < {PROCESSING} and due_at >= :due_since)

-- name: match_due_until
(status < {PROCESSING} and due_at < :due_until)

-- name: match_ended_since
(status > {PROCESSING} and completed_at >= :ended_since)

-- name: match_ended_until
(status > {PROCESSING} and completed_at < :ended_until)

-- name: match_schedule
coalesce(schedule = :schedule, 0)

-- name: match_older_than
coalesce(completed_at, created_at) <= :wall - :older_than

-- name: queues
select name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url from queues
where name between :first and :last and (:after is null or name > :after) order by name limit :limit

-- name: queue
select name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url from queues where name = ?

-- name: count_waiting
select queue, lane, sum(due_at <= :wall), sum(due_at > :wall) from jobs
where status < {PROCESSING} and queue between :first and :last group by queue, lane

-- name: count_processing
select queue, count(*) from jobs where status = {PROCESSING} and queue between :first and :last group by queue

-- name: count_dead
select queue, count(*) from jobs where status = {FAILED} and queue between :first and :last group by queue

-- name: set_queue
insert into queues (name, step, strict, head_start, paused_at, pause_reason, paused_by, retention, webhook_url, changed_at)
values (:name, :step, :strict, :head_start, iif(:paused, :wall, null), iif(:paused, :reason, null), iif(:paused, :by, null),
        :retention, nullif(:webhook_url, ''), :wall)
on conflict (name) do update set
    step = coalesce(:step, step), strict = coalesce(:strict, strict), head_start = coalesce(:head_start, head_start),
    paused_at = case when :paused is null then paused_at when :paused then coalesce(paused_at, :wall) end,
    pause_reason = case when :paused is null then pause_reason when :paused then coalesce(:reason, pause_reason) end,
    paused_by = case when :paused is null or :paused and paused_at is not null and :reason is null then paused_by
        when :paused then :by end,
    retention = coalesce(:retention, retention), webhook_url = nullif(coalesce(:webhook_url, webhook_url), ''),
    changed_at = :wall

-- name: heartbeat
insert into workers (id, host, pid, slots, queues, types, started_at, heartbeat_at, paces)
values (:id, :host, :pid, :slots, :queues, :types, :wall, :boot, :paces)
on conflict (id) do update set slots = :slots, queues = :queues, types = :types, heartbeat_at = :boot

-- name: retire
delete from workers where id = ?

-- name: workers
select id, host, pid, slots, queues, types, started_at, heartbeat_at, paces from workers order by id

-- ==== paces ====

-- name: touch_queue
insert into queues (name, changed_at) values (:name, :wall) on conflict (name) do update set changed_at = :wall

-- name: set_by_settings
select setting from pace_changes where queue = ? and setting is not null order by seq desc limit 1

-- name: set_pace
insert into paces (queue, pace, lanes, state, set_at, set_by) values (:queue, :pace, :lanes, :state, :wall, :by)
on conflict (queue) do update set pace = :pace, lanes = :lanes, state = :state, set_at = :wall, set_by = :by, follows = 0

-- name: record_pace
insert into pace_changes (queue, at, by, pace, setting) values (:queue, :wall, :by, :pace, :setting)

-- name: follow_again
update paces set pace = null, lanes = null, follows = 1, set_at = :wall, set_by = :by where queue = :queue and not follows

-- name: record_following
insert into pace_changes (queue, at, by, follows) values (:queue, :wall, :by, 1)

-- name: held_scan
select rowid, due_at from jobs
where status < {PROCESSING} and queue = ? and lane = ? and rank = ? and due_at <= ?
    and (expires_at is null or expires_at > ? or token > credits)
order by due_at, rowid limit ?

-- name: release
update jobs set lane = ?, due_at = release_at, moved = ?
from (select value ->> 0 as number, value ->> 1 as release_at from json_each(?))
where jobs.rowid = number and status < {PROCESSING}
returning jobs.rowid, id, rank, type

-- name: keep_pace
update paces set state = ? where queue = ?

-- name: follow
-- A queue that follows `*` gets its row when it first releases a job.
insert or ignore into paces (queue, state, set_at, set_by, follows) values (?, ?, ?, '*', 1)

-- name: policy
-- The row with the pace of a job's queue: its own, or that of `*`.
coalesce((select own.queue from paces as own where own.queue = jobs.queue and not own.follows), '*')

-- name: states
select queue, state from paces where queue in (select value from json_each(?))

-- name: pace
select queue, pace, state, set_at, set_by, follows from paces where queue = ?

-- name: paces
select queue, pace, state, set_at, set_by, follows from paces where pace is not null order by queue

-- name: every_pace
select pace from paces where queue = '*' and pace is not null

-- name: own_paces
-- Each pace that a queue does not follow, but has of its own; null if it is off.
select queue, pace from paces where not follows

-- name: followers
-- The queues that follow `*` and have released jobs, or have jobs in the lanes that it governs.
select name, state from queues left join paces as own on own.queue = name
where follows is not 0 and (own.queue is not null or exists (
    select 1 from jobs where status < {PROCESSING} and jobs.queue = queues.name and lane in (select value from json_each(?))
))
order by name

-- name: count_paced
select sum(due_at <= ?1), sum(due_at > ?1), sum(due_at <= ?1 + ?4), min(due_at) from jobs
where status < {PROCESSING} and queue = ?2 and lane in (select value from json_each(?3))

-- name: real_time_waits
select 1 from jobs where status < {PROCESSING} and queue in (select value from json_each(?1))
    and lane in (?2, ?2 + {PARKED}) and due_at <= ?3 limit 1

-- name: lanes_and_ranks
-- Each lane and rank of a queue that has waiting jobs.
-- A skip scan of the index: `distinct` would read each waiting job of the queue.
with recursive kind (lane, rank) as (
    select * from (
        select lane, rank from jobs where status < {PROCESSING} and queue = ?1 order by lane, rank limit 1
    )
    union all
    select next.lane, next.rank
    from kind
    join jobs as next on next.rowid = coalesce(
        (select rowid from jobs indexed by jobs_waiting where status < {PROCESSING} and queue = ?1
         and lane = kind.lane and rank > kind.rank order by rank limit 1),
        (select rowid from jobs indexed by jobs_waiting where status < {PROCESSING} and queue = ?1
         and lane > kind.lane order by lane, rank limit 1)
    )
)
select lane, rank from kind

-- name: count_before
select count(*) from (
    select 1 from jobs
    where status < {PROCESSING} and queue = ?1 and lane = ?2 and rank = ?3 and due_at <= min(?4, ?5)
        and (due_at < ?5 or rowid < ?6)
    limit ?7
)

-- name: count_recent
select count(*) from jobs where queue = ? and status = ? and status > {PROCESSING} and completed_at > ?

-- name: number
select rowid from jobs where id = ?

-- name: pace_changes
select queue, at, by, pace, follows from pace_changes where queue = ? order by seq desc limit ?

-- name: pace_facts
select queue, at, pace, follows from pace_changes order by seq

-- ==== schedules ====

-- name: schedule_columns
name, schedule, exclusive, revision, decided_to, next_at, kept_at, origin, changed_by, defined, application, release,
    last_run_at, last_job_id, run_count, records, forgotten_to,
    (select status from jobs where id = schedules.last_job_id) as last_status

-- name: add_schedule
-- If a schedule of this name was removed, which of its fire times had a job is no longer known.
insert into schedules (name, schedule, exclusive, revision, decided_to, next_at, origin, changed_by, defined, application,
                       release, forgotten_to)
values (:name, :schedule, :exclusive, 1, :decided_to, :next_at, :origin, :by, :defined, :application, :release,
    iif(exists (select 1 from jobs indexed by jobs_of_schedule where jobs.schedule is not null and jobs.schedule = :name),
        :decided_to, null))
on conflict (name) do nothing

-- name: schedule
select {schedule_columns} from schedules where name = ?

-- name: schedules
select {schedule_columns} from schedules where name > ? order by name limit ?

-- name: schedules_of_application
-- The schedules of these names, and all of the application.
select {schedule_columns} from schedules where name in (select value from json_each(?1))
union
select {schedule_columns} from schedules where application is not null and application = ?2

-- name: write_schedule
update schedules set schedule = :schedule, exclusive = :exclusive, revision = revision + 1, decided_to = :decided_to,
    next_at = :next_at, kept_at = :kept_at, changed_by = :by, defined = :defined, application = :application,
    release = :release
where name = :name

-- name: remove_schedule
delete from schedules where name = ?

-- name: remove_records
delete from schedule_slots where schedule = ?

-- name: register_names
insert or replace into schedule_processes (application, process_id, names, registered_at, release) values (?, ?, ?, ?, ?)

-- name: processes
-- The processes that fire schedules: those with a worker, and those that attend.
(select id, heartbeat_at from workers union all select id, heartbeat_at from schedulers)

-- name: registered_elsewhere
select names, release from schedule_processes join {processes} as processes on processes.id = process_id
where application = ? and process_id <> ? and heartbeat_at > ?

-- name: forget_processes
-- Processes that are gone, if they registered long ago.
delete from schedule_processes where registered_at <= ? and process_id not in (select id from {processes})

-- name: attend
insert into schedulers (id, heartbeat_at, paces) values (?, ?, ?)
on conflict (id) do update set heartbeat_at = excluded.heartbeat_at, paces = excluded.paces

-- name: forget_absent
delete from schedulers where heartbeat_at <= ?

-- name: leave
delete from schedulers where id = ?

-- name: live_processes
select id from {processes} where heartbeat_at > ? order by id

-- name: attending
select id, paces from schedulers where heartbeat_at > ? order by id

-- name: due_columns
schedule, revision, decided_to, next_at, kept_at

-- name: schedules_due
select {due_columns} from schedules where next_at is not null and next_at <= ? order by next_at, name limit ?

-- name: schedules_freed
-- Schedules with a kept fire time and no unended job.
select {due_columns} from schedules
where kept_at <= ?1 and (next_at is null or next_at > ?1) and not exists (
    select 1 from jobs indexed by jobs_of_schedule_unended
    where jobs.schedule is not null and jobs.schedule = schedules.name and status < {COMPLETED}
) limit ?2

-- name: coming_times
-- The next fire times after ?1, until ?2 milliseconds after the first: a skip scan of the index.
with recursive coming (at, upto) as (
    select * from (select next_at, next_at + ?2 from schedules where next_at > ?1 order by next_at limit 1)
    union all
    select (select next_at from schedules where next_at > at order by next_at limit 1), upto from coming where at <= upto
    limit ?3
)
select at from coming where at <= upto

-- name: keeping
select exists (select 1 from schedules where kept_at is not null)

-- name: unended_of_schedule
-- Whether the schedule has waiting jobs that were never claimed, and whether it has others that have not ended.
select coalesce(max(status < {PROCESSING} and token = 0), 0), coalesce(max(status = {PROCESSING} or token > 0), 0)
from jobs indexed by jobs_of_schedule_unended
where schedule is not null and schedule = ? and status < {COMPLETED}

-- name: waiting_of_schedule
select id from jobs indexed by jobs_of_schedule_unended
where schedule is not null and schedule = ? and status < {COMPLETED} and status < {PROCESSING} and token = 0

-- name: revisions
select name, revision from schedules where name in (select value from json_each(?))

-- name: times_taken
select schedule, slot_at, job_id from json_each(?) as asked
cross join schedule_slots on schedule = asked.value ->> 0 and slot_at = asked.value ->> 1

-- name: record_fire_time
insert into schedule_slots (schedule, slot_at, outcome, decided_at, job_id) values (?, ?, ?, ?, ?)
on conflict (schedule, slot_at) do update set outcome = excluded.outcome, decided_at = excluded.decided_at,
    job_id = excluded.job_id

-- name: skip_fire_time
-- A fire time that waits may have its record already, if the clock was set back: that one stays, and so does its job.
insert into schedule_slots (schedule, slot_at, outcome, decided_at) values (?, ?, ?, ?)
on conflict (schedule, slot_at) do nothing

-- name: replace_fire_time
update schedule_slots set outcome = 'replaced' where (schedule, slot_at) = (
    select schedule, slot_at from jobs where id = ?
)

-- name: fired
update schedules set revision = revision + 1, decided_to = :decided_to, next_at = :next_at, kept_at = :kept_at,
    run_count = run_count + :added, records = records + :recorded,
    last_run_at = iif(:job_id is null, last_run_at, :wall), last_job_id = coalesce(:job_id, last_job_id)
where name = :name

-- name: backfilled
update schedules set revision = revision + 1, run_count = run_count + ?, records = records + ? where name = ?

-- name: crowded
select name from schedules where records > ? and name in (select value from json_each(?))

-- name: record_beyond
select slot_at from schedule_slots where schedule = ? order by slot_at desc limit 1 offset ?

-- name: forget_records
delete from schedule_slots where schedule = ? and slot_at <= ?

-- name: forgotten
update schedules set records = ?, forgotten_to = ? where name = ?

-- name: fire_records
select schedule, slot_at, outcome, decided_at, job_id from schedule_slots
where schedule = ?1 and (?2 is null or slot_at < ?2) order by slot_at desc limit ?3

-- name: zones
select value from meta where name = 'zones'

-- name: note_zones
insert or replace into meta (name, value) values ('zones', ?)

-- name: foresee
update schedules set next_at = ?, revision = revision + 1 where name = ?

-- ==== api_keys ====

-- name: add_key
insert into api_keys (id, digest, name, scopes, created_at, expires_at, namespace, limits)
values (:id, :digest, :name, :scopes, :wall, :expires_at, :namespace, :limits)

-- name: key_columns
id, digest, name, scopes, created_at, expires_at, revoked_at, last_used_at, namespace, limits, former_digest, former_until

-- name: keys
select {key_columns} from api_keys order by created_at, id

-- name: find_key
select {key_columns} from api_keys where id = ?

-- name: any_key
select exists (select 1 from api_keys)

-- name: revoke_key
update api_keys set revoked_at = coalesce(revoked_at, :wall) where id = :id

-- name: rotate_key
update api_keys set digest = :digest, former_digest = iif(:until is null, null, digest), former_until = :until,
    expires_at = coalesce(:expires_at, expires_at)
where id = :id and revoked_at is null and (expires_at is null or expires_at > :wall)

-- name: end_sessions_with_secret
update sessions set expires_at = min(expires_at, coalesce(:until, :wall)) where key_id = :id

-- name: limit_key
update api_keys set limits = :limits where id = :id

-- name: forget_key
delete from api_keys where id = :id and (revoked_at is not null or expires_at <= :wall)

-- name: forget_names
delete from key_names where key_id = ?

-- name: forget_sessions
delete from sessions where key_id = ?

-- name: is_key
select 1 from api_keys where id = ?

-- name: name_for_key
insert or ignore into key_names (key_id, kind, name) values (?, ?, ?)

-- name: names_of_key
select count(*) from key_names where key_id = ? and kind = ?

-- name: waiting_for_key
select count(*) from (select 1 from jobs where status < {PROCESSING} and submitter is not null and submitter = ? limit ?)

-- name: use_key
update api_keys set last_used_at = :wall where id = :id and (last_used_at is null or last_used_at <= :wall - :within)

-- name: end_expired_sessions
delete from sessions where expires_at <= ?

-- name: open_session
insert into sessions (digest, key_id, expires_at) values (?, ?, ?)

-- name: find_sessions
select session, {key_columns} from (
    select digest as session, key_id from sessions where digest in (select unhex(value) from json_each(?)) and expires_at > ?
) join api_keys on id = key_id

-- name: end_session
delete from sessions where digest = ?

-- name: database_id
select value from meta where name = 'identity'

-- name: make_database_id
insert or ignore into meta (name, value) values ('identity', lower(hex(randomblob(16))))

-- ==== webhooks ====

-- name: hooked
-- Whether a job has a webhook: its own, or that of its queue.
(jobs.webhook_url is not null or exists (select 1 from queues where name = jobs.queue and queues.webhook_url is not null))

-- name: ended
-- What a delivery says of a job that ended; no row if the job has no webhook.
select id, type, generation, status, completed_at, token - credits, coalesce(jobs.webhook_url, queues.webhook_url) as url,
    webhook_on_cancel, result, error, schedule, slot_at
from jobs left join queues on queues.name = queue where id = ? and status > {PROCESSING} and url is not null

-- name: deliveries
select id from jobs where cause = ? order by id

-- name: add_secret
insert into webhook_secrets (id, secret, created_at) values (?, ?, ?)

-- name: end_secrets
update webhook_secrets set ends_at = ? where ends_at is null

-- name: forget_secret
delete from webhook_secrets where id = ?

-- name: secrets
select id, secret, created_at, ends_at from webhook_secrets order by created_at desc, id

-- name: find_disabled
select url, reason, disabled_at from disabled_webhooks where url = ?

-- name: disable
insert or ignore into disabled_webhooks (url, reason, disabled_at) values (?, ?, ?)

-- name: enable
delete from disabled_webhooks where url = ?

-- name: disabled
select url, reason, disabled_at from disabled_webhooks order by disabled_at, url

-- ==== events ====

-- name: event_columns
id, name, type, queue, status, tags, token - credits, token, due_at

-- name: begin_events
insert or ignore into meta (name, value) values ('settled', '0')

-- name: settled_position
-- No row before the first listener to events.
select max(coalesce((select max(settled) from jobs where settled is not null), 0), cast(value as int))
from meta where name = 'settled'

-- name: keep_position
-- After the last settled job was deleted: its number does not come again.
update meta set value = ?1 where name = 'settled' and ?1 > coalesce((select max(settled) from jobs where settled is not null), 0)
    and ?1 > cast(value as int)

-- name: settled_since
-- The first two columns are the place of the row in the order of settlements.
select settled, rowid, {event_columns},
    coalesce(completed_at, (select ended_at from attempts where job_id = jobs.id and token = jobs.token)),
    worker_id, progress, progress_message, substr(error, 1, 1000)
from jobs where settled is not null and settled <= ?2 and (settled, rowid) > (?1, ?3)
    and (status > {PROCESSING} or status = {RETRYING})
order by settled, rowid limit ?4

-- name: last_added
select rowid, id from jobs order by rowid desc limit 1

-- name: is_there
select 1 from jobs where rowid = ? and id = ?

-- name: added_since
select rowid, {event_columns}, created_at, null, null, null, null from jobs where rowid > ? and created_at >= ?
order by rowid limit ?

-- name: running_jobs
select {event_columns}, coalesce(started_at, claimed_at), worker_id, progress, progress_message, null
from jobs where status = {PROCESSING} order by lease_until limit ?

-- name: paused_queues
select name, paused_at, pause_reason, paused_by from queues where changed_at is not null and paused_at is not null

-- name: paced_since
select seq, queue, at, by, pace, follows from pace_changes where seq > ? order by seq

-- name: last_paced
select coalesce(max(seq), 0) from pace_changes

-- ==== diagnostics ====

-- name: overview_waiting
-- Jobs that a pace holds count as delayed, and not as those that wait longest.
select queue, type, sum(iif(held, 0, due)), sum(iif(held, jobs, jobs - due)), coalesce(min(iif(held, null, first)), min(first))
from (
    select queue, type, count(*) as jobs, sum(due_at <= ?1) as due, min(due_at) as first, exists (
        select 1 from paces, json_each(lanes) where paces.queue = {policy} and value = lane % {PARKED}
    ) as held
    from jobs where status < {PROCESSING} group by queue, type, lane
)
group by queue, type

-- name: overview_lapsed
select count(*), min(lease_until) from jobs where status = {PROCESSING} and lease_until <= ?

-- name: overview_ahead
select count(*), sum(status < {PROCESSING}), max(created_at) from jobs where created_at > ?

-- name: overview_ahead_waiting
select count(*), count(*), max(created_at) from jobs where status < {PROCESSING} and created_at > ?

-- name: running
-- With min() alone, SQLite takes the id from the row with the smallest start; with a second aggregate it would not.
select first.worker_id, first.type, first.jobs, first.id, first.since, (
    select max(coalesce(started_at, claimed_at)) from jobs
    where status = {PROCESSING} and lease_until > ?1 and worker_id = first.worker_id and type = first.type
)
from (
    select worker_id, type, count(*) as jobs, id, min(coalesce(started_at, claimed_at)) as since
    from jobs where status = {PROCESSING} and lease_until > ?1 group by worker_id, type
) as first

-- name: sizes
select (page_count - freelist_count) * page_size, freelist_count * page_size
from pragma_page_count, pragma_freelist_count, pragma_page_size

-- name: coming
select (due_at - :wall) * :steps / :until, count(*) from (
    select due_at from jobs where status < {PROCESSING} and due_at > :wall and due_at < :wall + :until limit 1000000
) group by 1

-- name: dead_letters
select queue, type, error, band, count(*), min(completed_at), max(completed_at), max(id) from (
    select queue, type, coalesce({error_class}, '') as error,
        (completed_at <= ?) + (completed_at <= ?) + (completed_at <= ?) as band, completed_at, id
    from jobs indexed by jobs_dead where status = {FAILED} order by id desc limit ?
) group by queue, type, error, band

-- name: activity_mark
select coalesce(max(rowid), 0) from jobs

-- name: activity_added
select queue, count(*) from jobs where rowid > ? group by queue

-- name: activity_running
select worker_id, count(*) from jobs where status = {PROCESSING} group by worker_id

-- name: activity_due
select queue, min(first) from (
    select queue, lane, min(due_at) as first from jobs where status < {PROCESSING} and due_at <= ? group by queue, lane
) as jobs
where not exists (select 1 from paces, json_each(lanes) where paces.queue = {policy} and value = jobs.lane % {PARKED})
group by queue

-- ==== statistics ====

-- name: tally
select version, tally from tallies where at = ? and queue = ? and type = ? and process = ?

-- name: keep_tally
insert or replace into tallies (at, queue, type, process, tally, version) values (?, ?, ?, ?, ?, ?)

-- name: replace_tally
update tallies set tally = ?, version = ? where at = ? and queue = ? and type = ? and process = ? and version = ?

-- name: tallies_since
select at, queue, type, tally from tallies where at >= ?

-- name: take_tallies
delete from tallies where (at, queue, type, process) in (
    select at, queue, type, process from tallies where at < ? order by at limit ?
)
returning at, queue, type, tally

-- name: statistics_since
select width, at, queue, type, tally from statistics where width in (?, ?, ?) and at >= ? and queue <> ''

-- name: statistic
select tally from statistics where width = ? and at = ? and queue = ? and type = ?

-- name: count_names
select count(*) from statistics where width = ? and at = ?

-- name: statistics_names
select queue, type from statistics where width = ? and at = ?

-- name: keep_statistic
insert or replace into statistics (width, at, queue, type, tally) values (?, ?, ?, ?, ?)

-- name: take_statistics
delete from statistics where (width, at, queue, type) in (
    select width, at, queue, type from statistics where width = ? and at < ? order by at limit ?
)
returning width, at, queue, type, tally

-- name: forget_statistics
delete from statistics where width in (?, ?, ?) and at < ?

-- name: mark_sampled
insert or ignore into statistics (width, at, queue, type, tally) values (?, ?, ?, ?, ?)

-- name: count_added
select count(*) from jobs where id >= ? and id < ?

-- ==== audit ====

-- name: audit_triggers
select sql from sqlite_schema where type = 'trigger' and name = 'audit_moved'

-- name: drop_triggers
drop trigger if exists audit_added;
drop trigger if exists audit_moved;
drop trigger if exists audit_removed

-- name: end_audit
delete from events

-- name: trace
insert into events (at, boot, job_id, kind, wrote, old_status, old_token, token, old_lease_until)
select demora_wall(), demora_boot(), :id, :kind, :wrote, jobs.status, jobs.token, :token, jobs.lease_until
from sqlite_schema left join jobs on jobs.id = :id where sqlite_schema.name = 'audit_moved'

-- name: events
select seq, at, boot, job_id, kind, wrote, old_status, status, old_token, token,
    coalesce(credits, 0), coalesce(retries, 0), coalesce(generation, 1), coalesce(max_retries, 0), queue,
    lane % {PARKED}, rank, coalesce(due_at, 0), worker_id, old_lease_until, lease_until, wished, error, expires_at, unique_key
from events where seq > ? order by seq

-- name: job_facts
select id, status, queue, token, token - credits, retries, generation, max_retries, created_at, due_at, lease_until,
    completed_at, worker_id, cancel_requested_at is not null, error,
    (select json_group_array(token) from attempts where job_id = jobs.id),
    iif(cause is null, {hooked}, webhook_url is not null), webhook_on_cancel, cause, lane % {PARKED}, schedule,
    slot_at
from jobs order by rowid

-- name: fire_facts
select schedule, slot_at, outcome, job_id from schedule_slots

-- name: key_facts
select scope, key, job_id, created_at, expires_at from idempotency_keys

-- name: orphan_attempts
select distinct job_id from attempts where job_id not in (select id from jobs)

-- ==== line_feed ====

-- name: line_record
select name, value from meta where name in ('line_database', 'line_epoch', 'line_run')

-- name: name_line
insert or ignore into meta (name, value) values ('line_database', ?), ('line_epoch', '0'), ('line_run', ''), ('line_moves', '0')

-- name: bump_line
update meta set value = case name when 'line_epoch' then ?1 when 'line_run' then ?2 end
where name in ('line_epoch', 'line_run')

-- name: claimable
-- The jobs of these that wait in the given queue and are due.
select jobs.rowid, jobs.queue, lane from json_each(?1) as request
cross join jobs on jobs.id = unhex(request.value ->> 0)
where jobs.queue = request.value ->> 1 and status < {PROCESSING} and due_at <= ?2 order by request.key

-- name: row_places
select jobs.id, jobs.queue, lane, rank, due_at, status
    from json_each(?) as request cross join jobs on jobs.id = unhex(request.value)

-- name: position
select cast(value as int) from meta where name = 'line_moves'

-- name: next_move
update meta set value = cast(value as int) + 1 where name = 'line_moves' returning cast(value as int)

-- name: moved
select id, queue, lane, rank, due_at, moved, rowid from jobs
where status < {PROCESSING} and moved > ?1 and due_at <= ?2 and (moved, rowid) > (?3, ?4) and lane < {PARKED}
order by moved, rowid limit ?5

-- name: walk
select id, queue, lane, rank, due_at, rowid from jobs
where status < {PROCESSING} and queue = ?1 and lane = ?2 and rank = ?3 and (due_at, rowid) > (?4, ?5) and due_at <= ?6
order by due_at, rowid limit ?7
