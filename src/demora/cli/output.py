"""The output of the commands: tables and sections for people, and JSON.

All text that comes from jobs, queues or callers is escaped, so that it can neither move the cursor nor be read as markup.
Spans are rounded, and times are relative to now.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import click
import msgspec

from .. import __version__
from ..client.counts import DeadLetterStats, JobCounts, Stats
from ..core.access import ApiKey
from ..core.dsn import without_secrets
from ..core.job import Attempt, Job
from ..core.pace import EVERY_QUEUE, say_briefly
from ..core.schedules.schedule import say_schedule
from ..core.spans import MILLISECOND, ZERO, say, timestamp
from ..core.states import Status
from ..core.workers import WorkerRecord
from ..handlers.builtin import unwanted
from ..settings import Settings, load
from ..store.diagnostics import Activity
from ..store.jobs import Queue
from ..store.paces import Pacing
from ..store.schedules import StoredSchedule

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text


_GRAINS = (
    (timedelta(days=2), timedelta(hours=1)),
    (timedelta(hours=2), timedelta(minutes=1)),
    (timedelta(seconds=1), timedelta(seconds=1)),
    (ZERO, timedelta(milliseconds=1)),
)


def plain(text: str) -> str:
    """Escape all characters that do not print, so that a text cannot move the cursor or fake a line of output."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def rough(span: timedelta) -> str:
    """Round a span for people: `3d4h`, `2h15m`, `42s`, `120ms`."""
    grain = next(grain for least, grain in _GRAINS if span >= least)
    return say((span + grain / 2) // grain * grain)


def from_now(at: datetime, now: datetime) -> str:
    """Write a time relative to now: `in 5m`, `now`, `5m ago`."""
    if at > now:
        return f"in {rough(at - now)}"
    return "now" if now - at < timedelta(seconds=1) else f"{rough(now - at)} ago"


def due(job: Job, now: datetime) -> str:
    """Write when a waiting job becomes ready: `in 5m`, or `now`."""
    return from_now(max(job.due_at, now), now)


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


# JSON.

# Terminal controls (C1 and DEL), marks that change the direction of text, and other invisible characters.
_UNSEEN = re.compile("[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def print_json(view: Any) -> None:
    """Print a view on one line, exactly as the HTTP service would answer it."""
    click.echo(escaped(msgspec.json.encode(view).decode()))


def escaped(json: str) -> str:
    """Escape the invisible characters of a JSON text. They occur only in strings, so the value stays the same."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


# Tables. Every cell is plain text.

_WIDTH = 240  # columns of text: a narrow terminal wraps whole lines, which reads better than cells folded by letters
_LONGEST_ERROR = 100
_GAP = 2  # blanks between two columns
_SHORT_ID = 18  # characters of an id: its time, to the millisecond, and some of its random ones
_USUAL = {"priority": "NORMAL", "queue": "default", "attempts": "0 of 4"}
_CUT, _NARROWEST = ("type", "queue", "error"), 10
_COLOURS = {
    Status.PROCESSING.name: "cyan",
    Status.RETRYING.name: "yellow",
    Status.COMPLETED.name: "green",
    Status.FAILED.name: "red",
}


def jobs(found: Sequence[Job], now: datetime, *, width: int | None = None) -> None:
    """Print jobs; on a terminal of this width, each on one line."""
    columns = ("id", "status", "when", "type", "queue", "priority", "attempts")
    _show(columns, [_job_cells(job, now) for job in found], none="no jobs", width=width)


def dead_letters(found: Sequence[Job], now: datetime, *, width: int | None = None) -> None:
    """Print dead letters; on a terminal of this width, each on one line."""
    columns = ("id", "type", "queue", "failed", "error")
    _show(columns, [_dead_cells(job, now) for job in found], none="no dead letters", width=width)


def dead_letter_stats(found: DeadLetterStats, now: datetime) -> None:
    """Print the dead letters by each thing that they may have in common."""
    lists = {"type": found.by_type, "error": found.by_error, "queue": found.by_queue, "age": found.by_age}
    rows = (
        [
            by,
            one.name[:_LONGEST_ERROR],
            str(one.jobs),
            from_now(one.first_at, now),
            from_now(one.last_at, now),
            one.sample_id,
        ]
        for by, counts in lists.items()
        for one in counts
    )
    _show(("by", "name", "jobs", "first", "last", "sample"), rows, none="no dead letters")
    if not found.complete:
        click.echo(f"there are more: only the newest {found.jobs} are counted", err=True)


def stats(counted: Stats) -> None:
    """Print the counts of each queue, and of all together in the last line."""
    rows = [[name, *map(str, msgspec.structs.astuple(counts))] for name, counts in counted.queues.items()]
    if counted.more_queues:
        rows.append([f"and {counted.more_queues} more"])
    rows.append(["all", *map(str, msgspec.structs.astuple(counted.total))])
    _show(("queue", *JobCounts.__struct_fields__), rows, none="no queues yet")


def queues(found: Sequence[Queue], paces: Mapping[str, Pacing]) -> None:
    """Print queues with their counts; `paces` are the paces of the queues that have one."""
    columns = ("queue", "ready", "delayed", "processing", "dead", "pace", "paused")
    _show(columns, (_paced_cells(queue, paces.get(queue.name)) for queue in found), none="no queues yet")


def workers(found: Sequence[WorkerRecord], now: datetime) -> None:
    columns = ("id", "slots", "queues", "types", "started", "seen")
    _show(columns, (_worker_cells(worker, now) for worker in found), none="no live workers; demora worker starts one")


def keys(found: Sequence[ApiKey], now: datetime) -> None:
    columns = ("id", "name", "scopes", "state", "created", "last used", "expires")
    _show(columns, (_key_cells(key, now) for key in found), none="no API keys; demora keys create creates one")


def schedules(found: Sequence[StoredSchedule], now: datetime) -> None:
    columns = ("name", "type", "runs", "next", "last", "status", "paused")
    _show(columns, (_schedule_cells(one, now) for one in found), none="no schedules; demora schedule add adds one")


def rules(found: Sequence[tuple[str, str, str, int | None]]) -> None:
    """Print the rules: what each promises, what it was judged by, and its violations (None if it was not judged)."""
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


def paced_queues(pacings: Sequence[Pacing]) -> None:
    """Print queues that have a pace with the figures of their delayed jobs."""
    columns = ("queue", "pace", "delayed", "ready now", "in hour", "for gap", "next", "last")
    none = "no queue has a pace; demora pace QUEUE --gap 2m --burst 3 sets one"
    _show(columns, ([pacing.queue, say_briefly(pacing.pace), *_figures(pacing)] for pacing in pacings), none=none)


def _figures(pacing: Pacing) -> list[str]:
    if pacing.queue == EVERY_QUEUE:
        return [""] * 6
    stats = pacing.stats
    counts = (stats.total_delayed, stats.ready_now, stats.ready_in_hour, stats.waiting_for_gap)
    seconds = (stats.next_release_in_seconds, stats.time_since_last_release_seconds)
    return [*map(str, counts), *("" if span is None else f"{span:.0f}s" for span in seconds)]


def _paced_cells(queue: Queue, pacing: Pacing | None) -> list[str]:
    *counts, paused = _queue_cells(queue)
    return [*counts, "" if pacing is None else say_briefly(pacing.pace), paused]


def _worker_cells(worker: WorkerRecord, now: datetime) -> list[str]:
    started = "" if worker.started_at is None else from_now(worker.started_at, now)
    seen = f"{rough(worker.heartbeat_ago)} ago"
    return [worker.id, str(worker.slots), ",".join(worker.queues) or "all", str(len(worker.types)), started, seen]


def _key_cells(key: ApiKey, now: datetime) -> list[str]:
    used = "never" if key.last_used_at is None else from_now(key.last_used_at, now)
    expires = "never" if key.expires_at is None else from_now(key.expires_at, now)
    return [key.id, key.name, ",".join(key.scopes), key.state(now), from_now(key.created_at, now), used, expires]


def _schedule_cells(stored: StoredSchedule, now: datetime) -> list[str]:
    one, following, last = stored.schedule, stored.progress.next_at, stored.last_run_at
    return [
        one.name,
        one.type,
        say_schedule(one),
        "" if following is None else from_now(following, now),
        "" if last is None else from_now(last, now),
        "" if stored.last_status is None else stored.last_status.name,
        "" if one.enabled else one.reason or "yes",
    ]


def _when(job: Job, now: datetime) -> str:
    """Write the time that matters: when a waiting job is due, how long a job has run, or when it ended."""
    if job.status.waiting:
        return f"due {due(job, now)}"
    since = job.completed_at if job.status.ended else job.started_at
    if since is None:
        return ""
    return from_now(since, now) if job.status.ended else f"for {rough(max(now, since) - since)}"


def watched(activity: Activity, rates: Mapping[str, tuple[float, float]], workers: Sequence[WorkerRecord]) -> "Group":
    """Draw queues with their rates per second, and workers with the slots in use."""
    from rich.console import Group
    from rich.text import Text

    columns = ("queue", "ready", "delayed", "processing", "dead", "in/s", "out/s", "oldest ready", "paused")
    queues = _table(columns, (_watched_cells(queue, activity, rates.get(queue.name)) for queue in activity.queues))
    slots = _table(("worker", "in use", "queues", "seen"), (_slots_cells(worker, activity) for worker in workers))
    return Group(
        queues if queues.row_count else Text("no queues yet"),
        Text(""),
        slots if slots.row_count else Text("no live workers; demora worker starts one"),
    )


def printed(drawn: "Group | Table") -> None:
    """Print a table or a group of them at a fixed width."""
    from rich.console import Console

    Console(width=_WIDTH, soft_wrap=True).print(drawn)


def _watched_cells(queue: Queue, activity: Activity, rate: tuple[float, float] | None) -> list[str]:
    *counts, paused = _queue_cells(queue)
    due = activity.due_since.get(queue.name)
    rated = ["", ""] if rate is None else [f"{one:.1f}" for one in rate]
    return [*counts, *rated, "" if due is None else rough(activity.now - due), paused]


def _slots_cells(worker: WorkerRecord, activity: Activity) -> list[str]:
    used = f"{activity.running.get(worker.id, 0)} of {worker.slots}"
    return [worker.id, used, ",".join(worker.queues) or "all", f"{rough(worker.heartbeat_ago)} ago"]


def terminal_width() -> int | None:
    """Return the columns of the terminal that the output goes to; None if it goes to a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _show(columns: Iterable[str], rows: Iterable[list[str]], *, none: str, width: int | None = None) -> None:
    """Print a table, narrowed to a width if one is given."""
    columns, rows = list(columns), [[plain(cell) for cell in row] for row in rows]
    if width is not None and rows and sum(_widths(columns, rows)) > width:
        columns, rows = _narrowed(columns, rows, width)
    if rows:
        printed(_table(columns, rows))
    else:
        click.echo(none)


def _narrowed(columns: list[str], rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """Shorten the ids, leave out columns that have their default in every row, and cut types, queues and errors."""
    for row, id in zip(rows, short_ids([row[0] for row in rows]), strict=True):
        row[0] = id
    kept = [n for n, name in enumerate(columns) if any(row[n] != _USUAL.get(name) for row in rows)]
    columns, rows = [columns[n] for n in kept], [[row[n] for n in kept] for row in rows]
    widths = _widths(columns, rows)
    cut = [n for n, name in enumerate(columns) if name in _CUT]
    while cut and sum(widths) > width and max(widths[n] for n in cut) > _NARROWEST:
        widths[max(cut, key=lambda n: widths[n])] -= 1
    return columns, [[_cut(cell, wide - _GAP) for cell, wide in zip(row, widths, strict=True)] for row in rows]


def _widths(columns: list[str], rows: list[list[str]]) -> list[int]:
    """Return the width of each column with the gap behind it. The last one has none; its gap counts as the edge."""
    return [max(map(len, cells)) + _GAP for cells in zip(columns, *rows, strict=True)]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return the beginnings of ids, long enough to tell these ids apart, and to be typed in place of the ids."""
    for length in range(_SHORT_ID, len(max(ids, key=len, default=""))):
        if len({id[:length] for id in ids}) == len(set(ids)):
            return [id[:length] for id in ids]
    return list(ids)


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


# One job.


def about(job: Job, now: datetime) -> Iterator[str]:
    """Yield the lines about a job: its facts, payload and result, attempts, and log."""
    for name, value in _facts(job, now):
        if value:
            yield f"{name:<12} {plain(value)}"
    yield from _json("payload", job.payload_json)
    yield from _json("result", job.result_json)
    for number, attempt in enumerate(job.attempts, 1):
        yield from _attempt(number, attempt)
    if job.log:
        yield from ("", "log")
    for line in job.log:
        yield f"  {timestamp(line.at)}  {plain(line.line)}"


def _facts(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", job.id
    yield "name", job.name
    yield "type", job.type
    yield "queue", job.queue
    yield "priority", job.priority.name
    yield "status", job.status.name + (f", due {due(job, now)}" if job.status.waiting else "")
    yield "cancel", _at("requested", job.cancel_requested_at, now)
    yield "tags", ", ".join(job.tags)
    yield "schedule", _of_schedule(job)
    yield "created", _at("", job.created_at, now)
    yield "scheduled", _at("", job.scheduled_at, now)
    yield "started", _at("", job.started_at, now)
    yield "ended", _at("", job.completed_at, now)
    yield "expires", _at("", job.expires_at, now)
    yield "unique", job.unique_key or ""
    yield "retries", f"{job.retry_count} of {job.max_retries}, the first after {say(job.retry_delay)}"
    yield "timeout", "" if job.timeout is None else say(job.timeout)
    yield "progress", _progress(job)
    yield "worker", job.worker_id or ""
    yield "webhook", job.webhook_url or ""
    yield "error", job.error or ""


def _of_schedule(job: Job) -> str:
    run = "triggered by hand" if job.slot_at is None else f"for {timestamp(job.slot_at)}"
    return "" if job.schedule_name is None else f"{job.schedule_name}, {run}"


def _at(words: str, at: datetime | None, now: datetime) -> str:
    return "" if at is None else f"{words} {timestamp(at)} ({from_now(at, now)})".strip()


def _progress(job: Job) -> str:
    return "" if job.progress is None else f"{job.progress:.0%} {job.progress_message or ''}".strip()


def _json(name: str, packed: bytes | None) -> Iterator[str]:
    if packed is not None:
        yield from ("", name)
        yield from _indented(msgspec.json.format(packed, indent=2).decode())


def _attempt(number: int, attempt: Attempt) -> Iterator[str]:
    yield from ("", f"attempt {number}")
    if attempt.started_at is not None:
        took = "" if attempt.ended_at is None else f", took {_span(attempt.started_at, attempt.ended_at)}"
        yield f"  started {timestamp(attempt.started_at)}{took}"
    if attempt.worker_id is not None:
        yield f"  worker {plain(attempt.worker_id)}"
    if attempt.error is not None:
        yield f"  error {plain(attempt.error)}"
    yield from _indented(attempt.traceback or "")


def _span(began: datetime, ended: datetime) -> str:
    """Write how long a run took. Times are stored in milliseconds, so a short run may seem to take no time."""
    return rough(ended - began) if ended - began >= MILLISECOND else "less than 1ms"


def _indented(text: str) -> Iterator[str]:
    for line in text.split("\n") if text else ():
        yield f"  {plain(line)}"


# The banner of `demora serve`.


_TRY = {"type": "demo.echo", "payload": {"hi": 1}, "delay": 3000}


def banner(address: str, settings: Settings, *, in_memory: bool, with_key: bool = False) -> str:
    """Return what `demora serve` prints once it answers: its address, its database, and what to try."""
    database_url, redis_url = settings.database_url, settings.redis_url
    line = "" if redis_url is None else f", Redis line {without_secrets(redis_url)}"
    body = json.dumps(_TRY, separators=(",", ":"))
    names = settings.builtin_handlers or (("http.request",) if with_key else ("all",))
    echoes = _TRY["type"] not in unwanted(names)
    key = ' -H "authorization: Bearer $KEY"' if with_key else ""
    return "\n".join(
        [
            f"demora {__version__} at {address}, jobs in {whole_url(database_url)}{line}",
            *([f"the dashboard: {address}{settings.root_path}/dashboard"] if settings.dashboard == "on" else []),
            "",
            "Try, with KEY=dmr_… (demora keys create creates one):" if with_key else "Try:",
            *([f"  curl -s {address}/api/v1/jobs{key} -H 'content-type: application/json' -d '{body}'"] if echoes else []),
            f"  curl -s {address}/api/v1/jobs{key}" if in_memory or not echoes else f"  {_looking(database_url)}",
            f"  {address}/api/v1/openapi.json",
            "",
        ]
    )


def whole_url(database_url: str) -> str:
    """Return the URL of a database without secrets; that of a file with its absolute path."""
    start, file = "sqlite:///", database_url.removeprefix("sqlite:///")
    if not database_url.startswith(start) or file == ":memory:":
        return without_secrets(database_url)
    return start + quote(str(Path(unquote(file)).absolute()))


def _looking(database_url: str) -> str:
    """Return the command that lists the jobs, as it must be typed in this folder."""
    same = load().database_url == database_url
    return f"{_command()} jobs" if same else f"{_command()} --database-url {shlex.quote(without_secrets(database_url))} jobs"


def _command() -> str:
    script = sys.argv[0]
    if shutil.which("demora") or os.path.basename(script) != "demora":
        return "demora"
    return os.path.relpath(script)
