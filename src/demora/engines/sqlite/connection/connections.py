"""Connections to the SQLite file: the statements by name, the clocks that SQL reads, settings, and schema migrations."""

import math
import os
import random
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from ....errors import OpenInParent, SchemaTooNew, StoreBusy, StoreClosed, StoreError
from ....system import crash, notices
from ...sql import queries, steps
from ...sql.steps import SchemaStep
from . import locking
from .file_problems import why_not
from .locking import describe_holder

PACKAGE = "demora.engines.sqlite"  # has the SQL files
SQL = queries.load(PACKAGE)
T = TypeVar("T")


class Stamps:
    """The clocks of one connection, as the current call read them. SQL reads them as `demora_wall()` and `demora_boot()`.

    `boot` is the clock that decides whether leases have lapsed. `events` counts the events that triggers wrote on this
    connection: each reads the wall clock once. `audited` says whether there are triggers: they existed when the connection
    was opened, or one has fired since. `lined` says whether there is a line.
    """

    __slots__ = ("__weakref__", "audited", "boot", "events", "lined", "wall", "wall_us")

    def __init__(self) -> None:
        self.wall_us, self.boot = time.time_ns() // 1000, 0
        self.wall = self.wall_us // 1000
        self.events = 0
        self.audited = False
        self.lined = False

    def ask_wall(self, *_: object) -> int:
        self.events += 1
        self.audited = True
        return self.wall

    def ask_boot(self, *_: object) -> int:
        return self.boot


_stamps: "weakref.WeakKeyDictionary[apsw.Connection, Stamps]" = weakref.WeakKeyDictionary()


def stamps_of(db: apsw.Connection) -> Stamps:
    """The stamps of a connection. The first call registers their SQL functions; later ones return the same object."""
    stamps = _stamps.get(db)
    if stamps is None:
        stamps = _stamps[db] = Stamps()
        for name, ask in (("demora_wall", stamps.ask_wall), ("demora_boot", stamps.ask_boot)):
            db.create_scalar_function(name, ask, 0, flags=apsw.SQLITE_INNOCUOUS)
    return stamps


def has_triggers(db: apsw.Connection) -> bool:
    return bool(triggers(db))


def triggers(db: apsw.Connection) -> str:
    """The text of a trigger of the audit, empty if there is none."""
    return "".join(text for (text,) in db.execute(SQL["audit_triggers"]))


class Waits(NamedTuple):
    """How long a process waits for others that use the file, in seconds."""

    lock: float = 5.0  # for SQLite's lock, including the turn before it; then the call fails with `StoreBusy`
    turn: float = locking.LIMIT  # for the turn alone
    stall: float = 1.0  # a longer wait may have kept workers from renewing their leases
    closing: float = 0.5  # for the lock, once the store is being closed


WAITS = Waits()
_NOTE_EVERY = 0.2  # seconds between notes of a long wait
_PRAGMAS = ("journal_mode = wal", "synchronous = full", "cache_size = -16384", "temp_store = memory")
_EXISTING = apsw.SQLITE_OPEN_READWRITE  # SQLite itself would create a file that other users can read
_opened: "weakref.WeakKeyDictionary[apsw.Connection, tuple[int, Path]]" = weakref.WeakKeyDictionary()
_inherited: list[apsw.Connection] = []


def connect(path: Path | None) -> apsw.Connection:
    """Open a connection and migrate the schema. A new file gets mode 0600. Refuses a file that was open at a fork."""
    if path is not None:
        _refuse_inherited(path)
        _make_private(path)
    try:
        db = apsw.Connection(str(path), flags=_EXISTING) if path else apsw.Connection(":memory:")
        if path is not None:
            _opened[db] = os.getpid(), path.resolve()
        db.set_busy_handler(BusyHandler())
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else SQLite plans a statement again for each new value
        for pragma in _PRAGMAS:
            _insist(db, f"pragma {pragma}")
        migrate(db)
    except apsw.BusyError as problem:
        raise busy(db.filename, WAITS.lock) from problem
    except apsw.Error as problem:
        raise StoreError(why_not(path, problem)) from problem
    return db


def opened(value: T | None) -> T:
    if value is None:
        raise StoreClosed
    return value


def schema_version(db: apsw.Connection) -> int:
    return int(db.pragma("user_version"))


def stored_version(path: Path) -> int | None:
    """The schema version of a file, None if it has none. Opens the file read-only."""
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return schema_version(db) or None
        finally:
            db.close()
    except apsw.Error as problem:
        raise StoreError(why_not(path, problem)) from problem


def newest_schema() -> int:
    """The version that `migrate` brings a database to."""
    return schema_steps()[-1].number


def is_usable(path: Path) -> bool:
    """Whether this demora can use the schema of a file without migrating it. Opens the file read-only."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        steps.refuse_newer(schema_version(db), _oldest(db), schema_steps())
        return schema_version(db) >= newest_schema()
    except SchemaTooNew:
        return False
    finally:
        db.close()


@cache
def schema_steps() -> list[SchemaStep]:
    folder = files(PACKAGE) / "schema"
    return steps.in_order((file.name, file.read_text()) for file in folder.iterdir() if file.name.endswith(".sql"))


def migrate(db: apsw.Connection, known: Sequence[SchemaStep] | None = None) -> None:
    """Apply the steps of the schema that this database has not seen. The file is locked for one step or block at a time."""
    stamps_of(db)  # a migration that writes to jobs fires the triggers of an audit
    known = schema_steps() if known is None else known
    version = schema_version(db)
    if version > known[-1].number:
        steps.refuse_newer(version, _oldest(db), known)
    for step in known:
        if schema_version(db) >= step.number:
            continue
        if step.online and version > 0:
            _apply_online(db, step)
        else:
            _apply(db, step, shown=version > 0)
        crash.at("schema.migrated")


def _apply(db: apsw.Connection, step: SchemaStep, *, shown: bool) -> None:
    """Apply a step in one transaction. A new database gets its online steps in this way too."""
    with _locked(db):
        if schema_version(db) < step.number:  # another process may have been faster
            _refuse_foreign(db)
            if shown:
                notices.schema_step(step.number)
            oldest = step.number if not step.online else _oldest(db) or schema_version(db)
            _run(db, step.sql)
            _finish(db, step, oldest=oldest)


def _apply_online(db: apsw.Connection, step: SchemaStep) -> None:
    """Apply a step block by block, from the first block that is not done."""
    blocks, again = step.blocks, False
    while True:
        with _locked(db):
            done = _blocks_done(db)
            if schema_version(db) >= step.number:
                return
            block = blocks[done]
            if not again:
                notices.schema_block(step.number, block.subject, done + 1, len(blocks))
            _run(db, block.sql)
            again = block.repeated and db.changes() > 0
            done += not again
            _keep(db, "blocks", done)
            if done == len(blocks):
                _finish(db, step, oldest=_oldest(db) or schema_version(db))
        crash.at("schema.migrated")


def _finish(db: apsw.Connection, step: SchemaStep, *, oldest: int) -> None:
    db.pragma("user_version", step.number)
    _keep(db, "oldest", oldest)
    _keep(db, "blocks", 0)


def _oldest(db: apsw.Connection) -> int | None:
    return _kept(db, "oldest")


def _blocks_done(db: apsw.Connection) -> int:
    return _kept(db, "blocks") or 0


def _kept(db: apsw.Connection, name: str) -> int | None:
    if not db.execute("select 1 from sqlite_master where name = 'meta'").fetchone():
        return None
    row = db.execute("select value from meta where name = ?", (f"schema.{name}",)).fetchone()
    return None if row is None else int(row[0])


def _keep(db: apsw.Connection, name: str, value: int) -> None:
    db.execute("insert or replace into meta (name, value) values (?, ?)", (f"schema.{name}", str(value)))


@contextmanager
def _locked(db: apsw.Connection) -> Iterator[None]:
    """A transaction that has the lock of the file; it is rolled back as a whole if a statement fails."""
    _insist(db, "begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def _run(db: apsw.Connection, sql: str) -> None:
    for _ in db.execute(sql):
        pass


def _refuse_foreign(db: apsw.Connection) -> None:
    if schema_version(db) == 0 and db.execute("select 1 from sqlite_master").fetchone():
        raise StoreError("the database file belongs to another program: it has tables, but none of demora's")


def _refuse_inherited(path: Path) -> None:
    """In a forked process SQLite takes the parent's locks for its own, so a new connection would not lock the file."""
    for db, (pid, opened) in [*_opened.items()]:
        if pid != os.getpid() and opened == path.resolve() and not _is_closed(db):
            raise OpenInParent(path)


def _keep_inherited() -> None:
    """Keep the garbage collector of a forked process from closing the parent's connections, which SQLite forbids."""
    _inherited.extend(_opened)


os.register_at_fork(after_in_child=_keep_inherited)


def _is_closed(db: apsw.Connection) -> bool:
    try:
        db.db_filename("main")
    except apsw.ConnectionClosedError:
        return True
    except apsw.Error:
        pass  # it was in use at the fork
    return False


def _make_private(path: Path) -> None:
    """Create the file if there is none, also at the end of a symbolic link. An existing file is not opened: closing it would
    drop this process's locks on it."""
    try:
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as problem:
        raise StoreError(why_not(path, problem)) from problem


def _insist(db: apsw.Connection, sql: str) -> None:
    """Run a statement that SQLite may refuse as busy without calling the busy handler."""
    busy_handler, tries = BusyHandler(), 0
    while True:
        try:
            for _ in db.execute(sql):
                pass
            return
        except apsw.BusyError:
            tries += 1
            if not busy_handler(tries):
                raise


class BusyHandler:
    """Waits for SQLite's lock in short random pauses, so that a lock that is held for milliseconds is taken soon after.

    The pauses grow with the wait, because a lock that is held for long belongs to a process that has stopped. During a wait
    that may have kept workers from renewing their leases, it calls `on_long_wait` several times a second.
    """

    def __init__(self, waits: Waits = WAITS, on_long_wait: Callable[[], None] | None = None) -> None:
        self._waits, self._on_long_wait = waits, on_long_wait
        self._calls_at = 0.0  # when to call `on_long_wait` next
        self._since = 0.0
        self._until = time.monotonic() + waits.lock
        self.asked: float | None = None  # when the waiting call was made: its limit counts from then
        self.refuses = False  # if set, it does not wait at all
        self.next = False  # if set, few others wait for the lock, and short pauses do no harm
        self.at_most_until = math.inf

    def __call__(self, count: int) -> bool:
        if self.refuses:
            return False
        now = time.monotonic()
        if count == 0:
            self._since = now
            asked = now if self.asked is None else self.asked
            self._until, self._calls_at = asked + self._waits.lock, asked + self._waits.stall
        if self._on_long_wait is not None and now > self._calls_at:
            self._calls_at = now + _NOTE_EVERY
            self._on_long_wait()
        pause = 0.0001 if self.next else random.uniform(0.0002, 0.0005 * min(count + 1, 8))
        time.sleep(max(pause, min((now - self._since) / 20, 0.02)))
        return time.monotonic() < min(self._until, self.at_most_until)

    def hurry(self) -> None:
        """Shorten the wait, since the store is being closed."""
        self.at_most_until = time.monotonic() + self._waits.closing


def busy(file: str, seconds: float) -> StoreBusy:
    """The error for a call that has waited so long for the lock of this file. Logs which process holds it."""
    holder = describe_holder(file) if file else None
    notices.store_locked(holder, seconds)
    by = "another process" if holder is None else holder
    return StoreBusy(f"the database file stayed locked for {seconds:.1f} s by {by}; nothing was written")
