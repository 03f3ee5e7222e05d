"""What a world knows of its own doings while it lives: who runs what, whose leases lapsed, and how soon after a kill."""

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from demora.proof import HandlerEvent, HistoryEvent, SqlEvent
from demora.proof.lives import is_lapse
from demora.store.audit import AuditStore

_decode = msgspec.json.Decoder(HistoryEvent).decode


def boot_ms() -> int:
    """The clock that SQLite's leases go by, which no fault moves."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    """The clock that PostgreSQL's leases go by."""
    return time.time_ns() // 1_000_000


class Watch:
    """Reads events and handlers' notes as they come. `clock` is the one that the events' `boot` goes by."""

    def __init__(self, audit: AuditStore, notes: Path, clock: Callable[[], int]) -> None:
        self._audit, self._notes, self._clock = audit, notes, clock
        self._seq = self._read = 0
        self._holders: dict[str, str] = {}  # job: the worker that claimed it
        self._running: dict[int, set[tuple[str, int]]] = defaultdict(set)
        self.lapses: dict[int, list[int]] = defaultdict(list)  # process: when leases of it were settled as lapsed
        self.killed: dict[int, int] = {}  # process: when, whoever did it
        self.victims: set[int] = set()  # workers that were killed because they were at work
        self.recoveries: list[int] = []  # milliseconds from a kill to the settlement of a lapse

    async def look(self) -> None:
        for event in await self._audit.events(self._seq):
            self._seq = event.seq
            self._see(event)
        self._read_notes()

    @property
    def seen(self) -> int:
        """How many events there were."""
        return self._seq

    def note_kill(self, pid: int) -> None:
        self.killed.setdefault(pid, self._clock())

    def runs(self, pid: int) -> bool:
        """Whether a handler is at work in this process."""
        return bool(self._running.get(pid)) and pid not in self.killed

    def has_run(self, pid: int) -> bool:
        """Whether a handler was ever at work in this process."""
        return pid in self._running

    def kills_in_mid_job(self) -> int:
        """Victims that left a lease behind."""
        return sum(bool(self.lapses.get(pid)) for pid in self.victims)

    def _see(self, event: SqlEvent) -> None:
        if event.kind == "claimed" and event.worker is not None:
            self._holders[event.job] = event.worker
        elif event.kind == "settled":
            holder = self._holders.pop(event.job, None)
            if holder is not None and is_lapse(event):
                self._lapsed(process_of(holder), event)

    def _lapsed(self, pid: int, event: SqlEvent) -> None:
        self.lapses[pid].append(event.boot)
        if pid in self.killed:
            self.recoveries.append(event.boot - self.killed[pid])

    def _read_notes(self) -> None:
        if not self._notes.exists():
            return
        with self._notes.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._note(_decode(line))

    def _note(self, note: HistoryEvent) -> None:
        if isinstance(note, HandlerEvent) and note.worker is not None:
            running, what = self._running[process_of(note.worker)], (note.job, note.token)
            if note.kind == "start":
                running.add(what)
            else:
                running.discard(what)


def process_of(worker: str) -> int:
    """The process in a worker's name: host-pid-chance."""
    return int(worker.rsplit("-", 2)[1])
