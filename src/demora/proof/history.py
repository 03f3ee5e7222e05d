"""The file format of histories: one JSON object on each line. Its `source` is client, handler, sql or world.

Times are milliseconds since 1970 by the clock of the process that wrote the line. The checker compares only times of SQL
and world events, which use the database's clock. It relates client and handler events to them by ids and tokens.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ..store.audit import SqlEvent


class ClientEvent(msgspec.Struct, frozen=True, tag_field="source", tag="client", omit_defaults=True):
    """A caller's view of one call: an `invoke`, then one of `ok`, `fail` (it certainly did not happen) and `unknown`.

    Both events have the same `call`. An invoke names the ids in the request, an `ok` those in the answer. A call with a key
    concerns one job; `request` is a text that differs between different requests, `kept` how long the key is kept. `due_at`
    is the requested time. `answer` is the status that a cancel returned, or the error or HTTP status of a `fail`.
    """

    kind: Literal["invoke", "ok", "fail", "unknown"]
    op: Literal["add", "cancel", "retry", "reschedule", "delete"]
    call: str
    at: int
    jobs: tuple[str, ...] = ()
    key: str | None = None
    request: str | None = None
    kept: int | None = None
    due_at: int | None = None
    answer: str | None = None


class HandlerEvent(msgspec.Struct, frozen=True, tag_field="source", tag="handler", omit_defaults=True):
    """A handler's view of its run. It is written before the handler returns, so a recorded success has an `end`.

    `outcome` is ok (it returned), error (to be tried again), permanent, snooze, cancel, or None.
    """

    kind: Literal["start", "end"]
    job: str
    token: int
    at: int
    attempt: int | None = None
    worker: str | None = None
    outcome: str | None = None


class WorldEvent(msgspec.Struct, frozen=True, tag_field="source", tag="world", omit_defaults=True):
    """An intervention in the system: a fault by its name, `healed` when all faults are over, `drained` when the queues had
    time to empty. `rescued` is no fault: a safety net, named in `detail`, found a job that it should not have had to find.
    `at` is a time of the database's clock. `boot` is a time of the clock that SQL events have as `boot`, which is never set;
    give it for all interventions if one of them sets the database's clock."""

    kind: str
    at: int
    detail: str | None = None
    job: str | None = None
    boot: int | None = None


__all__ = ["ClientEvent", "HandlerEvent", "HistoryEvent", "Recorder", "SqlEvent", "WorldEvent", "read", "write"]

HistoryEvent = ClientEvent | HandlerEvent | SqlEvent | WorldEvent

_decode = msgspec.json.Decoder(HistoryEvent).decode
_encode = msgspec.json.encode


class Recorder:
    """Appends events to a file, each with one write, so that a process that is killed leaves only whole lines. Several
    processes may write to one file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record(self, event: HistoryEvent) -> None:
        os.write(self._file, _encode(event) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def write(path: Path, events: Iterable[HistoryEvent]) -> None:
    """Write a history to a file and replace its content."""
    with path.open("wb") as file:
        file.writelines(_encode(event) + b"\n" for event in events)


def read(*paths: Path) -> Iterator[HistoryEvent]:
    """Yield the events of several files, one file after the other. Skips a last line that was cut off."""
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield _decode(line)
