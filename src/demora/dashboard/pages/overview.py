"""The overview: what is wrong now, how many jobs there are, how runs went in the last hour, day or week, what comes due, and
what each slot runs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from ...api.operations.operation import SEARCH_LIMIT
from ...core.access import Scope
from ...core.job import Job
from ...core.workers import WorkerRecord
from ...errors import SearchTooSlow, TooManySearches
from ..charts import AHEAD, AHEAD_WORDS, SPANS, STRIP_HEIGHT, DueStrip, drawn_flow, due_strip
from ..reading import (
    FLOW_READ_EVERY,
    is_live,
    offers_demo,
    read_activity,
    read_paces,
    read_pictures,
    read_running,
    read_troubles,
    read_workers,
    totals,
)
from ..visit import Route, View, Visit

DUE_COUNTED_EVERY = 30.0  # seconds; an action counts anew
TOO_MANY = "There are too many waiting jobs to count in time."


class WorkerSlots(msgspec.Struct, frozen=True):
    """What a worker runs now. `jobs` are those that are read; it may run more (`busy`)."""

    id: str
    host: str
    slots: int
    busy: int
    jobs: list[Job]


def slots_of(workers: Sequence[WorkerRecord], busy: dict[str, int], running: Sequence[Job]) -> list[WorkerSlots]:
    """Return what each live worker runs, the busiest first; and the jobs of workers that are gone, under no slot."""
    found = [
        WorkerSlots(one.id, one.host, one.slots, busy.get(one.id, 0), [job for job in running if job.worker_id == one.id])
        for one in workers
    ]
    found.sort(key=lambda one: (-one.busy, one.id))
    known = {one.id for one in workers}
    lost = [job for job in running if job.worker_id not in known]
    return [*found, *([WorkerSlots("", "", 0, len(lost), lost)] if lost else [])]


async def show_overview(visit: Visit) -> View:
    span = visit.query.get("span", "hour")
    span = span if span in SPANS else "hour"
    activity, workers, paces = await read_activity(visit), await read_workers(visit), await read_paces(visit)
    live = [worker for worker in workers if is_live(worker)]
    flow, pictures, troubles, due = await asyncio.gather(  # so that none waits for another
        _flow(visit, span),
        read_pictures(visit, activity.queues, span),
        read_troubles(visit, activity, workers),
        _due(visit, span),
    )
    counts, paused = totals(activity.queues), {queue.name for queue in activity.queues if queue.pause}
    releases = [pacing.next_release_at for pacing in paces.values() if pacing.queue not in paused]
    return View(
        "overview.html",
        {
            "page": "overview",
            "troubles": troubles,
            "counts": counts,
            "oldest": min(activity.due_since.values(), default=None),
            "held": sum(pacing.held for pacing in paces.values()),
            "next_release": min((at for at in releases if at is not None), default=None),
            "slots": sum(worker.slots for worker in live),
            "workers": live,
            "slots_now": slots_of(live, activity.running, await read_running(visit) if counts.processing else []),
            "is_new": not activity.mark,
            "demo": offers_demo(visit),
            "span": span,
            "spans": SPANS,
            **flow,
            "depth": pictures.depth,
            "due": due,
            "due_words": AHEAD_WORDS[span],
            "strip_height": STRIP_HEIGHT,
            "due_form": {"hour": "%H:%M", "day": "%a %H:%M", "week": "%d %b"}[span],
        },
    )


async def _flow(visit: Visit, span: str) -> dict[str, Any]:
    """Return what the page shows of runs. All pages share it."""

    async def read() -> dict[str, Any]:
        return drawn_flow(await visit.client.flow(span))

    return await visit.read_soon(f"flow {span}", FLOW_READ_EVERY[span], read) or drawn_flow(None)


async def _due(visit: Visit, span: str) -> DueStrip | str:
    """Return the due strip, or why there is none. That the jobs cannot be counted in time is kept like any other answer."""
    until, steps = AHEAD[span]

    async def read() -> list[int] | str:
        try:
            return await visit.client.coming(until, steps, within=SEARCH_LIMIT)
        except SearchTooSlow:
            return TOO_MANY

    try:
        counts = await visit.read_soon(f"due {span}", DUE_COUNTED_EVERY, read)
    except TooManySearches:
        counts = TOO_MANY
    if counts is None or isinstance(counts, str):
        return counts or "Counting the jobs…"
    return due_strip(counts, span, visit.now, lambda search: visit.link("jobs", q=search))


ROUTES = (Route("GET", "/", Scope.READ, show_overview),)
