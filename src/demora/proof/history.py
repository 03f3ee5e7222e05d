"""One form for all histories: a JSON object a line, whose `source` says who saw it: client, handler, sql or world.

Times are milliseconds since 1970 by the clock of whoever wrote the line. The checker compares times of SQL events with each
other and with those of the world, and trusts no other clock: what clients and handlers saw is tied to it by ids and tokens.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ..store.audit import SqlEvent


class ClientEvent(msgspec.Struct, frozen=True, tag_field="source", tag="client", omit_defaults=True):
    """A caller's view of one call: an `invoke`, then one of `ok`, `fail` (it surely did not happen) and `unknown`.

    `call` ties them together. An invoke names the ids that are asked for (or about), an `ok` those that were answered. A
    call with a key is about one job; `request` is any text that differs between different requests, `kept` how long the
    key holds. `due_at` is the time that was asked for. `answer` is the status that a cancel answered with, or the
    name of the error or HTTP status of a `fail`.
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
    """A handler's own view of its run. It is written before the handler returns, so a recorded success has an `end`.

    `outcome`: ok (it returned), error (worth another try), permanent, snooze, cancel, or none of these.
    """

    kind: Literal["start", "end"]
    job: str
    token: int
    at: int
    attempt: int | None = None
    worker: str | None = None
    outcome: str | None = None


class WorldEvent(msgspec.Struct, frozen=True, tag_field="source", tag="world", omit_defaults=True):
    """Something that was done to the system: a fault by its name, `healed` when all faults are over, `drained` when the
    queues had time to empty. `at` is the database's clock."""

    kind: str
    at: int
    detail: str | None = None


__all__ = ["ClientEvent", "Event", "HandlerEvent", "Recorder", "SqlEvent", "WorldEvent", "read", "write"]

Event = ClientEvent | HandlerEvent | SqlEvent | WorldEvent

_decode = msgspec.json.Decoder(Event).decode
_encode = msgspec.json.encode


class Recorder:
    """Appends events to a file, each by one write, so that a process killed at any moment leaves whole lines behind it.
    Several processes may write to one file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record(self, event: Event) -> None:
        os.write(self._file, _encode(event) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def write(path: Path, events: Iterable[Event]) -> None:
    """Write a history, in place of what the file held."""
    with path.open("wb") as file:
        file.writelines(_encode(event) + b"\n" for event in events)


def read(*paths: Path) -> Iterator[Event]:
    """The events of several files, one file after the other. A last line that was cut off is left out."""
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield _decode(line)
