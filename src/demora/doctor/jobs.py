"""Judges the clock, the workers, the queues and the jobs from one overview of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from ..core.pace import EVERY_QUEUE, say_briefly
from ..core.spans import plural, say
from ..core.workers import WorkerRecord, all_taken, say_types, serves
from ..handlers.builtin import DEMO_OFF, DEMO_TYPES
from ..store.diagnostics import Finding, JobsOverview, Level, MissingWorker, Waiting
from ..store.jobs import Queue
from ..store.paces import BY_SETTINGS, Pacing

LATE = timedelta(minutes=5)  # a ready job that has waited longer is reported
PAUSED_LONG = timedelta(hours=1)
UNSETTLED = timedelta(seconds=10)  # a live worker settles a lapsed lease much sooner
HELD_LONG = timedelta(minutes=1)  # no slot became free for this long although jobs were ready
CLOCK_SLACK = timedelta(seconds=1)
_SECOND = timedelta(seconds=1)


def judge_jobs(overview: JobsOverview, queues: Sequence[Queue], workers: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Yield all findings about jobs, good and bad. `workers` are all registered workers, also those without heartbeat."""
    live = [worker for worker in workers if worker.live]
    paused = {queue.name for queue in queues if queue.pause is not None}
    awaited = [waiting for waiting in overview.waiting if waiting.queue not in paused]
    yield _clock(overview)
    yield from _workers(live, workers, any(waiting.ready for waiting in awaited))
    if live:
        yield from _unserved(awaited, live)
        yield from _slots(overview, awaited, live)
    yield from _paused(overview, queues)
    yield _late(overview, [waiting for waiting in awaited if not live or _able(waiting, live)])
    yield _lapsed(overview)
    yield _dead(queues)


def judge_paces(
    paces: Sequence[Pacing], workers: Iterable[WorkerRecord], schedulers: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Yield one finding for each queue with a pace and the jobs it holds, which is no fault but explains waiting jobs; and
    live processes whose settings about paces differ from one another, or no longer name the pace of all queues.
    `schedulers` are the live processes without a worker, with the paces that their settings ask for."""
    for pacing in paces:
        held = f"{plural(pacing.held, 'job')} due and not released yet"
        has = "follows the pace of all queues" if pacing.inherited else "has a pace"
        fact = f"queue {pacing.queue} {has}, {say_briefly(pacing.pace)}: {held}"
        every = f"queues without a pace of their own follow the default, {say_briefly(pacing.pace)}, set by {pacing.set_by}"
        yield Finding("paces", "ok", every if pacing.queue == EVERY_QUEUE else fact)
    asked = {f"worker {worker.id} (pid {worker.pid} on {worker.host})": worker.paces for worker in workers if worker.live}
    asked |= {f"scheduler or service {id}": text for id, text in (schedulers or {}).items()}
    yield from _different_settings(asked)
    unnamed = bool(asked) and not any(map(_names_every, asked.values()))
    for pacing in paces:
        if pacing.queue == EVERY_QUEUE and pacing.set_by == BY_SETTINGS and unnamed:
            fact = f"all queues have the pace {say_briefly(pacing.pace)} from settings that no live process has any more"
            yield Finding("paces", "warning", fact, "remove it: demora pace '*' --off; or set DEMORA_PACE again")


def _different_settings(asked: Mapping[str, str]) -> Iterator[Finding]:
    by_text: dict[str, list[str]] = {}
    for process, text in asked.items():
        by_text.setdefault(text, []).append(process)
    if len(by_text) < 2:
        return
    for text, alike in by_text.items():
        has = "has" if len(alike) == 1 else "have"
        fact = f"processes have different pace settings: {', '.join(alike)} {has} {text or 'none'}"
        yield Finding("paces", "warning", fact, "give all processes the same; the one that starts last decides")


def _names_every(text: str) -> bool:
    return text.startswith(f"{EVERY_QUEUE} ")


def _clock(overview: JobsOverview) -> Finding:
    if overview.ahead_by <= CLOCK_SLACK:
        return Finding("clock", "ok", "no job has a creation time in the future")
    fact = f"{plural(overview.ahead, 'job')} added up to {_rough(overview.ahead_by)} in the future: the clock was set back"
    advice = "correct the clock and keep it synchronized (NTP); jobs that were due at once wait until it has caught up"
    level: Level = "problem" if overview.ahead_waiting else "warning"
    return Finding("clock", level, f"{fact}; {overview.ahead_waiting} of them are waiting", advice)


def _workers(live: Sequence[WorkerRecord], workers: Sequence[WorkerRecord], awaited: bool) -> Iterator[Finding]:
    if live:
        slots = sum(worker.slots for worker in live)
        yield Finding("workers", "ok", f"{len(live)} alive, {slots} slots")
    else:
        level: Level = "problem" if awaited else "warning"
        fact = "no worker is alive" + (", and jobs are ready to run" if awaited else "")
        advice = "start one: demora worker --app MODULE:APP, or demora serve"
        yield Finding("workers", level, fact, advice, missing=MissingWorker())
    for worker in workers:
        if worker not in live:
            silent = _rough(worker.heartbeat_ago)
            fact = f"worker {worker.id} (pid {worker.pid} on {worker.host}) sent its last heartbeat {silent} ago"
            advice = f"check whether it still runs; if not, run demora recover --worker {worker.id} to take its jobs"
            yield Finding("workers", "warning", fact, advice)


def _unserved(awaited: Iterable[Waiting], live: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Yield the waiting jobs that no live worker can run, because none serves their queue or none there knows their type."""
    queues: Counter[str] = Counter()
    for waiting in awaited:
        serving = [worker for worker in live if serves(worker, waiting.queue)]
        count, level = waiting.ready + waiting.delayed, _weight(waiting.ready)
        if not serving:
            queues[waiting.queue] += count
        elif not any(waiting.type in worker.types for worker in serving):
            who = "no live worker there" if any(waiting.type in worker.types for worker in live) else "no live worker"
            fact = f"{plural(count, 'job')} of type {waiting.type} in queue {waiting.queue}: {who} knows {waiting.type}"
            else_ = "it fails" if count == 1 else "they fail"
            remedy = "start one whose application has a handler for it, --app MODULE:APP"
            if waiting.type in DEMO_TYPES:
                remedy = f"{DEMO_OFF}; cancel them: demora cancel --search 'status:waiting type:demo.*'"
            advice = f"{remedy}; otherwise {else_} after an hour"
            yield Finding("types", level, fact, advice, missing=MissingWorker(waiting.queue, waiting.type))
    for name, count in queues.items():
        ready = sum(waiting.ready for waiting in awaited if waiting.queue == name)
        fact = f"{plural(count, 'job')} in queue {name}, which no live worker serves"
        advice = f"start one: demora worker --queues {name}"
        yield Finding("queues", _weight(ready), fact, advice, missing=MissingWorker(name))


def _slots(overview: JobsOverview, awaited: Iterable[Waiting], live: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Yield the ready jobs for which every slot is taken, once for each group of workers that could run them."""
    waits: dict[tuple[str, ...], int] = {}
    for waiting in awaited:
        able = tuple(worker.id for worker in _able(waiting, live))
        if able and waiting.ready:
            waits[able] = waits.get(able, 0) + waiting.ready
    found = False
    for able, ready in waits.items():
        taken = all_taken([worker for worker in live if worker.id in able], overview.running)
        if taken is None:
            continue
        found, still = True, overview.now - taken.latest_at
        named = ", ".join(f"{one.longest_id} ({one.type}) for {_rough(overview.now - one.since)}" for one in taken.longest)
        whose = f"worker {able[0]}" if len(able) == 1 else f"{len(able)} workers"
        full = f"all {taken.slots} slots of {whose} are taken ({say_types(taken)})"
        fact = f"{full} while {plural(ready, 'job')} wait; longest: {named}"
        advice = "cancel a job with demora cancel ID, add workers or slots (--concurrency), or set DEMORA_MAX_TIMEOUT"
        level: Level = "problem" if still >= HELD_LONG else "warning"
        yield Finding("slots", level, fact, f"{advice} to limit how long a job may run")
    if not found:
        yield Finding("slots", "ok", "no job waits for a slot")


def _able(waiting: Waiting, live: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Return the workers that can run these jobs."""
    return [worker for worker in live if serves(worker, waiting.queue) and waiting.type in worker.types]


def _weight(ready: int) -> Level:
    """Return the level: a problem if it delays jobs now, a warning if it will delay them later."""
    return "problem" if ready else "warning"


def _paused(overview: JobsOverview, queues: Iterable[Queue]) -> Iterator[Finding]:
    for queue in queues:
        if queue.pause is not None:
            span = overview.now - queue.pause.paused_at
            why = "" if queue.pause.reason is None else f" ({queue.pause.reason})"
            jobs = plural(queue.ready + queue.delayed, "job")
            fact = f"queue {queue.name} has been paused for {_rough(span)}{why}, {jobs} in it"
            if span >= PAUSED_LONG:
                yield Finding("queues", "warning", fact, f"demora resume {queue.name} resumes it", paused=queue.name)
            else:
                yield Finding("queues", "ok", fact, paused=queue.name)


def _late(overview: JobsOverview, awaited: Iterable[Waiting]) -> Finding:
    late = [waiting for waiting in awaited if waiting.ready and overview.now - waiting.oldest_due_at >= LATE]
    if not late:
        return Finding("waiting", "ok", f"no job is overdue by more than {say(LATE)}")
    worst = min(late, key=lambda waiting: waiting.oldest_due_at)
    past = _rough(overview.now - worst.oldest_due_at)
    jobs = plural(sum(waiting.ready for waiting in late), "job")
    fact = f"{jobs} overdue, the oldest by {past} (type {worst.type} in {worst.queue})"
    return Finding(
        "waiting", "warning", fact, "start more workers or give them more slots (--concurrency); see demora queues"
    )


def _lapsed(overview: JobsOverview) -> Finding:
    if overview.lapsed_for < UNSETTLED:
        return Finding("leases", "ok", "no lapsed lease is unsettled")
    fact = f"{plural(overview.lapsed, 'job')} of dead workers not settled yet, the oldest for {_rough(overview.lapsed_for)}"
    return Finding(
        "leases", "warning", fact, "start a worker, which settles them with its first claim, or run demora recover"
    )


def _dead(queues: Iterable[Queue]) -> Finding:
    dead = {queue.name: queue.dead for queue in queues if queue.dead}
    if not dead:
        return Finding("dead letters", "ok", "none")
    where = ", ".join(f"{count} in {name}" for name, count in dead.items())
    advice = "demora dead-letters shows them; demora retry runs them again, demora delete removes them, by id or by filter"
    return Finding("dead letters", "warning", f"{plural(sum(dead.values()), 'job')} failed for good: {where}", advice)


def _rough(span: timedelta) -> str:
    return say(span // _SECOND * _SECOND)
