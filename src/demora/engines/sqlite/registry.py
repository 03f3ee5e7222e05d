"""Queues with their counts and settings, workers and their heartbeats, and the boot of the machine that leases belong to."""

import json
from collections import defaultdict
from collections.abc import Callable

import msgspec

from ...core.job import Lane, lane_of
from ...core.pace import EVERY_QUEUE
from ...core.retention import Retention
from ...core.spans import span_ms
from ...core.workers import WorkerRecord
from ...store.jobs import ALL_QUEUES, Queue, QueueChange, QueueQuery, Topic
from ..sql import columns
from ..sql.paces import pace_of
from . import rows
from .connection.connections import SQL
from .connection.transactions import Transaction


def note_boot(tx: Transaction, boot_id: str) -> None:
    """After a reboot, lapse every lease: no earlier worker is alive, and the clock of leases starts from zero again."""
    row = tx.db.execute(SQL["boot_id"]).fetchone()
    if row is None or row[0] != boot_id:
        tx.db.execute(SQL["lapse_all"])
        tx.db.execute(SQL["forget_workers"])
        tx.db.execute(SQL["forget_schedulers"])
        tx.db.execute(SQL["record_boot"], (boot_id,))


def touch(tx: Transaction) -> None:
    """Write a row without a meaning, to find out whether writes succeed."""
    tx.db.execute(SQL["touch"], (str(tx.wall_us),))


def queues(tx: Transaction, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
    limit = -1 if which.limit is None else which.limit
    what = {"first": which.first, "last": which.last, "after": which.after, "limit": limit}
    found: list[rows.Row] = list(tx.db.execute(SQL["queues"], what))
    if not found:
        return []
    shown = {"first": found[0][0], "last": found[-1][0]}
    waiting = _waiting(tx, shown)
    processing = dict(tx.db.execute(SQL["count_processing"], shown))
    dead = dict(tx.db.execute(SQL["count_dead"], shown))
    return [rows.queue(row, *waiting.get(row[0], (0, 0)), processing.get(row[0], 0), dead.get(row[0], 0)) for row in found]


def _waiting(tx: Transaction, shown: dict[str, str]) -> dict[str, tuple[int, int]]:
    """How many jobs of each queue are ready and how many delayed: due later, or held by a pace."""
    governs, counts = _governed(tx), defaultdict[str, tuple[int, int]](lambda: (0, 0))
    for queue, lane, due, later in tx.db.execute(SQL["count_waiting"], {"wall": tx.wall, **shown}):
        ready, delayed = counts[queue]
        holds = lane_of(lane) in governs(queue)
        counts[queue] = (ready, delayed + due + later) if holds else (ready + due, delayed + later)
    return counts


def _governed(tx: Transaction) -> Callable[[str], tuple[Lane, ...]]:
    """Return a function from a queue to the lanes that its pace governs: its own pace, or that of `*`."""
    own = {queue: () if pace is None else pace_of(pace).governs.lanes for queue, pace in tx.db.execute(SQL["own_paces"])}
    every = own.get(EVERY_QUEUE, ())
    return lambda queue: own.get(queue, every)


def set_queue(tx: Transaction, name: str, change: QueueChange) -> Queue:
    before = [rows.queue(row) for row in tx.db.execute(SQL["queue"], (name,))]
    own = change.retention and change.retention.over(before[0].retention if before else Retention())
    what = {
        "name": name,
        "step": None if change.step is None else span_ms(change.step),
        "strict": None if change.strict is None else int(change.strict),
        "head_start": None if change.head_start is None else span_ms(change.head_start),
        "paused": None if change.paused is None else int(change.paused),
        "reason": change.reason,
        "by": change.by,
        "retention": own and msgspec.json.encode(own).decode(),
        "webhook_url": change.webhook_url,
        "wall": tx.wall,
    }
    tx.db.execute(SQL["set_queue"], what)
    tx.wake(Topic.READY)
    return next(rows.queue(row) for row in tx.db.execute(SQL["queue"], (name,)))


def heartbeat(tx: Transaction, worker: WorkerRecord) -> None:
    what = {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "slots": worker.slots,
        "queues": json.dumps(worker.queues),
        "types": json.dumps(worker.types),
        "paces": worker.paces,
        "wall": tx.wall,
        "boot": tx.boot,
    }
    tx.db.execute(SQL["heartbeat"], what)


def retire(tx: Transaction, worker_id: str) -> None:
    tx.db.execute(SQL["retire"], (worker_id,))


def workers(tx: Transaction) -> list[WorkerRecord]:
    return [columns.worker(row, max(tx.boot - row[7], 0)) for row in tx.db.execute(SQL["workers"])]
