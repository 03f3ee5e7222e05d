"""Lists of jobs: walks an index in the order of the list and picks the jobs that match; see `sql/walks.py`."""

import heapq
import itertools
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ....core.filters import Sort
from ....core.job import Job
from ....core.spans import to_ms
from ....core.states import Status
from ....store.jobs import MOST_READ, MOST_TIME, Count, Page, Query
from ...sql.walks import (
    LANES_AND_RANKS,
    ListPlace,
    Walk,
    WalkEnd,
    conditions,
    id_bound,
    page_of,
    place_bounds,
    row_bounds,
    walk_of,
)
from ..connection.connections import SQL
from ..connection.transactions import Transaction
from ..rows import Row, attempts_of, id_bytes, id_text, whole_job

TIMED_AFTER = 1000  # jobs read between two looks at the clock


def find(tx: Transaction, query: Query) -> Page:
    walked = _walk(tx, query, query.limit + 1)
    jobs = _read(tx, query, walked.found[: query.limit])
    return page_of(query, jobs, walked)


def count(tx: Transaction, query: Query) -> Count:
    found, until = 0, time.monotonic() + MOST_TIME.total_seconds()
    for read, (*_, matches) in enumerate(_rows(tx, query, with_ids=False), 1):
        found += bool(matches)
        if read == MOST_READ or (read % TIMED_AFTER == 0 and time.monotonic() > until):
            return Count(found, complete=False)
    return Count(found)


def _walk(tx: Transaction, query: Query, limit: int) -> WalkEnd:
    """Read jobs until `limit` of them match, all are read, or the reading takes too long."""
    found: list[ListPlace] = []
    until = time.monotonic() + MOST_TIME.total_seconds()
    for read, (at, row, id, matches) in enumerate(_rows(tx, query), 1):
        if matches:
            found.append(ListPlace(at, row, id_text(id)))
        if len(found) == limit or read == MOST_READ or (read % TIMED_AFTER == 0 and time.monotonic() > until):
            return WalkEnd(found, ListPlace(at, row, id_text(id)))
    return WalkEnd(found, None)


def _rows(tx: Transaction, query: Query, *, with_ids: bool = True) -> Iterable[Row]:
    """The jobs of a walk in the order of the list. Each kind has a sorted part of them, and the parts are merged.
    Without ids, the index alone has all that a walk reads."""
    walk, what = walk_of(query), _values(tx, query)
    sql = SQL[f"walk_{walk.value}"].replace("/* matches */", _matches(query))
    if not with_ids:
        sql = sql.replace("jobs.rowid, id,", "jobs.rowid, null,")
    if query.sort is Sort.CREATED:
        return tx.db.execute(sql, what)
    parts = [tx.db.execute(sql, what | kind) for kind in _kinds(tx, query, walk)]
    return heapq.merge(*parts, key=lambda row: row[:2], reverse=query.sort is Sort.ENDED)


def _matches(query: Query) -> str:
    return " and ".join(SQL[f"match_{name}"] for name in conditions(query)) or "1"


def _values(tx: Transaction, query: Query) -> dict[str, Any]:
    listed = ("statuses", "priorities", "tags")
    what = {name: json.dumps(value) if name in listed else value for name, value in conditions(query).items()}
    what |= {"wall": tx.wall, "tag": next(iter(query.filter.tags), None)}
    what |= {"schedule": query.filter.schedule, "error": query.filter.error}
    if walk_of(query).by_id:
        return {**what, "before": id_bytes(id_bound(query))}
    return {**what, **place_bounds(query), **(_row_bounds(tx, query) if query.sort is Sort.CREATED else {})}


def _row_bounds(tx: Transaction, query: Query) -> dict[str, int]:
    times = query.filter.created
    return row_bounds(*(None if at is None else _row_at(tx, to_ms(at)) for at in (times.since, times.until)))


def _row_at(tx: Transaction, moment: int) -> int:
    [(row,)] = tx.db.execute(SQL["row_at"], {"moment": moment})
    return int(row)


def _kinds(tx: Transaction, query: Query, walk: Walk) -> Iterator[dict[str, Any]]:
    """What the jobs of each sorted part have in common."""
    filter, statuses = query.filter, sorted(query.filter.statuses)
    if walk is Walk.DEAD_OF_ERROR:
        yield {}
    elif walk.of_types:
        for type, status in itertools.product(_types(tx, query), statuses):
            yield {"kind": type, "status": status}
    elif walk is Walk.RETRYING:
        for (queue,) in [(filter.queue,)] if filter.queue is not None else tx.db.execute(SQL["retrying_kinds"]):
            yield {"kind": queue}
    elif walk is Walk.ENDED_OF_QUEUE:
        yield from _ended_kinds(tx, filter.queue, statuses)
    else:
        own = ((filter.queue, lane, rank) for lane, rank in LANES_AND_RANKS)
        for queue, lane, rank in tx.db.execute(SQL["waiting_kinds"]) if filter.queue is None else own:
            yield {"kind": queue, "lane": lane, "rank": rank}


def _ended_kinds(tx: Transaction, queue: str | None, statuses: list[Status]) -> Iterator[dict[str, Any]]:
    if queue is not None:
        yield from ({"kind": queue, "status": status} for status in statuses)
        return
    for name, status, _ in tx.db.execute(SQL["ended_kinds"]):
        if status in statuses:
            yield {"kind": name, "status": status}


def _types(tx: Transaction, query: Query) -> list[str]:
    if query.filter.exact_type is not None:
        return [query.filter.exact_type]
    name = "waiting_types" if query.sort is Sort.DUE else "ended_types"
    return [type for (type,) in tx.db.execute(SQL[name], {"prefix": query.filter.type_prefix})]


def _read(tx: Transaction, query: Query, places: list[ListPlace]) -> list[Job]:
    """The jobs of a page, as many as its bytes allow."""
    what = {
        "rows": json.dumps([place.row for place in places]),
        "payload": query.payload,
        "result": query.result,
        "bytes": query.bytes,
    }
    page: list[Row] = []
    room = query.bytes
    for *row, size in tx.db.execute(SQL["find"], what):
        if room is not None and page and size > room:
            break
        page.append(tuple(row))
        if room is not None:
            room -= size
    attempts = attempts_of(tx, [row[0] for row in page])
    return [whole_job(row, attempts[row[0]], [], tx.wall - tx.boot) for row in page]
