"""Reading jobs and queues."""

import json
from collections import defaultdict
from collections.abc import Iterable

from ...core.job import Attempt, Job, Lane, LogLine
from ...core.spans import from_ms, span_ms
from ...core.states import Status
from ...store.jobs import ALL_QUEUES, Page, Query, Queue, QueueQuery
from ..stored_paces import pace_of
from . import rows
from .connections import SQL
from .transactions import Transaction

# Statuses whose jobs have an index of their own, and the block that limits `find` to it.
_NARROW = {frozenset({Status.FAILED}): "narrow_dead", frozenset({Status.PROCESSING}): "narrow_processing"}


def get(tx: Transaction, id: str) -> Job | None:
    key = rows.id_bytes(id)
    row = tx.db.execute(SQL["job"], (key,)).fetchone()
    if row is None or key is None:
        return None
    log = [LogLine(from_ms(at), line) for at, line in tx.db.execute(SQL["logs"], (key,))]
    return rows.whole_job(row, _attempts(tx, [key])[key], log, tx.wall - tx.boot)


def find(tx: Transaction, query: Query) -> Page:
    what = {
        "after": rows.id_bytes(query.after) if query.after else None,
        "statuses": json.dumps(sorted(query.statuses)) if query.statuses else None,
        "queue": query.queue,
        "type": query.type,
        "tag": query.tag,
        "before": None if query.older_than is None else tx.wall - span_ms(query.older_than),
        "limit": query.limit + 1,
        "payload": query.payload,
        "result": query.result,
        "bytes": query.bytes,
    }
    page, more = _page(tx.db.execute(_find_sql(query), what), query)
    attempts = _attempts(tx, [row[0] for row in page])
    jobs = [rows.whole_job(row, attempts[row[0]], [], tx.wall - tx.boot) for row in page]
    return Page(jobs, jobs[-1].id if more else None)


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


def _page(found: Iterable[rows.Row], query: Query) -> tuple[list[rows.Row], bool]:
    """The rows of a page, without their sizes, and whether there are more."""
    page: list[rows.Row] = []
    room = query.bytes
    for *row, size in found:
        if len(page) == query.limit or (room is not None and page and size > room):
            return page, True
        page.append(tuple(row))
        if room is not None:
            room -= size
    return page, False


def _waiting(tx: Transaction, shown: dict[str, str]) -> dict[str, tuple[int, int]]:
    """How many jobs of each queue are ready and how many delayed: due later, or held by a pace."""
    governed, counts = _governed(tx), defaultdict[str, tuple[int, int]](lambda: (0, 0))
    for queue, lane, due, later in tx.db.execute(SQL["count_waiting"], {"wall": tx.wall, **shown}):
        ready, delayed = counts[queue]
        holds = lane in governed.get(queue, ())
        counts[queue] = (ready, delayed + due + later) if holds else (ready + due, delayed + later)
    return counts


def _governed(tx: Transaction) -> dict[str, tuple[Lane, ...]]:
    """The lanes that paces govern, by queue."""
    return {queue: pace_of(pace).governs.lanes for queue, pace, *_ in tx.db.execute(SQL["paces"])}


def _find_sql(query: Query) -> str:
    narrow = _NARROW.get(query.statuses)
    return SQL["find"].replace("/* narrowed to */ where true", SQL[narrow]) if narrow else SQL["find"]


def _attempts(tx: Transaction, keys: Iterable[bytes]) -> dict[bytes, list[Attempt]]:
    attempts: dict[bytes, list[Attempt]] = defaultdict(list)
    for row in tx.db.execute(SQL["attempts"], (json.dumps([key.hex() for key in keys]),)):
        attempts[row[0]].append(rows.attempt(row))
    return attempts
