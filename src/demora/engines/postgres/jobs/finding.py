"""Lists of jobs: walks an index in the order of the list and picks the jobs that match; see `sql/walks.py`."""

import itertools
import time
from typing import Any

from ....core.filters import Sort
from ....core.job import Job
from ....core.spans import to_ms
from ....store.jobs import MOST_READ, MOST_TIME, Count, Page, Query
from ...sql.walks import (
    DISORDER,
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
from ..connection.connections import Session, walk
from ..rows import whole_job

FIRST_CHUNK, GROWTH = 200, 4  # jobs that a statement reads at first, and how that number grows
MOST_AT_ONCE = 20_000  # jobs that one statement reads, of all kinds together
_ORDER = {Sort.CREATED: "id desc", Sort.ENDED: "at desc, row desc", Sort.DUE: "at, row"}


async def find(session: Session, query: Query, schema: str) -> Page:
    async with session.transaction(isolation="repeatable_read", readonly=True):  # both statements see the same jobs
        walked = await _walk(session, query, schema, query.limit + 1)
        jobs = await _read(session, query, walked.found[: query.limit])
    return page_of(query, jobs, walked)


async def count(session: Session, query: Query, schema: str) -> Count:
    walked = await _walk(session, query, schema, MOST_READ)
    return Count(len(walked.found), walked.stopped is None)


async def _walk(session: Session, query: Query, schema: str, limit: int) -> WalkEnd:
    """Read jobs until `limit` of them match, all are read, or the reading takes too long."""
    of, tested = walk_of(query), conditions(query)
    statement = walk(schema, of.value, tuple(tested), "row desc" if of is Walk.CREATED else _ORDER[query.sort])
    filter = query.filter
    own = {"tag": next(iter(filter.tags), None), "schedule": filter.schedule, "error": filter.error}
    values: dict[str, Any] = {**own, **tested, **await _kinds(session, query, of)}
    found: list[ListPlace] = []
    until, left = time.monotonic() + MOST_TIME.total_seconds(), MOST_READ
    most = max(MOST_AT_ONCE // max(len(values.get("kinds", ())), 1), 1)
    chunk = min(_first_chunk(query, limit, tested) if limit < MOST_READ else MOST_AT_ONCE, most, left)
    bounds = await _bounds(session, query)
    while True:
        rows = await session.rows(statement, **values, **bounds, chunk=chunk, wanted=limit - len(found))
        found += [ListPlace(row["at"], row["row"], str(row["id"])) for row in rows if row["matches"]]
        read = rows[-1]["read"] if rows else 0
        left -= read
        if len(found) >= limit:
            return WalkEnd(found[:limit], found[limit - 1])
        if read < chunk:
            return WalkEnd(found, None)
        last = ListPlace(rows[-1]["at"], rows[-1]["row"], str(rows[-1]["id"]))
        if left <= 0 or time.monotonic() > until:
            return WalkEnd(found, last)
        bounds |= {"before": last.id} if of.by_id else {"at": last.at, "row": last.row}
        chunk = min(chunk * GROWTH, most, left)


def _first_chunk(query: Query, limit: int, tested: dict[str, Any]) -> int:
    """How many jobs to read at first: no more than those wanted if all of them match."""
    if not tested:
        return limit
    beyond = walk_of(query) is Walk.CREATED and query.after is None and query.filter.created.until is not None
    return max(limit, FIRST_CHUNK) + (DISORDER if beyond else 0)  # the first `DISORDER` rows may be after the range


async def _bounds(session: Session, query: Query) -> dict[str, Any]:
    if walk_of(query).by_id:
        return {"before": id_bound(query)}
    return {**place_bounds(query), **(await _row_bounds(session, query) if query.sort is Sort.CREATED else {})}


async def _row_bounds(session: Session, query: Query) -> dict[str, int]:
    times = query.filter.created
    found = [None if at is None else await session.row("row_at", moment=to_ms(at)) for at in (times.since, times.until)]
    return row_bounds(*(None if row is None else row["low"] for row in found))


async def _kinds(session: Session, query: Query, walk: Walk) -> dict[str, list[Any]]:
    """What the jobs of each sorted part of a walk have in common, as columns."""
    queue, statuses = query.filter.queue, sorted(query.filter.statuses)
    kinds: list[Any]
    if walk.of_types:
        kinds = list(itertools.product(await _types(session, query), statuses))
        return _columns(kinds, "kinds", "kind_statuses")
    if walk is Walk.ENDED_OF_QUEUE:
        own = [(queue, status) for status in statuses]
        kinds = await session.rows("ended_kinds") if queue is None else own
        return _columns([kind for kind in kinds if kind[1] in statuses], "kinds", "kind_statuses")
    if walk is Walk.DUE_OF_QUEUE:
        own_lanes = [(queue, *lane_and_rank) for lane_and_rank in LANES_AND_RANKS]
        return _columns(await session.rows("waiting_kinds") if queue is None else own_lanes, "kinds", "lanes", "ranks")
    if walk is Walk.RETRYING:
        return _columns(await session.rows("retrying_kinds") if queue is None else [(queue,)], "kinds")
    return {}


def _columns(rows: list[Any], *names: str) -> dict[str, list[Any]]:
    return {name: [row[n] for row in rows] for n, name in enumerate(names)}


async def _types(session: Session, query: Query) -> list[str]:
    if query.filter.exact_type is not None:
        return [query.filter.exact_type]
    name = "waiting_types" if query.sort is Sort.DUE else "ended_types"
    return [row["type"] for row in await session.rows(name, prefix=query.filter.type_prefix)]


async def _read(session: Session, query: Query, places: list[ListPlace]) -> list[Job]:
    """The jobs of a page, as many as its bytes allow."""
    rows = await session.rows(
        "find",
        ids=[place.id for place in places],
        with_payload=query.payload,
        with_result=query.result,
        bytes=query.bytes,
    )
    return [whole_job(row) for row in rows]
