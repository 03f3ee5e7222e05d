"""Lists for people. Every cell is plain text, so that nothing that others set is read as markup or moves the cursor."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ..core.access import ApiKey
from ..core.job import Job
from ..core.pace_wish import say_briefly
from ..core.states import Status
from ..pacing import Pacing
from ..store import Queue, Worker
from ..survey import Pulse
from .text import due, from_now, plain, rough

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

_WIDTH = 240  # columns of text: a narrow terminal wraps whole lines, which reads better than cells folded by letters
_LONGEST_ERROR = 100
_COLOURS = {
    Status.PROCESSING.name: "cyan",
    Status.RETRYING.name: "yellow",
    Status.COMPLETED.name: "green",
    Status.FAILED.name: "red",
}


def jobs(found: Sequence[Job], now: datetime) -> None:
    columns = ("id", "status", "when", "type", "queue", "priority", "attempts")
    _show(columns, (_job_cells(job, now) for job in found), none="no jobs")


def dead_letters(found: Sequence[Job], now: datetime) -> None:
    _show(("id", "type", "queue", "failed", "error"), (_dead_cells(job, now) for job in found), none="no dead letters")


def queues(found: Sequence[Queue], paces: Mapping[str, Pacing]) -> None:
    """Queues with their counts; `paces` has those that are paced."""
    columns = ("queue", "ready", "delayed", "processing", "dead", "pace", "paused")
    _show(columns, (_paced_cells(queue, paces.get(queue.name)) for queue in found), none="no queues yet")


def workers(found: Sequence[Worker], now: datetime) -> None:
    columns = ("id", "slots", "queues", "types", "started", "seen")
    _show(columns, (_worker_cells(worker, now) for worker in found), none="no live workers; demora worker starts one")


def keys(found: Sequence[ApiKey], now: datetime) -> None:
    columns = ("id", "name", "scopes", "state", "created", "last used", "expires")
    _show(columns, (_key_cells(key, now) for key in found), none="no API keys; demora keys create makes one")


def rules(found: Sequence[tuple[str, str, str, int | None]]) -> None:
    """Promises, by what each was judged, and how often it was broken; None if it was not judged."""
    rows = ([rule, name, judged, "" if broken is None else str(broken)] for rule, name, judged, broken in found)
    _show(("rule", "promise", "judged by", "violations"), rows, none="no rules")


def _job_cells(job: Job, now: datetime) -> list[str]:
    attempts = f"{job.attempt} of {job.max_retries + 1}"
    return [job.id, job.status.name, _when(job, now), job.type, job.queue, job.priority.name, attempts]


def _dead_cells(job: Job, now: datetime) -> list[str]:
    return [job.id, job.type, job.queue, _when(job, now), (job.error or "")[:_LONGEST_ERROR]]


def _queue_cells(queue: Queue) -> list[str]:
    counts = (queue.ready, queue.delayed, queue.processing, queue.dead)
    paused = "" if queue.pause is None else queue.pause.reason or "yes"
    return [queue.name, *map(str, counts), paused]


def _paced_cells(queue: Queue, pacing: Pacing | None) -> list[str]:
    *counts, paused = _queue_cells(queue)
    return [*counts, "" if pacing is None else say_briefly(pacing.pace), paused]


def _worker_cells(worker: Worker, now: datetime) -> list[str]:
    started = "" if worker.started_at is None else from_now(worker.started_at, now)
    seen = f"{rough(worker.heartbeat_ago)} ago"
    return [worker.id, str(worker.slots), ",".join(worker.queues) or "all", str(len(worker.types)), started, seen]


def _key_cells(key: ApiKey, now: datetime) -> list[str]:
    used = "never" if key.last_used_at is None else from_now(key.last_used_at, now)
    expires = "never" if key.expires_at is None else from_now(key.expires_at, now)
    return [key.id, key.name, ",".join(key.scopes), key.standing(now), from_now(key.created_at, now), used, expires]


def _when(job: Job, now: datetime) -> str:
    """What a reader of the list wants to know of the time: due when, running how long, ended when."""
    if job.status.waiting:
        return f"due {due(job, now)}"
    since = job.completed_at if job.status.ended else job.started_at
    if since is None:
        return ""
    return from_now(since, now) if job.status.ended else f"for {rough(max(now, since) - since)}"


def watched(pulse: Pulse, rates: Mapping[str, tuple[float, float]], workers: Sequence[Worker]) -> "Group":
    """Queues with their rates a second, and workers with the slots in use."""
    from rich.console import Group
    from rich.text import Text

    columns = ("queue", "ready", "delayed", "processing", "dead", "in/s", "out/s", "oldest ready", "paused")
    queues = _table(columns, (_watched_cells(queue, pulse, rates.get(queue.name)) for queue in pulse.queues))
    slots = _table(("worker", "in use", "queues", "seen"), (_slots_cells(worker, pulse) for worker in workers))
    return Group(
        queues if queues.row_count else Text("no queues yet"),
        Text(""),
        slots if slots.row_count else Text("no live workers; demora worker starts one"),
    )


def printed(drawn: "Group | Table") -> None:
    from rich.console import Console

    Console(width=_WIDTH, soft_wrap=True).print(drawn)


def _watched_cells(queue: Queue, pulse: Pulse, rate: tuple[float, float] | None) -> list[str]:
    *counts, paused = _queue_cells(queue)
    due = pulse.due_since.get(queue.name)
    rated = ["", ""] if rate is None else [f"{one:.1f}" for one in rate]
    return [*counts, *rated, "" if due is None else rough(pulse.now - due), paused]


def _slots_cells(worker: Worker, pulse: Pulse) -> list[str]:
    used = f"{pulse.running.get(worker.id, 0)} of {worker.slots}"
    return [worker.id, used, ",".join(worker.queues) or "all", f"{rough(worker.heartbeat_ago)} ago"]


def _show(columns: Iterable[str], rows: Iterable[list[str]], *, none: str) -> None:
    table = _table(columns, rows)
    if table.row_count:
        printed(table)
    else:
        click.echo(none)


def _table(columns: Iterable[str], rows: Iterable[list[str]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.upper(), no_wrap=True)
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(text: str) -> "Text":
    from rich.text import Text

    return Text(plain(text), style=_COLOURS.get(text, ""))
