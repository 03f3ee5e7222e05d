"""What several pages show: counts, workers, paces and findings. All open pages of a process share each read."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..api.operations.operation import SEARCH_LIMIT
from ..client.counts import FailureGroup
from ..client.why import Why
from ..core.filters import JobFilter
from ..core.job import Job
from ..core.spans import plural
from ..core.states import WAITING, Status
from ..core.workers import WorkerRecord, serves
from ..doctor import judge_jobs, judge_paces
from ..errors import SearchTooSlow, TooManySearches
from ..handlers.builtin import DEMO_OFF, DEMO_TYPES
from ..store.diagnostics import Activity, Finding, JobsOverview, MissingWorker, Waiting
from ..store.jobs import Queue
from ..store.paces import Pacing
from .charts import QueuePictures, draw_queues
from .drawing import measured, sentence
from .search import search_text
from .times import Pieces
from .visit import Visit

EXAMINED_EVERY = 30.0  # seconds between looks at all waiting jobs
MOST_EXAMINED = 200_000  # waiting jobs: with more of them, the findings that need to read each one are left out
GROUPED_EVERY = 30.0  # seconds between looks at all dead letters; an action groups them anew
FLOW_READ_EVERY = {"hour": 5.0, "day": 30.0, "week": 60.0}  # seconds; their steps are 1, 15 and 60 minutes
MOST_FLOWS = 100  # queues whose runs and depths are drawn
MOST_RUNNING = 25  # jobs that the overview lists


class Trouble(msgspec.Struct, frozen=True):
    """Something that is wrong now: in words, what to do about it, and the button that does it.

    `state` is the state of jobs that it is about, None for a warning that is about no state: colour means state and nothing
    else. A button acts (`post`), opens a dialog (`ask`) or leads to a page (`link`). What only a shell can mend has the
    `command`.
    """

    state: str | None
    words: Pieces
    advice: str | None = None
    button: str | None = None
    post: str | None = None
    ask: str | None = None
    link: str | None = None
    command: str | None = None
    scope: str = "operate"


class Troubles(msgspec.Struct, frozen=True):
    """What is wrong now, the worst first. Unless it is `complete`, the waiting jobs are still being read for the first
    time, and more may be wrong."""

    found: list[Trouble]
    complete: bool = True


class Grouped(msgspec.Struct, frozen=True):
    """The dead letters in groups. They are `slow` where there are too many to group in time, and `reading` while they are
    grouped for the first time."""

    groups: list[FailureGroup] = []
    slow: bool = False
    reading: bool = False


class Totals(msgspec.Struct, frozen=True):
    """The counts of all queues together."""

    ready: int = 0
    delayed: int = 0
    processing: int = 0
    dead: int = 0


async def read_activity(visit: Visit) -> Activity:
    return await visit.shared.get("activity", 1.0, visit.client.activity, patience=visit.patience)


async def read_workers(visit: Visit) -> list[WorkerRecord]:
    """Return all registered workers, also those without a recent heartbeat."""
    return await visit.shared.get("workers", 1.0, visit.client.registered_workers)


async def read_paces(visit: Visit) -> dict[str, Pacing]:
    found = await visit.shared.get("paces", 1.0, visit.client.pacings)
    return {pacing.queue: pacing for pacing in found}


async def read_running(visit: Visit) -> list[Job]:
    """Return the jobs that started last among those that run."""

    async def read() -> list[Job]:
        page = await visit.client.find(status=Status.PROCESSING, limit=MOST_RUNNING, fields=(), within=SEARCH_LIMIT)
        return page.jobs

    return await visit.shared.get("running", 1.0, read)


async def failure_groups(visit: Visit) -> Grouped:
    """Return the dead letters in groups. That there are too many is kept like any other answer: each page would try again,
    and take the whole time."""

    async def read() -> Grouped:
        try:
            return Grouped(await visit.client.failure_groups(within=SEARCH_LIMIT))
        except SearchTooSlow:
            return Grouped(slow=True)

    try:
        return await visit.read_soon("failures", GROUPED_EVERY, read) or Grouped(reading=True)
    except TooManySearches:
        return Grouped(slow=True)


async def read_pictures(visit: Visit, queues: Sequence[Queue], span: str) -> QueuePictures:
    """Return pictures of what became of runs, and of how many jobs waited, in each of the queues in which the most jobs wait
    now; empty ones while this is read for the first time. All pages share them, since drawing takes longer than writing the
    page."""
    deepest = sorted(queues, key=lambda queue: (-queue.ready - queue.delayed, queue.name))[:MOST_FLOWS]

    async def read() -> QueuePictures:
        return draw_queues(await visit.client.flow_of_queues([queue.name for queue in deepest], span))

    return await visit.read_soon(f"queue pictures {span}", FLOW_READ_EVERY[span], read) or QueuePictures()


def offers_demo(visit: Visit) -> bool:
    """Whether the page can add demo jobs: the visitor may, and their handlers are not switched off here."""
    return visit.may("admin") and visit.app.registry.get("demo.echo") is not None


def is_live(worker: WorkerRecord) -> bool:
    return worker.live


def totals(queues: Sequence[Queue]) -> Totals:
    return Totals(
        ready=sum(queue.ready for queue in queues),
        delayed=sum(queue.delayed for queue in queues),
        processing=sum(queue.processing for queue in queues),
        dead=sum(queue.dead for queue in queues),
    )


async def read_troubles(visit: Visit, activity: Activity, workers: Sequence[WorkerRecord]) -> Troubles:
    """Return what is wrong now."""
    findings = await _findings(visit, activity, workers)
    demos = [one for one in findings or () if _about_demo_jobs(one)]
    others = [one for one in findings or () if not _about_demo_jobs(one)]
    problems = [_of_finding(visit, one) for one in others if one.level == "problem"]
    warnings = [_of_finding(visit, one) for one in others if one.level != "problem"]
    warnings += [_stranded_demo_jobs(visit)] if demos else []
    return Troubles([*problems, *_paused(visit, activity), *warnings], complete=findings is not None)


def _paused(visit: Visit, activity: Activity) -> Iterator[Trouble]:
    for queue in activity.queues:
        if queue.pause is not None:
            by = f" by {queue.pause.by}" if queue.pause.by else ""
            because = f": {queue.pause.reason}" if queue.pause.reason else ""
            waiting = plural(queue.ready + queue.delayed, "job waits", "jobs wait")
            words = (f"Queue {queue.name} is paused{by} since ", queue.pause.paused_at, f"{because}. {waiting} in it.")
            there = visit.link("queues", queue.name, "resume")
            yield Trouble("held", words, button="Resume", post=there)


async def _findings(visit: Visit, activity: Activity, workers: Sequence[WorkerRecord]) -> list[Finding] | None:
    """Return what the doctor finds wrong; None while it looks for the first time. It reads every waiting job, so it runs
    rarely. If too many jobs wait, it judges only what the counts of the queues show."""
    counted = totals(activity.queues)

    async def examine() -> list[Finding]:
        overview = await visit.client.overview(ended=False)
        paces, schedulers = await visit.client.pacings(), await visit.client.registered_schedulers()
        every = [*judge_jobs(overview, activity.queues, workers), *judge_paces(paces, workers, schedulers)]
        return [one for one in every if one.level != "ok"]

    live = [worker for worker in workers if is_live(worker)]
    if counted.ready + counted.delayed > MOST_EXAMINED:
        seen = judge_jobs(_unserved(activity, live), activity.queues, workers)
        return [one for one in seen if one.level != "ok" and one.check in ("workers", "queues", "dead letters")]
    try:
        found = await visit.read_soon(f"findings {len(live)}", EXAMINED_EVERY, examine)
    except (SearchTooSlow, TooManySearches):
        found = []
    if found is None:
        return None
    paused = {queue.name for queue in activity.queues if queue.pause is not None}
    return [one for one in found if one.paused not in paused]


def _unserved(activity: Activity, live: Sequence[WorkerRecord]) -> JobsOverview:
    """Return an overview of the queues that no live worker serves: their jobs wait whatever their types are."""
    waiting = [
        Waiting(queue.name, "", queue.ready, queue.delayed, activity.due_since.get(queue.name, activity.now))
        for queue in activity.queues
        if queue.ready + queue.delayed and not any(serves(worker, queue.name) for worker in live)
    ]
    return JobsOverview(now=activity.now, waiting=waiting)


def _about_demo_jobs(finding: Finding) -> bool:
    return finding.missing is not None and finding.missing.type in DEMO_TYPES


def _stranded_demo_jobs(visit: Visit) -> Trouble:
    there = visit.link("actions", "ask", "cancel", q="status:waiting type:demo.*")
    words = ("Demo jobs wait, and no live worker has their handlers.",)
    return Trouble(None, words, f"{sentence(DEMO_OFF)}.", "Cancel the demo jobs", ask=there)


_WORKER = "demora worker --app MODULE:APP"


def _of_finding(visit: Visit, finding: Finding) -> Trouble:
    state = "failed" if finding.level == "problem" or finding.check == "dead letters" else None
    words, advice = (f"{sentence(finding.fact)}.",), finding.advice and f"{sentence(finding.advice)}."
    if finding.missing is not None:
        return _missing_worker(visit, finding.missing, state, words)
    if finding.check == "dead letters":
        return Trouble(state, words, button="See the failures", link=visit.link("failures"))
    if finding.check == "slots":
        return Trouble(state, words, advice, "See running jobs", link=visit.link("jobs", q="status:running"))
    if finding.check == "workers":
        return Trouble(state, words, advice, "See the workers", link=visit.link("system"))
    return Trouble(state, words, advice)


def _missing_worker(visit: Visit, missing: MissingWorker, state: str | None, words: tuple[str, ...]) -> Trouble:
    if missing.queue is None:
        return Trouble(state, words, None, "See the workers", link=visit.link("system"), command=_WORKER)
    there = visit.link("jobs", q=search_text(JobFilter(WAITING, type=missing.type, queue=missing.queue)))
    if missing.type is None:
        command = f"{_WORKER} --queues {shlex.quote(missing.queue)}"
        return Trouble(state, words, None, "See the jobs", link=there, command=command)
    about = f"Start a worker whose application has a handler for {missing.type}. Without one, its jobs fail after an hour."
    return Trouble(state, words, about, "See the jobs", link=there, command=_WORKER)


# Why a job waits, in a few words


class Short(msgspec.Struct, frozen=True):
    """Why a job is in its state, in a few words for a list: words, then a time, then more words."""

    words: str
    at: str | None = None
    style: str = "ago"
    more: str = ""


def in_short(job: Job, why: Why) -> Short:
    data = why.data
    match why.reason:
        case "not_due":
            return Short("due", data["dueAt"])
        case "retry_due":
            return Short(
                f"retry {job.attempt} of {job.max_retries}", data["dueAt"], more=f"after {job.error}" if job.error else ""
            )
        case "held_by_pace":
            place = f"{data['place'] - 1:,} or more jobs ahead" if data.get("moreAhead") else nth(data["place"])
            return Short(f"held by pace, {place}, about", data["releaseAt"], "clock")
        case "queue_paused":
            because = f": {data['pauseReason']}" if data.get("pauseReason") else ""
            return Short(f"queue paused{because}")
        case "ready" | "slots_taken":
            return Short(_line(data) + (", all slots taken" if why.reason == "slots_taken" else ""))
        case "no_worker":
            return Short(f"no worker serves {job.queue}")
        case "no_handler":
            return Short(f"no worker knows {job.type}")
        case "handed_back":
            return Short("handed back, again", data["dueAt"])
        case "running":
            asked = ", cancel requested" if data.get("cancelRequestedAt") else ""
            return Short(f"attempt {data['attempt']} of {data['attempts']}{asked}, started", data["startedAt"])
        case "lapsed":
            return Short("its worker is gone, the next claim takes over")
        case "expired":
            return Short("expired", data["expiresAt"])
    return _end(job, data)


def _line(data: dict[str, Any]) -> str:
    if data["ahead"] == 0:
        return "next in line"
    return f"{data['ahead']:,} or more jobs ahead" if data.get("moreAhead") else f"{plural(data['ahead'], 'job')} ahead"


def _end(job: Job, data: dict[str, Any]) -> Short:
    if job.status is Status.COMPLETED and job.started_at is not None and job.completed_at is not None:
        return Short(f"took {measured(job.completed_at - job.started_at)}, ended", data["endedAt"])
    if job.error:
        return Short(job.error)
    return Short("cancelled" if job.status is Status.CANCELLED else "", data["endedAt"])


def nth(place: int) -> str:
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"
