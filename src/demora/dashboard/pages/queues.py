"""The queues: their counts, pauses and paces, and the editor that shows when held jobs would go before a pace is saved."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from markupsafe import Markup

from ...api.operations.operation import SEARCH_LIMIT
from ...core.access import Scope
from ...core.pace import EVERY_QUEUE, Governs, Pace, Rate
from ...core.spans import say
from ...core.states import WAITING
from ...core.workers import serves
from ...errors import DemoraError, Invalid, QueueNotFound, SearchTooSlow, TooManySearches
from ...store.jobs import Queue
from ...store.paces import Pacing
from ...system import notices
from ..charts import SPANS, Spark, drawn_flow
from ..drawing import draw_part, rough, tell_times
from ..reading import (
    FLOW_READ_EVERY,
    is_live,
    offers_demo,
    read_activity,
    read_paces,
    read_pictures,
    read_workers,
)
from ..visit import Acted, Route, View, Visit, address, whole_number
from .jobs import JobRow, row_of

MOST_DRAWN = 250  # rows of queues that are kept, for each of four kinds of visitors
MOST_JOBS = 12  # jobs that the page of a queue lists
_STRIP, _LABEL = 680, 72  # the width of the picture of releases, and of a time in it


class Dot(msgspec.Struct, frozen=True):
    """A release in a picture: its place, and whether there is room for its time; on a phone there is room for fewer."""

    x: float
    at: datetime
    labelled: bool
    on_phones: bool


class Paced(msgspec.Struct, frozen=True):
    """What the table of queues shows of a pace."""

    rate: str
    held: int
    next_release_at: datetime | None


async def show_queues(visit: Visit) -> View:
    activity, paces, workers = await read_activity(visit), await read_paces(visit), await read_workers(visit)
    live = [worker for worker in workers if is_live(worker)]
    pictures = await read_pictures(visit, activity.queues, "hour")
    rows = (
        draw_queue(
            *(
                queue,
                _paced(queue, paces.get(queue.name)),
                activity.due_since.get(queue.name),
                pictures.completed.get(queue.name),
            ),
            served=any(serves(worker, queue.name) for worker in live),
            base=visit.base,
            may=tuple(scope for scope in ("operate", "admin") if visit.may(scope)),
        )
        for queue in activity.queues
    )
    values = {
        "page": "queues",
        "rows": tell_times(rows, visit.now),
        "every": paces.get(EVERY_QUEUE),
        "say_rate": say_rate,
        "demo": offers_demo(visit),
        "depth": pictures.depth,
    }
    return View("queues.html", values)


def _paced(queue: Queue, pacing: Pacing | None) -> Paced | None:
    if pacing is None:
        return None
    return Paced(say_rate(pacing.rate), pacing.held, None if queue.pause else pacing.next_release_at)


@lru_cache(4 * MOST_DRAWN)  # most queues are as they were a second ago
def draw_queue(
    queue: Queue,
    paced: Paced | None,
    oldest: datetime | None,
    drawn: Spark | None,
    *,
    served: bool,
    base: str,
    may: tuple[str, ...],
) -> Markup:
    """Return the row of a queue, with times that `tell_times` tells."""
    lists = {word: address(base, "jobs", q=f"status:{word} queue:{queue.name}") for word in ("waiting", "running", "failed")}
    return draw_part(
        *("queue_row", queue, paced, oldest, drawn, served, base, lists),
        *(address(base, "queues", queue.name, *rest) for rest in ((), ("resume",), ("pause",), ("pace",))),
        may,
    )


async def show_queue(visit: Visit) -> View:
    """Show one queue. One that has never had a job is shown too: it may be given a pace before its first job."""
    name = visit.path["name"]
    activity, workers = await read_activity(visit), await read_workers(visit)
    queue = next((one for one in activity.queues if one.name == name), None)
    pacing = await visit.client.pacing(name)
    if queue is None:
        if pacing is None:
            raise QueueNotFound(name)
        queue = Queue(name)
    span = visit.query.get("span", "hour")
    span = span if span in SPANS else "hour"
    held = min(pacing.held, 20) if pacing else 0
    preview = await visit.client.preview_pace(name) if held else None
    values = {
        "page": "queues",
        "queue": queue,
        "pacing": pacing,
        "releases": strip(visit.now, preview.releases) if preview else [],
        "strip_width": _STRIP,
        "oldest": activity.due_since.get(name),
        "workers": [worker for worker in workers if is_live(worker) and serves(worker, name)],
        "span": span,
        "spans": SPANS,
        **await _flow(visit, name, span),
        "rows": await _next_jobs(visit, name),
        "changes": (await visit.client.pace_changes(name))[:8],
        "say_pace": say_pace,
        "say_rate": say_rate,
    }
    return View("queue.html", values)


async def _flow(visit: Visit, queue: str, span: str) -> dict[str, Any]:
    """Return what the page shows of runs. All pages share it."""

    async def read() -> dict[str, Any]:
        return drawn_flow(await visit.client.flow_of_queue(queue, span))

    return await visit.read_soon(f"flow {span} of {queue}", FLOW_READ_EVERY[span], read) or drawn_flow(None)


async def _next_jobs(visit: Visit, queue: str) -> list[JobRow]:
    """Return the jobs of a queue that are due next; if none waits, those that were added last."""

    async def read() -> list[JobRow]:
        found = await visit.client.find(queue=queue, status=tuple(WAITING), limit=MOST_JOBS, fields=(), within=SEARCH_LIMIT)
        page = found if found.jobs else await visit.client.find(queue=queue, limit=MOST_JOBS, fields=(), within=SEARCH_LIMIT)
        ids = [job.id for job in page.jobs]
        listed = [row_of(job, why) for job, why in await visit.client.why_many(ids)] if ids else []
        return sorted(listed, key=lambda row: _NEXT.get(row.state, len(_NEXT))) if found.jobs else listed

    try:
        return await visit.shared.get(f"jobs of {queue}", 1.0, read)
    except (SearchTooSlow, TooManySearches):
        return []


_NEXT = {"ready": 0, "held": 1, "scheduled": 2}  # a released job may have been due after one that is held


def say_rate(rate: Rate) -> str:
    """Say how fast a pace releases jobs: `3 every 2m, 30s apart`."""
    apart = f", {rough(rate.apart)} apart" if rate.burst > 1 and rate.apart else ""
    return f"{rate.burst} every {say(rate.gap)}{apart}"


def say_pace(pace: Pace) -> str:
    """Say what a pace does, in the words of its editor: `3 every 2m, 30s apart; holds all delayed jobs`."""
    rapid = [f"rapidly {say_rate(pace.rapid)}"] if pace.rapid else []
    protects = [f"protects {', '.join(pace.protect)}"] if pace.protect else []
    return "; ".join([say_rate(pace.rate(quiet=False)), *rapid, f"holds {_HELD[pace.governs]}", *protects])


_HELD = {Governs.BOTH: "all delayed jobs", Governs.SCHEDULED: "scheduled jobs", Governs.RETRIES: "retries"}


def strip(now: datetime, releases: Sequence[datetime]) -> list[Dot]:
    """Place releases on a strip that begins now. Labels that would overlap are left out."""
    whole = max((releases[-1] - now), timedelta(seconds=1)) if releases else timedelta(seconds=1)
    dots, free, free_on_phones = [], -1.0, -1.0
    for at in releases:
        x = round(6 + (_STRIP - 12) * max(at - now, timedelta(0)) / whole, 1)
        labelled = x >= free
        free = x + _LABEL if labelled else free
        on_phones = labelled and x >= free_on_phones and x <= _STRIP - _LABEL
        free_on_phones = x + 2.4 * _LABEL if on_phones else free_on_phones
        dots.append(Dot(x, at, labelled, on_phones))
    return dots


# Pause and resume


async def ask_pause(visit: Visit) -> View:
    queue = await visit.client.queue(visit.path["name"])
    return View("dialogs/pause.html", {"queue": queue})


async def pause(visit: Visit) -> Acted:
    name = visit.path["name"]
    await visit.client.pause(name, visit.form.get("reason", "").strip() or None, by=visit.by)
    notices.acted(visit.by, "pause", name)
    return Acted(f"Queue {name} is paused. Running jobs continue.", undo=visit.link("queues", name, "resume"))


async def resume(visit: Visit) -> Acted:
    name = visit.path["name"]
    await visit.client.resume(name)
    notices.acted(visit.by, "resume", name)
    return Acted(f"Queue {name} is resumed.")


# The pace and its editor


async def edit_pace(visit: Visit) -> View:
    name = visit.path["name"]
    pacing = await visit.client.pacing(name)
    pace = pacing.pace if pacing else Pace()
    values = {"name": name, "pacing": pacing, "pace": pace, "rate": pace.rate(quiet=False), "say": say}
    return View("dialogs/pace.html", values | await _preview(visit, name, None))


async def preview_pace(visit: Visit) -> View:
    """Show when the held jobs would go under the pace that is typed, or what is wrong with it."""
    return View("parts/pace_preview.html", await _preview(visit, visit.path["name"], visit.query))


async def _preview(visit: Visit, name: str, form: Mapping[str, str] | None) -> dict[str, Any]:
    try:
        preview = await visit.client.preview_pace(name, **({} if form is None else _pace_values(form)))
    except DemoraError as problem:
        words = f"{problem.field}: {problem.reason}" if isinstance(problem, Invalid) else str(problem)
        return {"refused": words, "dots": [], "held": 0, "last": None, "strip_width": _STRIP, "words": ""}
    last = preview.releases[-1] if preview.releases else None
    return {
        "refused": None,
        "dots": strip(visit.now, preview.releases),
        "held": preview.held,
        "last": None if last is None else rough(last - visit.now),
        "strip_width": _STRIP,
        "words": f"It would release {say_rate(preview.pace.rate(quiet=False))}.",
    }


async def set_pace(visit: Visit) -> Acted:
    name = visit.path["name"]
    pacing = await visit.client.set_pace(name, by=visit.by, **_pace_values(visit.form))
    notices.acted(visit.by, "set pace", name)
    return Acted(f"Queue {name} now releases {say_rate(pacing.rate)}.")


async def take_pace_off(visit: Visit) -> Acted:
    name = visit.path["name"]
    await visit.client.take_pace_off(name, by=visit.by)
    notices.acted(visit.by, "take pace off", name)
    return Acted(f"Queue {name} no longer has a pace.")


def _pace_values(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `set_pace` from the fields of the editor."""
    values: dict[str, Any] = {}
    for name in ("gap", "stagger"):
        if form.get(name, "").strip():
            values[name] = form[name].strip()
    if form.get("burst", "").strip():
        values["burst"] = whole_number(form["burst"].strip())
        if values["burst"] is None:
            raise Invalid("burst", "must be a whole number")
    if form.get("governs"):
        values["governs"] = form["governs"]
    if not values.get("stagger"):
        values["stagger"] = "fit"
    return values


ROUTES = (
    Route("GET", "/queues", Scope.READ, show_queues),
    Route("GET", "/queues/{name}", Scope.READ, show_queue),
    Route("GET", "/queues/{name}/pause", Scope.OPERATE, ask_pause),
    Route("POST", "/queues/{name}/pause", Scope.OPERATE, pause),
    Route("POST", "/queues/{name}/resume", Scope.OPERATE, resume),
    Route("GET", "/queues/{name}/pace", Scope.ADMIN, edit_pace),
    Route("GET", "/queues/{name}/pace/preview", Scope.ADMIN, preview_pace),
    Route("POST", "/queues/{name}/pace", Scope.ADMIN, set_pace),
    Route("POST", "/queues/{name}/pace/off", Scope.ADMIN, take_pace_off),
)
