"""Actions on many jobs: what a verb would take is counted first, asked about, and then carried out by a worker while a page
follows it. The request itself acts on a few jobs that were selected by hand."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ...api.operations.operation import SEARCH_LIMIT
from ...client.actions import ActionState
from ...client.why import Why
from ...core.access import Scope
from ...core.action import QUEUE, TYPE, Action
from ...core.filters import JobFilter
from ...core.job import Job, Priority
from ...core.spans import ZERO, plural, span
from ...core.states import ENDED, RETRYABLE, WAITING, Status
from ...core.workers import WorkerRecord, serves
from ...errors import DemoraError, Invalid
from ...store.jobs import Count
from ...system import notices
from ..drawing import state_of
from ..reading import is_live, read_workers
from ..search import Search, names_status, read_search, search_text
from ..times import read_time
from ..visit import Acted, NoPage, Route, View, Visit, whole_number

MOST_SELECTED = 200
FEW = 20  # selected jobs on which the request itself acts
RUN = "run"  # make jobs due now: a reschedule, for a selection by hand


class ActionWords(msgspec.Struct, frozen=True):
    """How a page speaks of an action: its word, what it means for each job, how the jobs are afterwards, and the states of
    the jobs that it takes from a selection by hand."""

    word: str
    about: str
    done: str
    takes: frozenset[Status]
    danger: bool = False


VERBS: Mapping[str, ActionWords] = {
    "retry": ActionWords("Retry", "each runs again with all its retries", "will run again", RETRYABLE),
    "cancel": ActionWords("Cancel", "before they run", "cancelled", WAITING, danger=True),
    "reschedule": ActionWords("Reschedule", "all to one time", "rescheduled", WAITING),
    "spread": ActionWords("Spread", "evenly over a window", "spread", WAITING),
    "reprioritise": ActionWords("Reprioritise", "give them another priority", "reprioritised", WAITING),
    "delete": ActionWords("Delete", "with their history, for good", "deleted", ENDED, danger=True),
    RUN: ActionWords("Run", "due now", "due now", WAITING),
}
_OFFERED = tuple(verb for verb in VERBS if verb != RUN)


class Selection(msgspec.Struct, frozen=True):
    """The jobs that a visitor means: those that match a search, or those selected by hand."""

    search: Search | None = None
    ids: tuple[str, ...] = ()


def read_selection(visit: Visit, given: Mapping[str, str]) -> Selection:
    ids = tuple(dict.fromkeys(one for one in given.get("ids", "").split(",") if one))
    if len(ids) > MOST_SELECTED:
        raise Invalid("ids", f"select at most {MOST_SELECTED} jobs")
    return Selection(ids=ids) if ids else Selection(read_search(given.get("q", ""), visit.now))


def meant_by(action: Action, search: Search) -> JobFilter | None:
    """Return the jobs that an action takes of those that match, None if it takes none of them.

    Unless the search names a status, an action takes the jobs that it usually takes: a retry the failed ones, and not those
    that were cancelled, which would run today whatever time they were meant for.
    """
    filter = search.filter
    if not names_status(search.text):
        usual = action.checked(msgspec.structs.replace(filter, statuses=frozenset())).statuses
        statuses = usual & filter.statuses if filter.statuses else usual
        return msgspec.structs.replace(filter, statuses=statuses) if statuses else None
    try:
        return action.checked(filter)
    except Invalid:
        return None


# Asking


async def choose(visit: Visit) -> View:
    """Count the jobs that each action would take, and ask which one to carry out. Nothing changes."""
    selection, counts = read_selection(visit, visit.query), dict[str, Count]()
    if selection.search is None:
        jobs = await _selected(visit, selection.ids)
        counts = {verb: _taken(verb, jobs) for verb in _OFFERED}
    else:
        known = dict[JobFilter, Count]()
        for verb in _OFFERED:
            filter = meant_by(Action(verb), selection.search)
            if filter is not None:
                if filter not in known:
                    known[filter] = await visit.client.count(filter, within=SEARCH_LIMIT)
                counts[verb] = known[filter]
    values = {"selection": selection, "asked": _asked(selection), "counts": counts, "verbs": VERBS}
    return View("dialogs/choose.html", values)


async def ask(visit: Visit) -> View:
    """Ask before an action, and repeat how many jobs it takes."""
    verb, selection = _verb(visit), read_selection(visit, visit.query)
    carried = any(carries_out(worker) for worker in await read_workers(visit))
    cancelled, meant = False, None
    if selection.search is None:
        jobs = await _selected(visit, selection.ids)
        count = _taken(verb, jobs)
        cancelled = verb == "retry" and any(job.status is Status.CANCELLED for job, _ in jobs)
    else:
        filter = None if verb == RUN else meant_by(Action(verb), selection.search)
        if filter is None:
            raise Invalid("verb", f"no job that matches is left to {VERBS[verb].word.lower()}")
        count = await visit.client.count(filter, within=SEARCH_LIMIT)
        cancelled, meant = verb == "retry" and Status.CANCELLED in filter.statuses, search_text(filter)
    values = {
        "verb": verb,
        "meant": meant,
        "how": VERBS[verb],
        "selection": selection,
        "asked": _asked(selection),
        "count": count,
        "title": f"{VERBS[verb].word} {plural(count.jobs, 'job')}{'' if count.complete else ' or more'}",
        "cancelled": cancelled,
        "priorities": list(Priority),
        "spreads": selection.search is not None or (carried and len(selection.ids) > FEW),
        "carried": selection.search is None or carried,
    }
    return View("dialogs/action.html", values)


def carries_out(worker: WorkerRecord) -> bool:
    """Whether a worker is alive and carries out actions. A worker over HTTP does not."""
    return is_live(worker) and serves(worker, QUEUE) and TYPE in worker.types


def _asked(selection: Selection) -> dict[str, str]:
    """Return the fields that name a selection, for a link or a form."""
    return {"ids": ",".join(selection.ids)} if selection.search is None else {"q": selection.search.text}


def _taken(verb: str, jobs: Sequence[tuple[Job, Why]]) -> Count:
    return Count(sum(job.status in VERBS[verb].takes for job, _ in jobs), complete=True)


async def _selected(visit: Visit, ids: Sequence[str]) -> list[tuple[Job, Why]]:
    return list(await visit.client.why_many(ids)) if ids else []


def _verb(visit: Visit) -> str:
    verb = visit.path["verb"]
    if verb not in VERBS:
        raise NoPage
    return verb


# Acting


async def act(visit: Visit) -> Acted:
    """Have a worker act on all jobs that match, or on many selected ones, and go to the page that follows it; or act on a
    few selected ones now."""
    verb, selection = _verb(visit), read_selection(visit, visit.form)
    changes = _changes(verb, visit)
    if selection.search is None:
        few = len(selection.ids) <= FEW or not any(carries_out(worker) for worker in await read_workers(visit))
        if few and not (verb == "retry" and "over" in changes):
            return await _act_on_selected(visit, verb, selection.ids, changes)
        return await _have_selected_done(visit, verb, selection.ids, changes)
    filter = None if verb == RUN else meant_by(Action(verb), selection.search)
    if filter is None:
        raise Invalid("verb", f"no job that matches is left to {VERBS[verb].word.lower()}")
    state = await visit.client.actions.start(Action(verb), filter, by=visit.by, **changes)
    notices.acted(visit.by, verb, f"jobs that match {state.order.filter}")
    return _followed(visit, verb, state, whole_number(visit.form.get("count", "")))


def _followed(visit: Visit, verb: str, state: ActionState, of: int | None) -> Acted:
    return Acted("A worker carries this out.", go=visit.link("actions", state.job.id, of=of))


def _changes(verb: str, visit: Visit) -> dict[str, Any]:
    """Return what the form says about the new time, priority or window of the jobs."""
    form, changes = {name: value.strip() for name, value in visit.form.items()}, dict[str, Any]()
    if verb in ("reschedule", "spread", "retry"):
        if form.get("at"):
            changes["at"] = read_time(form["at"], "at")
        elif form.get("delay"):
            changes["at"] = datetime.now(UTC) + span(form["delay"], "delay")
    if verb in ("spread", "retry") and form.get("over"):
        changes["over"] = span(form["over"], "over")
        if changes["over"] <= ZERO:
            raise Invalid("over", "must be greater than zero")
    if verb == "reprioritise":
        changes["priority"] = form.get("priority", "")
    if verb == "reschedule" and "at" not in changes:
        raise Invalid("delay", "say when they are due: in how long, for instance 90s or 2h, or at what time")
    if verb == "spread" and "over" not in changes:
        raise Invalid("over", "say how long the window is, for instance 10m or 2h")
    return changes


async def _act_on_selected(visit: Visit, verb: str, ids: Sequence[str], changes: Mapping[str, Any]) -> Acted:
    """Act on each selected job, and say how many it worked for: others had changed meanwhile."""
    begin, window = changes.get("at") or datetime.now(UTC), changes.get("over", ZERO)
    done = 0
    for n, id in enumerate(sorted(ids)):  # ids grow with time: the oldest job comes first
        at = begin + n * window / len(ids) if verb == "spread" else changes.get("at")
        done += await _did(visit, verb, id, at, changes)
    notices.acted(visit.by, verb, plural(done, "job"))
    skipped = f"; {plural(len(ids) - done, 'job')} skipped (wrong state)" if done < len(ids) else ""
    return Acted(f"{plural(done, 'job')} {VERBS[verb].done}{skipped}.")


async def _have_selected_done(visit: Visit, verb: str, ids: Sequence[str], changes: Mapping[str, Any]) -> Acted:
    """Have a worker act on those of the selected jobs that the verb takes."""
    takes = VERBS[verb].takes
    taken = [job.id for job, _ in await _selected(visit, ids) if job.status in takes]
    if not taken:
        raise Invalid("ids", f"no selected job is left to {VERBS[verb].word.lower()}")
    action = Action.RESCHEDULE if verb == RUN else Action(verb)
    changes = {"at": datetime.now(UTC)} if verb == RUN else changes
    state = await visit.client.actions.start(action, JobFilter(statuses=takes), ids=taken, by=visit.by, **changes)
    notices.acted(visit.by, verb, plural(len(taken), "selected job"))
    return _followed(visit, verb, state, len(taken))


async def _did(visit: Visit, verb: str, id: str, at: datetime | None, changes: Mapping[str, Any]) -> bool:
    client = visit.client
    try:
        match verb:
            case "retry":
                await client.retry(id)
            case "cancel":
                await client.cancel(id)
            case "delete":
                await client.delete(id)
            case "run":
                await client.reschedule(id, delay=timedelta(0))
            case "reprioritise":
                await client.reschedule(id, priority=changes["priority"])
            case _:
                await client.reschedule(id, at=at)
    except Invalid:
        raise
    except DemoraError:
        return False
    return True


# Following


async def follow(visit: Visit) -> View:
    """Show how far an action is."""
    state = await visit.client.actions.get(visit.path["id"])
    workers = await read_workers(visit)
    of = whole_number(visit.query.get("of", "")) or 0
    job, result = state.job, state.result
    if job.status.ended:  # a page that was read while it was under way may keep groups and counts from then
        visit.shared.outdate(everything=True)
    whole = result.matched if job.status.ended else max(of, result.matched)
    values = {
        "page": "jobs",
        "job": job,
        "order": state.order,
        "result": result,
        "whole": whole,
        "reached": result.done + result.skipped,
        "left_alone": result.skipped + (max(0, len(state.order.ids) - result.matched) if job.status.ended else 0),
        "verb": VERBS[state.order.action.value],
        "state": state_of(job.status.name),
        "carried": job.status.ended or any(carries_out(worker) for worker in workers),
    }
    return View("action.html", values)


ROUTES = (
    Route("GET", "/actions/choose", Scope.OPERATE, choose),
    Route("GET", "/actions/ask/{verb}", Scope.OPERATE, ask),
    Route("POST", "/actions/{verb}", Scope.OPERATE, act),
    Route("GET", "/actions/{id}", Scope.READ, follow),
)
