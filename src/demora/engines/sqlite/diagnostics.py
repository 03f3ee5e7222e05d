"""Diagnostics on SQLite: the examination of the file from outside, the overview of jobs, and whether writes succeed."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import apsw

from ...core.spans import from_ms, span_ms
from ...core.workers import Running
from ...errors import StoreBusy, StoreError
from ...store.diagnostics import AGES, Activity, DeadLetterGroup, Examination, Finding, JobsOverview, Size
from ..sql import columns
from . import registry, rows
from .connection import connections
from .connection.connections import SQL
from .connection.transactions import Transaction
from .database import Database

MIB = 1024 * 1024
LITTLE_ROOM, NO_ROOM = 1024 * MIB, 64 * MIB  # free on the disk
LARGE_LOG = 64 * MIB  # SQLite folds its log back into the file at about 4 MiB
MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre", "ncpfs"}
_LOOK_AT_SIGNALS = 10_000  # steps of SQLite after which it reacts to Ctrl-C


def examine(path: Path, *, integrity: bool) -> Examination:
    """Examine the database without opening the store. Creates and changes nothing."""
    around = [_version(), *_place(path)]
    if not path.exists():
        advice = "start demora serve, which creates it, or choose another with --database-url or DEMORA_DATABASE_URL"
        missing = Finding("database", "problem", f"there is no database file {path}", advice)
        return Examination([missing, *around], usable=False)
    schema, usable = _schema(path)
    found = [Finding("database", "ok", f"{path}, {_size(path.stat().st_size)}"), _access(path), schema, *around, _log(path)]
    return Examination([*found, _whole(path)] if integrity and usable else found, usable)


def _version() -> Finding:
    return Finding("sqlite", "ok", f"SQLite {apsw.sqlite_lib_version()}, apsw {apsw.apsw_version()}")


def _access(path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if not os.access(path, os.R_OK | os.W_OK):
        advice = "run demora as the user who owns the file"
        return Finding("permissions", "problem", f"this user may not read and write {path} (mode {mode:04o})", advice)
    if mode & 0o077:
        fact = f"{path} has mode {mode:04o}: other users of this machine may read payloads or change jobs"
        return Finding("permissions", "warning", fact, f"chmod 600 {path}")
    return Finding("permissions", "ok", f"mode {mode:04o}: for its owner only")


def _schema(path: Path) -> tuple[Finding, bool]:
    """The finding, and whether the schema is the one that this demora uses."""
    known = connections.newest_schema()
    try:
        found = connections.stored_version(path)
    except StoreError as problem:
        advice = "is it a database of demora, and may this user read it? Restore a backup if it is damaged"
        return Finding("schema", "problem", f"the file cannot be read: {problem}", advice), False
    if found is None:
        return Finding(
            "schema", "problem", "the file has no schema of demora", "demora migrate makes it in an empty file"
        ), False
    if found > known and connections.is_usable(path):
        return Finding("schema", "ok", f"schema {found}, which this demora may use; it knows up to {known}"), True
    if found > known:
        fact = f"the database has schema {found}, this demora knows up to {known}"
        return Finding("schema", "problem", fact, "use the newer demora that migrated it"), False
    if found < known:
        fact = f"the database has schema {found}, this demora uses {known}; its jobs were not looked at"
        return Finding("schema", "warning", fact, "demora migrate brings it up to date"), False
    return Finding("schema", "ok", f"schema {found}, as this demora uses it"), True


def _place(path: Path) -> Iterator[Finding]:
    folder = path.parent
    if not folder.is_dir():
        yield Finding("folder", "problem", f"there is no folder {folder}", "make it, or correct the database URL")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        fact = f"this user may not write to the folder {folder}, where SQLite keeps its log beside the file"
        yield Finding("folder", "problem", fact, "run demora as the user who owns the folder")
    yield _room(folder)
    kind = file_system(folder.resolve(), MOUNTS.read_text()) if MOUNTS.exists() else None
    if kind in _REMOTE:
        fact = f"{folder} is on a network file system ({kind}), where SQLite's locks are not to be relied on"
        yield Finding("file system", "warning", fact, "put the file on a local disk, and run all processes on that machine")
    else:
        yield Finding("file system", "ok", "local" if kind is None else f"local ({kind})")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    fact, advice = f"{_size(free)} free on the disk of {folder}", "make room; demora purge deletes old jobs"
    if free < NO_ROOM:
        return Finding("disk", "problem", fact, advice)
    return Finding("disk", "warning", fact, advice) if free < LITTLE_ROOM else Finding("disk", "ok", fact)


def file_system(path: Path, mounts: str) -> str | None:
    """The type of the file system that a path is on, from the text of mountinfo: that of the nearest mount point above."""
    kinds = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if len(fields := before.split()) > 4 and after:
            kinds[Path(fields[4].replace("\\040", " "))] = after.split()[0]
    above = [mount for mount in kinds if path.is_relative_to(mount)]
    return kinds[max(above, key=lambda mount: len(mount.parts))] if above else None


def _log(path: Path) -> Finding:
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size < LARGE_LOG:
        return Finding("log", "ok", f"the write-ahead log has {_size(size)}")
    fact = f"the write-ahead log {log} has grown to {_size(size)}: some process has been reading for long, or cannot write"
    return Finding("log", "warning", fact, "end what holds the file open (a shell, a backup, a stopped process)")


def _whole(path: Path) -> Finding:
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            db.set_busy_handler(connections.BusyHandler())
            db.set_progress_handler(lambda: False, _LOOK_AT_SIGNALS)
            found = [said for (said,) in db.execute("pragma quick_check(3)") if said != "ok"]
        finally:
            db.close()
    except apsw.Error as problem:
        found = [str(problem)]
    if not found:
        return Finding("integrity", "ok", "SQLite finds the file whole (quick_check)")
    advice = (
        "stop all processes, keep a copy of the file, restore a backup or try sqlite3's .recover; demora verify says more"
    )
    return Finding("integrity", "problem", f"the file is damaged: {'; '.join(found)}", advice)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


# The overview of jobs


class SqliteDiagnostics:
    """The state of the jobs, and whether writes succeed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._probe = WriteProbe(lambda: database.write(registry.touch))

    async def overview(self, *, ended: bool = True) -> JobsOverview:
        return await self._database.search(lambda tx: overview(tx, ended), None)

    async def activity(self, mark: int | None = None) -> Activity:
        return await self._database.search(lambda tx: activity(tx, mark), None)

    async def dead_letters(self, limit: int, *, within: timedelta | None = None) -> list[DeadLetterGroup]:
        return await self._database.search(lambda tx: dead_letters(tx, limit), within)

    async def coming(self, until: timedelta, steps: int, *, within: timedelta | None = None) -> list[int]:
        return await self._database.search(lambda tx: coming(tx, span_ms(until), steps), within)

    async def sizes(self) -> list[Size]:
        return await self._database.read(sizes)

    def notes(self) -> tuple[str, ...]:
        return ()

    async def probe(self) -> None:
        await self._probe.ask()


def overview(tx: Transaction, ended: bool) -> JobsOverview:
    [(lapsed, lapsed_at)] = tx.db.execute(SQL["overview_lapsed"], (tx.boot,))
    [(ahead, ahead_waiting, latest)] = tx.db.execute(
        SQL["overview_ahead" if ended else "overview_ahead_waiting"], (tx.wall,)
    )
    return JobsOverview(
        now=from_ms(tx.wall),
        waiting=[columns.waiting(row) for row in tx.db.execute(SQL["overview_waiting"], (tx.wall,))],
        lapsed=lapsed,
        lapsed_for=timedelta(milliseconds=tx.boot - lapsed_at if lapsed else 0),
        ahead=ahead,
        ahead_waiting=ahead_waiting or 0,
        ahead_by=timedelta(milliseconds=latest - tx.wall if ahead else 0),
        running=running(tx),
    )


def dead_letters(tx: Transaction, limit: int) -> list[DeadLetterGroup]:
    found = tx.db.execute(SQL["dead_letters"], (*(tx.wall - span_ms(age) for age in AGES), limit))
    return [
        DeadLetterGroup(queue, type, error, band, jobs, from_ms(first), from_ms(last), rows.id_text(id))
        for queue, type, error, band, jobs, first, last, id in found
    ]


def sizes(tx: Transaction) -> list[Size]:
    [(used, free)] = tx.db.execute(SQL["sizes"])
    return sorted([Size("used", used), Size("free for new jobs", free)], key=lambda one: -one.bytes)


def coming(tx: Transaction, until: int, steps: int) -> list[int]:
    counts = dict(tx.db.execute(SQL["coming"], {"wall": tx.wall, "until": until, "steps": steps}))
    return [counts.get(step, 0) for step in range(steps)]


def running(tx: Transaction) -> list[Running]:
    """The jobs whose leases hold, by worker and type."""
    return [
        Running(worker_id, type, jobs, rows.id_text(id), from_ms(since), from_ms(latest))
        for worker_id, type, jobs, id, since, latest in tx.db.execute(SQL["running"], (tx.boot,))
    ]


def activity(tx: Transaction, mark: int | None) -> Activity:
    [(newest,)] = tx.db.execute(SQL["activity_mark"])
    due = tx.db.execute(SQL["activity_due"], (tx.wall,))
    return Activity(
        now=from_ms(tx.wall),
        mark=newest,
        queues=registry.queues(tx),
        added={} if mark is None else dict(tx.db.execute(SQL["activity_added"], (mark,))),
        running=dict(tx.db.execute(SQL["activity_running"])),
        due_since={queue: from_ms(due_at) for queue, due_at in due},
    )


# Whether writes succeed, for the health check of the service


WITHIN = 2.0  # seconds that a write may take
FRESH = 1.0  # seconds for which an answer holds: any number of checks cost one write a second


class WriteProbe:
    """Makes one small write at a time; callers that ask meanwhile share it."""

    def __init__(self, write: Callable[[], "asyncio.Future[None]"], *, within: float = WITHIN, fresh: float = FRESH) -> None:
        self._write, self._within, self._fresh = write, within, fresh
        self._last: asyncio.Future[None] | None = None
        self._asked_at = 0.0

    async def ask(self) -> None:
        """Raise the error of a write that fails now, or `StoreBusy` if it has not ended in time."""
        now = asyncio.get_running_loop().time()
        last = self._last
        if last is None or (last.done() and now - self._asked_at > self._fresh):
            last = self._last = self._write()
            last.add_done_callback(_seen)
            self._asked_at = now
        await asyncio.wait([last], timeout=max(self._asked_at + self._within - now, 0))
        if not last.done():
            raise StoreBusy(f"a write has not ended within {self._within:.0f} s")
        last.result()


def _seen(last: "asyncio.Future[None]") -> None:
    if not last.cancelled():
        last.exception()
