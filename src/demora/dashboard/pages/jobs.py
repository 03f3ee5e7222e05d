"""The list of jobs: searched, explained row by row, and acted upon by selection. And the form that adds a job by hand."""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

import msgspec
from markupsafe import Markup
from starlette.responses import JSONResponse, Response

from ...api.operations.operation import SEARCH_LIMIT
from ...client.why import Why
from ...core.access import Scope
from ...core.filters import JobFilter, Sort, sort_of
from ...core.job import Job, Priority
from ...core.payload import unpack
from ...core.spans import ZERO, say
from ...errors import DemoraError, Invalid, SearchTooSlow, TooManySearches
from ...store.diagnostics import Activity
from ...store.jobs import Page
from ...system import notices
from ..drawing import draw_part, state_of, tell_times
from ..payload_form import PayloadField, payload_fields, read_payload
from ..reading import Short, failure_groups, in_short, offers_demo, read_activity, read_workers, totals
from ..search import QUALIFIERS, STATUSES, Search, read_search
from ..visit import Acted, Route, View, Visit, address, whole_number

PER_PAGE = 50
MOST_OFFERED = 200  # values that the search completes for one qualifier
TAGGED = 200  # jobs whose tags it completes
MOST_DRAWN = 2000  # rows that are kept as they were drawn, about 2 kB each


class JobRow(msgspec.Struct, frozen=True):
    """A job in the list: its state, and why it is in that state."""

    job: Job
    state: str
    short: Short
    sentence: str


class Cells(msgspec.Struct, frozen=True):
    """What the list shows of a job. `at` is when it was added, or when it ended."""

    id: str
    type: str
    name: str
    queue: str
    priority: str
    tags: tuple[str, ...]
    state: str
    short: Short
    sentence: str
    progress: float | None
    at: datetime


def row_of(job: Job, why: Why) -> JobRow:
    return JobRow(job, state_of(job.status.name, why.reason), in_short(job, why), why.sentence)


def cells_of(row: JobRow, sort: Sort) -> Cells:
    job = row.job
    at = job.completed_at if sort is Sort.ENDED and job.completed_at else job.created_at
    progress = job.progress if row.state == "running" else None
    shown = (job.id, job.type, job.name, job.queue, job.priority.name.lower(), job.tags[:3])
    return Cells(*shown, row.state, row.short, row.sentence, progress, at)


@lru_cache(MOST_DRAWN)  # open pages show mostly rows that have not changed since the last look
def draw_row(cells: Cells, base: str, *, selectable: bool) -> Markup:
    """Return the row of a job, with times that `tell_times` tells."""
    return draw_part("job_row", cells, address(base, "jobs", cells.id), selectable)


async def show_jobs(visit: Visit) -> View:
    """Show a page of jobs. A refresh names the `rows` that the browser shows: they stay, and new jobs are only counted."""
    text, problem = visit.query.get("q", ""), None
    try:
        search = read_search(text, visit.now)
    except Invalid as invalid:
        search, problem = Search(text), invalid.reason
    rows, after, more = list[JobRow](), visit.query.get("after") or None, None
    kept = [one for one in visit.query.get("rows", "").split(",") if one][:PER_PAGE]
    sorts = sorts_of(search.filter)
    sort = next((one for one in sorts if one.value == visit.query.get("sort")), sorts[0])
    new = 0
    if problem is None:
        try:
            if kept:
                rows, more = await _explained(visit, kept), visit.query.get("next") or None
                new = 0 if after else await _count_new(visit, search, sort, [row.job for row in rows], complete=not more)
            else:
                page = await _find(visit, search, sort, after)
                rows, more = await _explained(visit, [job.id for job in page.jobs]), page.next
        except DemoraError as error:
            problem = error.reason if isinstance(error, Invalid) else str(error)
    activity = await read_activity(visit)
    counts = totals(activity.queues)
    values = {
        "page": "jobs",
        "search": search,
        "problem": problem,
        "rows": tell_times((_drawn(visit, cells_of(row, sort)) for row in rows), visit.now),
        "shown": len(rows),
        "new": new,
        "after": after,
        "more": more,
        "sort": sort,
        "asked_sort": None if sort is sorts[0] else sort.value,
        "sorts": [(one, _SORTS[one], "" if one is sorts[0] else one.value) for one in sorts],
        "counts": {"waiting": counts.ready + counts.delayed, "running": counts.processing, "failed": counts.dead},
        "known": json.dumps(await _completions(visit, activity)),
        "is_new": not activity.mark,
        "demo": offers_demo(visit),
        "per_page": PER_PAGE,
    }
    return View("jobs.html", values)


def _drawn(visit: Visit, cells: Cells) -> Markup:
    return draw_row(cells, visit.base, selectable=visit.may("operate"))


async def _explained(visit: Visit, ids: Sequence[str]) -> list[JobRow]:
    if not ids:
        return []
    found = await visit.shared.get(f"why {','.join(ids)}", 1.0, lambda: visit.client.why_many(ids))
    return [row_of(job, why) for job, why in found]


_SORTS = {Sort.CREATED: "Newest first", Sort.DUE: "Next due first", Sort.ENDED: "Last ended first"}


def sorts_of(filter: JobFilter) -> list[Sort]:
    """Return the orders that a list can have, its usual one first."""
    usual = sort_of(filter)[1]
    return [usual] if usual is Sort.CREATED else [usual, Sort.CREATED]


async def _find(visit: Visit, search: Search, sort: Sort, after: str | None = None) -> Page:
    return await visit.client.find(search.filter, sort=sort, after=after, limit=PER_PAGE, fields=(), within=SEARCH_LIMIT)


async def _count_new(visit: Visit, search: Search, sort: Sort, shown: Sequence[Job], *, complete: bool) -> int:
    """Return how many jobs match that are not shown and come before one that is, at most a page of them. Where the list
    shows every job that matched (`complete`), or none of the shown ones matches any more, all others are new."""
    page = await visit.shared.get(f"newest {sort.value} {search.text}", 1.0, partial(_find, visit, search, sort))
    ids = {job.id for job in shown}
    wanted = search.filter.statuses
    places = [_place(job, sort) for job in shown if not wanted or job.status in wanted]
    last = None if complete or not places else max(places)
    return sum(job.id not in ids and (last is None or _place(job, sort) < last) for job in page.jobs)


def _place(job: Job, sort: Sort) -> tuple[float, int]:
    """Return what a list is sorted by: a smaller place comes first. Ids grow with time."""
    number = UUID(job.id).int
    if sort is Sort.DUE:
        return job.due_at.timestamp(), number
    if sort is Sort.ENDED:
        return -(job.completed_at or job.created_at).timestamp(), -number
    return 0.0, -number


async def _completions(visit: Visit, activity: Activity) -> dict[str, Any]:
    """Return what the search completes: qualifiers, and the values that are known without reading jobs."""
    types = {type for worker in await read_workers(visit) for type in worker.types} | set(visit.app.registry.types())
    values = {
        "status": list(STATUSES),
        "queue": [queue.name for queue in activity.queues][:MOST_OFFERED],
        "type": sorted(types)[:MOST_OFFERED],
        "priority": [one.name.lower() for one in Priority],
        **{name: ["<1h", "<1d", "<7d", ">1d"] for name in ("created", "ended", "due")},
    }
    return {"qualifiers": list(QUALIFIERS.items()), "values": values}


async def complete_more(visit: Visit) -> Response:
    """Return further values that the search completes, which need to read jobs: the script asks for them when the field is
    first used, so that no page waits for them."""
    groups = (await failure_groups(visit)).groups
    errors = {group.error for group in groups if group.error and group.error.isprintable() and " " not in group.error}
    values = {"error": sorted(errors)[:MOST_OFFERED], "tag": sorted(await _tags(visit))[:MOST_OFFERED]}
    return JSONResponse(values)


async def _tags(visit: Visit) -> set[str]:
    """Return the tags of the newest jobs, read once in 30 seconds."""

    async def read() -> set[str]:
        page = await visit.client.find(sort=Sort.CREATED, limit=TAGGED, fields=(), within=SEARCH_LIMIT)
        return {tag for job in page.jobs for tag in job.tags}

    try:
        return await visit.shared.get("tags", 30.0, read)
    except (SearchTooSlow, TooManySearches):
        return set()


# Adding a job by hand


async def show_form(visit: Visit) -> View:
    """Show the form that adds a job; with `copy`, filled in from another job."""
    job = await visit.client.get(visit.query["copy"]) if visit.query.get("copy") else None
    type = visit.query.get("type") or (job.type if job else "")
    types = [one for one in sorted(visit.app.registry.types()) if not one.startswith("demora.")]
    queues = [queue.name for queue in (await read_activity(visit)).queues]
    payload = _pretty(visit.redacted(job, "payload") or b"null") if job else "{\n}"
    values = {
        "fields": None if job else _fields(visit, type),
        "copied": job,
        "type": type,
        "types": types,
        "queues": queues,
        "payload": payload,
        "priorities": list(Priority),
        "kept": _kept(job) if job else {},
        "redacts": visit.redact is not None,
    }
    return View("dialogs/enqueue.html", values)


async def show_fields(visit: Visit) -> View:
    """Show the part of the form that asks for the payload of a type: its fields, or JSON where no handler is known here."""
    return View("parts/payload_fields.html", {"fields": _fields(visit, visit.query.get("type", "")), "payload": "{\n}"})


def _fields(visit: Visit, type: str) -> list[PayloadField] | None:
    handler = visit.app.registry.get(type.strip())
    return None if handler is None or not handler.field_names else payload_fields(handler)


def _payload(visit: Visit) -> Any:
    """Return the payload of the form: the JSON that it holds, or else what its fields say."""
    form, fields = visit.form, _fields(visit, visit.form.get("type", ""))
    if "payload" not in form and fields is not None:
        return read_payload(fields, form)
    try:
        return unpack(form.get("payload", "").encode() or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise Invalid("payload", f"is not JSON: {problem}") from None


_OPTIONS = ("queue", "delay", "name", "max_retries", "retry_delay", "timeout", "webhook_url", "expires_in")


async def _webhook(visit: Visit) -> dict[str, Any]:
    """Return the webhook of the copied job if the form still has it: a page shows it without its query, which may be a
    secret."""
    url, copied = visit.form.get("webhook_url", "").strip(), visit.form.get("copied", "")
    if not url or not copied:
        return {}
    whole = (await visit.client.get(copied)).webhook_url
    return {"webhook_url": whole} if whole is not None and url == without_query(whole) else {}


def without_query(url: str) -> str:
    return url.partition("?")[0]


def _kept(job: Job) -> dict[str, str]:
    """Return what a copy has in common with a job, besides its payload, queue, priority and tags."""
    spans = {"retry_delay": job.retry_delay, "timeout": job.timeout}
    if job.expires_at is not None:
        spans["expires_in"] = job.expires_at - job.created_at
    kept = {name: say(value) for name, value in spans.items() if value is not None and value > ZERO}
    kept |= {"max_retries": str(job.max_retries), "webhook_url": without_query(job.webhook_url or "")}
    return kept | {"name": job.name if job.name != job.type else ""}


async def add_job(visit: Visit) -> Acted:
    form, payload = visit.form, _payload(visit)
    options: dict[str, Any] = {name: form[name].strip() for name in _OPTIONS if form.get(name, "").strip()}
    if "max_retries" in options:
        options["max_retries"] = whole_number(options["max_retries"])
        if options["max_retries"] is None:
            raise Invalid("max_retries", "must be a whole number")
    options |= await _webhook(visit)
    tags = [tag.strip() for tag in form.get("tags", "").split(",") if tag.strip()]
    priority = form.get("priority") or None
    more: dict[str, Any] = ({"tags": tags} if tags else {}) | ({"priority": priority} if priority else {})
    made = visit.client.make(form.get("type", "").strip(), payload, **options, **more)
    [(job, _)] = await visit.submissions.add(visit.client, visit.visitor.key, [made])
    notices.acted(visit.by, "enqueue", job.id)
    return Acted(f"Job of type {job.type} added.", go=visit.link("jobs", job.id))


def _pretty(text: bytes) -> str:
    return msgspec.json.format(text, indent=2).decode()


ROUTES = (
    Route("GET", "/jobs", Scope.READ, show_jobs),
    Route("GET", "/jobs/known", Scope.READ, complete_more),
    Route("GET", "/jobs/new", Scope.SUBMIT, show_form),
    Route("GET", "/jobs/new/fields", Scope.SUBMIT, show_fields),
    Route("POST", "/jobs/new", Scope.SUBMIT, add_job),
)
