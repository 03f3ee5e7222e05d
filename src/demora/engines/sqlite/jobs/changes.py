"""Writes to jobs outside of a run: adding them, changes on request, the purge, housekeeping, and webhook deliveries.

Each change is a guarded write. To add jobs, idempotency keys are read first; then all jobs are written or none.
"""

import json
from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta

from ....core.action import RESUMED_TYPES
from ....core.job import PARKED, IdempotencyKey, Lane, NewJob, due_ms, revision
from ....core.outbound.webhook import delivery
from ....core.retention import Retention
from ....core.spans import from_ms, span_ms
from ....core.states import RETRYABLE, Status
from ....core.verdict import (
    CANCELLED_WAITING,
    EXPIRED,
    RESCHEDULED_LANE,
    RETRIED,
    RETRIED_LANE,
    UNKNOWN_TYPE,
    Verdict,
    waiting_after,
)
from ....core.workers import ParkedType, failing_until, fails_at, judge
from ....store.jobs import Added, Answer, Change, HousekeepingResult, Topic
from ...sql import columns, constants
from ...sql.adding import replay, with_stored
from ...sql.retention import OVERDUE, RetentionLimits
from ...sql.schedules import ScheduledJob
from .. import registry, rows
from ..connection.connections import SQL
from ..connection.transactions import Transaction
from ..rows import DUE_AT, EXPIRES_AT, ID, OF_A_SCHEDULE, TAGS
from . import heads

RESUMED = json.dumps(sorted(RESUMED_TYPES))
FILLED = 20_000  # rows of jobs that one call searches for tags


def add(tx: Transaction, jobs: Sequence[NewJob], named: Set[str]) -> list[Added]:
    """Record jobs; queues in `named` are known to be on record."""
    answers, fresh, now = [], [], from_ms(tx.wall)
    conflict = unique = False
    taken: dict[tuple[str, str], tuple[bytes, Added]] = {}
    for job in jobs:
        answer = None if job.key is None else _known(tx, job.key, taken)
        if answer is None:
            fresh.append(job)
            due_at = due_ms(job.at, job.delay, tx.wall)
            answer = Added(job.id, now, now if due_at == tx.wall else from_ms(due_at))
            if job.key is not None:
                taken[job.key.scope, job.key.key] = job.key.request_hash, answer
            unique = unique or job.unique is not None
        conflict = conflict or answer.conflict
        answers.append(answer)
    if conflict:
        return answers
    if unique:
        one_by_one = [_store_one(tx, job, named) for job in fresh]
        return with_stored([answer if answer.replayed else None for answer in answers], fresh, one_by_one)
    stored = store(tx, fresh, named)
    return answers if stored == len(fresh) else _with_replays(tx, answers, stored)


def _known(tx: Transaction, key: IdempotencyKey, taken: dict[tuple[str, str], tuple[bytes, Added]]) -> Added | None:
    """The answer for a key that was used before, in this call or an earlier one; None for a new key."""
    if (key.scope, key.key) in taken:
        request_hash, first = taken[key.scope, key.key]
    else:
        found = tx.db.execute(SQL["key_taken"], (key.scope, key.key, tx.wall)).fetchone()
        if found is None:
            return None
        id, request_hash, created_at, scheduled_at = found
        first = Added(rows.id_text(id), from_ms(created_at), from_ms(scheduled_at))
    return replay(first, same=request_hash == key.request_hash)


def _store_one(tx: Transaction, job: NewJob, named: Set[str]) -> Added:
    """Record a job that may be unique: it is stored, or another job stands for it."""
    for created_at, scheduled_at, _ in tx.db.execute(SQL["id_taken"], (_id(job), 0)):
        return Added(job.id, from_ms(created_at), from_ms(scheduled_at), replayed=True)
    if job.unique is not None:
        for waiting in tx.db.execute(SQL["unique_waiting"], (job.unique.key, job.type, job.namespace)):
            return _stand_in(tx, job, *waiting)
    store(tx, [job], named)
    return Added(job.id, from_ms(tx.wall), from_ms(due_ms(job.at, job.delay, tx.wall)))


def _stand_in(tx: Transaction, job: NewJob, id: bytes, created_at: int, scheduled_at: int, queue: str) -> Added:
    """Keep or replace the unique job that waits already. The new job's idempotency key then leads to it."""
    assert job.unique is not None
    replace = job.unique.replace
    if replace:
        scheduled_at = due_ms(job.at, job.delay, tx.wall)
        row = rows.new_row(job, id, tx.wall, tx.next_move())
        tx.db.execute(SQL["replace_waiting"], row[:OF_A_SCHEDULE])  # a unique job is not of one
        _wake(tx, [row])
        tx.db.execute(SQL["name_queue"], (job.queue,))
    if job.key is not None:
        tx.db.execute(SQL["take_key"], _key_row(job, id, tx.wall))
    left = queue if replace else None
    return Added(rows.id_text(id), from_ms(created_at), from_ms(scheduled_at), kept=not replace, left=left)


def store(tx: Transaction, jobs: Sequence[NewJob], named: Set[str]) -> int:
    """Store jobs, and return how many of them were new."""
    move = tx.next_move()
    new = [rows.new_row(job, _id(job), tx.wall, move) for job in jobs]
    _wake(tx, new)
    before = tx.rows_written()
    tx.db.executemany(SQL["add"], new)
    stored = tx.rows_written() - before
    _write_tags(tx, new)
    keyed = [job for job in jobs if job.key is not None]
    if keyed:
        tx.db.executemany(SQL["take_key"], [_key_row(job, _id(job), tx.wall) for job in keyed])
    unnamed = {job.queue for job in jobs} - named
    if unnamed:
        tx.db.executemany(SQL["name_queue"], [(name,) for name in unnamed])
    return stored


def store_of_schedules(tx: Transaction, jobs: Sequence[ScheduledJob]) -> None:
    """Store jobs of schedules, whose ids are new."""
    move = tx.next_move()
    new = [rows.new_row(one.job, _id(one.job), tx.wall, move, one.schedule, one.slot_at) for one in jobs]
    _wake_for_work(tx, new)
    if any(row[DUE_AT] <= tx.wall for row in new):
        tx.wake(Topic.READY)
    tx.db.executemany(SQL["add"], new)
    _write_tags(tx, new)
    tx.db.executemany(SQL["name_queue"], [(name,) for name in {one.job.queue for one in jobs}])
    tx.unplaced = True


def _write_tags(tx: Transaction, new: Sequence[rows.Row]) -> None:
    """Record the tags of the new jobs, by which they are found. A job that was there before keeps its own."""
    tagged = [(row[ID],) for row in new if row[TAGS] is not None]
    if tagged:
        tx.db.executemany(SQL["add_tags"], tagged)


def _with_replays(tx: Transaction, answers: Sequence[Added], stored: int) -> list[Added]:
    """The answers, with replays for ids that existed before: from an earlier call, or from earlier in this one."""
    right, seen = [], set[str]()
    for answer in answers:
        if not answer.replayed:
            [(created_at, scheduled_at, earlier)] = tx.db.execute(SQL["id_taken"], (rows.id_bytes(answer.id), stored))
            replayed = bool(earlier) or answer.id in seen
            answer = Added(answer.id, from_ms(created_at), from_ms(scheduled_at), replayed=replayed)
        seen.add(answer.id)
        right.append(answer)
    return right


def _wake(tx: Transaction, new: Sequence[rows.Row]) -> None:
    _wake_for_expiry(tx, new)
    _wake_for_work(tx, new)


def _wake_for_expiry(tx: Transaction, new: Sequence[rows.Row]) -> None:
    expiring = [(row[EXPIRES_AT], row[ID]) for row in new if row[EXPIRES_AT] is not None]
    if expiring and not tx.db.execute(SQL["expires_earlier"], min(expiring)).fetchone():
        tx.wake(Topic.EXPIRY)


def _wake_for_work(tx: Transaction, new: Sequence[rows.Row]) -> None:
    """Wake waiters if a new job is ready, or due before all others of its queue, lane and rank."""
    earliest: dict[tuple[str, int, int], rows.Row] = {}
    for row in new:
        _, _, _, queue, _, lane, rank, due_at, *_ = row
        if lane == Lane.REALTIME:
            return tx.wake(Topic.READY)
        head = earliest.setdefault((queue, lane, rank), row)
        if due_at < head[DUE_AT]:
            earliest[queue, lane, rank] = row
    for (queue, lane, rank), row in earliest.items():
        if not tx.db.execute(SQL["earlier"], (queue, lane, rank, row[DUE_AT], row[ID])).fetchone():
            return tx.wake(Topic.READY)
    return None


def _key_row(job: NewJob, id: bytes, wall: int) -> rows.Row:
    assert job.key is not None
    scheduled_at, expires_at = due_ms(job.at, job.delay, wall), wall + span_ms(job.key.kept)
    return (job.key.scope, job.key.key, job.key.request_hash, id, wall, scheduled_at, expires_at)


def _id(job: NewJob) -> bytes:
    id = rows.id_bytes(job.id)
    assert id is not None, "the client makes ids"
    return id


# Changes on request, and the purge


def cancel(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    what = (CANCELLED_WAITING.status.value, tx.wall, CANCELLED_WAITING.error, tx.settled(), key)
    for (hooked,) in list(tx.db.execute(SQL["cancel_waiting"], what)):
        tx.wake(Topic.ENDED)
        if hooked and key is not None:
            record_deliveries(tx, [key])
        return Answer(True, Status.CANCELLED)
    return Answer(_wrote(tx, "cancel_running", (tx.wall, key)), _status(tx, key))


def retry(tx: Transaction, id: str, at: datetime | None = None) -> Answer:
    key, due_at = rows.id_bytes(id), due_ms(at, None, tx.wall)
    again = {"status": RETRIED.value, "lane": RETRIED_LANE.value, "due_at": due_at, "id": key}
    what = {"from": json.dumps(sorted(RETRYABLE)), "resumed": RESUMED, "moved": tx.next_move()}
    did = _wrote(tx, "retry", {**again, **what})
    if did:
        tx.wake(Topic.READY)
    return Answer(did, _status(tx, key))


def restore(tx: Transaction, id: str, within: int) -> Answer:
    key = rows.id_bytes(id)
    found = tx.db.execute(SQL["attempt"], (key,)).fetchone()
    if found is None:
        return Answer(False, None)
    what: dict[str, object] = {"id": key, "error": CANCELLED_WAITING.error, "wall": tx.wall, "within": within}
    did = _wrote(tx, "restore", what | {"status": waiting_after(found[0]).value, "moved": tx.next_move()})
    if did:
        tx.wake(Topic.READY)
    return Answer(did, _status(tx, key))


def change(tx: Transaction, id: str, change: Change) -> Answer:
    key = rows.id_bytes(id)
    if change.revisions is not None:
        job = rows.get(tx, id)
        if job is not None and revision(job) not in change.revisions:
            return Answer(False, job.status)
    moves = change.at is not None or change.delay is not None
    what = {
        "id": key,
        "rank": None if change.priority is None else change.priority.value,
        "tags": None if change.tags is None else json.dumps(change.tags),
        "due_at": due_ms(change.at, change.delay, tx.wall) if moves else None,
        "lane": RESCHEDULED_LANE.value,
        "moved": tx.next_move(),
    }
    changed = tx.db.execute(SQL["change"], what).fetchone()
    if changed is not None:
        wake_for(tx, key, *changed)
    return Answer(changed is not None, _status(tx, key))


def wake_for(tx: Transaction, id: bytes | None, queue: str, lane: int, rank: int, due_at: int) -> None:
    """Wake waiters if a job that waits again is ready, or due before all others of its queue, lane and rank."""
    ready = due_at <= tx.wall or lane >= PARKED  # workers look for parked jobs by type, so none is behind another
    if ready or not tx.db.execute(SQL["earlier"], (queue, lane, rank, due_at, id)).fetchone():
        tx.wake(Topic.READY)


def remove(tx: Transaction, id: str) -> Answer:
    key = rows.id_bytes(id)
    status = _status(tx, key)
    return Answer(_remove_all(tx, [(key,)]) > 0, status)


def purge(tx: Transaction, status: Status, older_than: int, limit: int, queue: str | None) -> int:
    removed = 0
    for name in [name for (name,) in tx.db.execute(SQL["queue_names"])] if queue is None else [queue]:
        removed += remove_ended(tx, name, status, tx.wall - older_than, limit - removed)
    forget_keys(tx, limit)
    return removed


def remove_ended(tx: Transaction, queue: str, status: Status, until: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status before `until`, the oldest first."""
    return _remove_all(tx, list(tx.db.execute(SQL["purgeable"], (queue, status.value, until, limit))))


def remove_beyond(tx: Transaction, queue: str, status: Status, newest: int, limit: int) -> int:
    """Delete up to `limit` jobs of a queue that ended with this status, but keep the `newest` ones."""
    return _remove_all(tx, list(tx.db.execute(SQL["beyond"], (queue, status.value, limit, newest))))


def _remove_all(tx: Transaction, found: Sequence[tuple[bytes | None]]) -> int:
    """Delete ended jobs, and return how many."""
    settled: list[int] = []
    for (key,) in found:
        for (number,) in list(tx.db.execute(SQL["remove"], (key,))):
            settled.append(number)
            _forget(tx, key)
    if settled:
        tx.db.execute(SQL["keep_position"], (max(settled),))
    return len(settled)


def forget_keys(tx: Transaction, limit: int) -> None:
    """Delete up to `limit` idempotency keys that expired."""
    tx.db.execute(SQL["purge_keys"], (tx.wall, limit))


def _forget(tx: Transaction, key: bytes | None) -> None:
    tx.db.execute(SQL["remove_attempts"], (key,))
    tx.db.execute(SQL["remove_logs"], (key,))


def _status(tx: Transaction, key: bytes | None) -> Status | None:
    row = tx.db.execute(SQL["status"], (key,)).fetchone()
    return None if row is None else Status(row[0])


def _wrote(tx: Transaction, name: str, what: dict[str, object] | tuple[object, ...]) -> bool:
    tx.db.execute(SQL[name], what)
    return tx.db.changes() > 0


# Housekeeping


def housekeep(tx: Transaction, retention: Retention, limit: int) -> HousekeepingResult:
    expired = expire_due(tx, limit)
    failed, unknown = fail_unknown(tx, max(limit - len(expired), 1))
    removed, over_at = _apply_retention(tx, retention, max(limit - len(expired) - failed, 1))
    forget_keys(tx, limit)
    tx.db.execute(SQL["forget_silent"], (tx.boot - constants.SILENT,))
    fill_tags(tx)
    moments = [*over_at, *unknown.values(), *(at for (at,) in tx.db.execute(SQL["next_expiry"]))]
    next_in = timedelta(milliseconds=max(min(moments) - tx.wall, 0)) if moments else None
    return HousekeepingResult(tuple(expired), removed, next_in, failed, frozenset(unknown))


def fill_tags(tx: Transaction) -> None:
    """Record the tags of jobs that processes of an earlier version have added, some thousands of rows at a time."""
    tx.db.execute(SQL["fill_tags"], (FILLED,))
    tx.db.execute(SQL["tags_filled"], (FILLED,))


def expire_due(tx: Transaction, limit: int) -> list[str]:
    """Expire waiting jobs whose time has passed, and return their ids."""
    return expire(tx, [number for (number,) in tx.db.execute(SQL["expired"], (tx.wall, limit))])


def expire(tx: Transaction, numbers: Sequence[int]) -> list[str]:
    """Expire waiting jobs, given by row id, and return their ids."""
    return _end_waiting(tx, numbers, EXPIRED)


def _end_waiting(tx: Transaction, numbers: Sequence[int], verdict: Verdict) -> list[str]:
    if not numbers:
        return []
    what = (verdict.status.value, tx.wall, verdict.error, tx.settled(), json.dumps(numbers))
    ended = list(tx.db.execute(SQL["end_chosen"], what))
    tx.wake(Topic.ENDED)
    record_deliveries(tx, [id for id, hooked in ended if hooked])
    return [rows.id_text(id) for id, _ in ended]


def fail_unknown(tx: Transaction, limit: int) -> tuple[int, dict[str, int]]:
    """Fail parked jobs of types that no live worker has known for `NO_HANDLER_GRACE`. Returns how many, and when the next
    job fails of each type that no live worker knows."""
    parked = [ParkedType(*row) for row in tx.db.execute(SQL["parked_types"])]
    if not parked:
        return 0, {}
    judged = judge(parked, registry.workers(tx), tx.wall)
    tx.db.executemany(SQL["note_unknown"], [(one.unknown_since, one.type, one.queue) for one in judged.changed])
    tx.db.executemany(SQL["forget_parked"], [(one.type, one.queue) for one in judged.forgotten])
    due: list[int] = []
    next_at: dict[str, int] = {}
    for type, queue, lane, rank, due_at, _ in heads.of_parked(tx, {type for type, _ in judged.unknown}):
        if (type, queue) not in judged.unknown:
            continue
        at = fails_at(judged.unknown[type, queue], due_at)
        next_at[type] = min(at, next_at.get(type, at))
        if at <= tx.wall and len(due) < limit:
            scan = (type, queue, lane, rank, failing_until(tx.wall), limit - len(due))
            due += [number for number, _ in tx.db.execute(SQL["parked_scan"], scan)]
    _end_waiting(tx, due, UNKNOWN_TYPE)
    return len(due), next_at


def _apply_retention(tx: Transaction, retention: Retention, limit: int) -> tuple[int, list[int]]:
    """Delete ended jobs beyond their retention; returns how many, and when more are due."""
    limits, removed = RetentionLimits(retention, tx.db.execute(SQL["retentions"])), 0
    for queue, status, keep in limits.of(list(tx.db.execute(SQL["ended_kinds"]))):
        if keep.age is not None:
            removed += remove_ended(tx, queue, status, tx.wall - span_ms(keep.age), limit - removed)
        if keep.count is not None:
            removed += remove_beyond(tx, queue, status, keep.count, limit - removed)
        if removed >= limit:
            return removed, [OVERDUE]
    return removed, limits.over_at(tx.db.execute(SQL["ended_kinds"]))


# Webhook deliveries, recorded in the transaction that ends their job


def record_deliveries(tx: Transaction, ids: Iterable[bytes]) -> None:
    """Record a delivery for the end of each of these jobs, in the transaction that ended them."""
    ended = [columns.ended_job(row, rows.id_text(id)) for id in ids for row in list(tx.db.execute(SQL["ended"], (id,)))]
    requests = [request for job in ended if (request := delivery(job)) is not None]
    if requests:
        store(tx, requests, frozenset())
        tx.unplaced = True
