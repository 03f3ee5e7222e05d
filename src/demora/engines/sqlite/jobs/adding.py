"""Adding jobs on SQLite: idempotency keys are read first; then all jobs are written or none."""

from collections.abc import Sequence, Set

from ....core.job import IdempotencyKey, Lane, NewJob, due_ms
from ....core.spans import from_ms, span_ms
from ....store.jobs import Added, Topic
from ...sql.adding import replay, with_stored
from ...sql.schedules import ScheduledJob
from .. import rows
from ..connection.connections import SQL
from ..connection.transactions import Transaction
from ..rows import DUE_AT, EXPIRES_AT, ID, OF_A_SCHEDULE, TAGS


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
                taken[job.key.namespace, job.key.key] = job.key.request_hash, answer
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
    if (key.namespace, key.key) in taken:
        request_hash, first = taken[key.namespace, key.key]
    else:
        found = tx.db.execute(SQL["key_taken"], (key.namespace, key.key, tx.wall)).fetchone()
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
    return (job.key.namespace, job.key.key, job.key.request_hash, id, wall, scheduled_at, expires_at)


def _id(job: NewJob) -> bytes:
    id = rows.id_bytes(job.id)
    assert id is not None, "the client makes ids"
    return id
