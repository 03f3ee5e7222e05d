"""Group commit: calls that have gathered share one transaction. Each has its savepoint, so that a bad one fails alone."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ... import crash
from ...errors import StoreBusy, StoreError
from ...store import Topic
from .connections import Patience
from .stamps import Stamps, has_triggers, stamps_of
from .statements import SQL
from .turns import Turns

T = TypeVar("T")

LOCK_HELD_AT_MOST = 0.005  # seconds; others that write to the file wait no longer for one batch


class Transaction:
    """What a verb works on: the connection, the clocks read at its start, and whom to wake once it is committed.

    `unplaced` says that it records jobs that no caller puts into a line.
    """

    __slots__ = ("boot", "db", "stamps", "topics", "unplaced", "wall", "wall_us")

    def __init__(self, db: apsw.Connection, stamps: Stamps, topics: set[Topic]) -> None:
        self.db, self.stamps, self.topics = db, stamps, topics
        self.wall, self.wall_us, self.boot = stamps.wall, stamps.wall_us, stamps.boot
        self.unplaced = False

    def wake(self, topic: Topic) -> None:
        self.topics.add(topic)

    def next_move(self) -> int | None:
        """The number under which rows move into waiting now; None while there is no line in sight."""
        if not self.stamps.lined:
            return None
        [(number,)] = self.db.execute(SQL["next_move"])
        return int(number)

    def rows_written(self) -> int:
        """Rows written on this connection so far, but for the events of an audit."""
        return self.db.total_changes() - self.stamps.events


class Pending:
    """A call on its way, and the future of whoever awaits it."""

    __slots__ = ("after_commit", "bare", "call", "error", "future", "result")

    def __init__(self, call: Callable[[Any], Any], future: "asyncio.Future[Any]", *, bare: bool = False) -> None:
        self.call, self.future, self.bare = call, future, bare
        self.result: Any = None
        self.error: Exception | None = None
        self.after_commit: Callable[[], None] | None = None  # runs on the loop, before the future is resolved

    def resolve(self) -> None:
        if self.error is None and self.after_commit is not None:
            self.after_commit()
        if self.future.done():  # the awaiting task was cancelled; the write stands
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Batches:
    """Runs calls on one connection, as many to a transaction as have gathered."""

    def __init__(
        self,
        db: apsw.Connection,
        begin: str,
        clocks: Callable[[], tuple[int, int]],
        ring: Callable[[set[Topic]], None],
        timer: Callable[[], float] = time.perf_counter,
        turns: Turns | None = None,
        on_unplaced: Callable[[], None] | None = None,
    ) -> None:
        self._timer, self._turns, self._on_unplaced = timer, turns or Turns(None), on_unplaced
        self._db, self._begin, self._clocks, self._ring = db, begin, clocks, ring
        self._patience = Patience()
        db.set_busy_handler(self._patience)
        self._stamps = stamps_of(db)
        self._stamps.audited = has_triggers(db)
        self.disk_takes = 0.0  # seconds that a commit may take, from those before: quick to rise, slow to fall

    def begin_at_once(self) -> bool:
        """Begin a transaction if that is possible without waiting. The next `commit` goes on from there."""
        self._patience.lost = True
        try:
            self._db.execute(self._begin)
        except apsw.Error:
            return False
        finally:
            self._patience.lost = False
        return True

    def commit(self, batch: list[Pending]) -> tuple[list[Pending], set[Topic]]:
        """Commit what fits from the front of `batch`; the rest stays in it. Answers with the finished calls."""
        topics: set[Topic] = set()
        finished: list[Pending] = []
        in_turn = False
        try:
            if not self._db.in_transaction and not self.begin_at_once():
                in_turn = self._patience.next = self._turns.take()
                self._execute(self._begin)
            self._run(batch, finished, topics)
            crash.at("batch.applied")
            self._to_disk()
        except Exception as problem:
            self._abandon()
            finished += batch
            batch.clear()
            topics.clear()
            for pending in finished:
                pending.error = pending.error or translate(problem)
        finally:
            if in_turn:
                self._turns.give_back()
        crash.at("batch.committed")
        if topics:
            self._ring(topics)
            crash.at("batch.rung")
        return finished, topics

    def run_next(self, waiting: list[Pending]) -> tuple[list[Pending], set[Topic]]:
        """Run the bare calls in `waiting`, or else its next batch, and take what is finished out of it."""
        bare = [pending for pending in waiting if pending.bare]
        if not bare:
            return self.commit(waiting)
        for pending in bare:
            waiting.remove(pending)
            try:
                pending.result = pending.call(self._db)
            except Exception as problem:
                pending.error = translate(problem)
        return bare, set()

    def set_cache(self, kibibytes: int) -> None:
        self._db.pragma("cache_size", -kibibytes)

    def interrupt(self) -> None:
        """End the statement that runs, if one does. Any thread may call it."""
        self._db.interrupt()

    def close(self) -> None:
        self._db.close()
        self._turns.close()

    def _run(self, batch: list[Pending], finished: list[Pending], topics: set[Topic]) -> None:
        started, alone = self._timer(), len(batch) == 1
        while batch:
            pending = batch.pop(0)
            finished.append(pending)
            if alone:
                self._apply(pending, topics)
            else:
                self._apply_in_savepoint(pending, topics)
            if self._timer() - started > LOCK_HELD_AT_MOST:
                return

    def _apply(self, pending: Pending, topics: set[Topic]) -> None:
        stamps = self._stamps
        stamps.wall_us, stamps.boot = self._clocks()
        stamps.wall = stamps.wall_us // 1000
        tx = Transaction(self._db, stamps, topics)
        pending.result = pending.call(tx)
        if tx.unplaced:
            pending.after_commit = self._on_unplaced

    def _apply_in_savepoint(self, pending: Pending, topics: set[Topic]) -> None:
        self._execute("savepoint one")
        woken: set[Topic] = set()
        try:
            self._apply(pending, woken)
        except Exception as problem:
            pending.error = translate(problem)
            self._execute("rollback to one")
        else:
            topics |= woken
        self._execute("release one")

    def _to_disk(self) -> None:
        started = self._timer()
        self._execute("commit")
        self.disk_takes = max(self._timer() - started, self.disk_takes * 0.8)

    def _execute(self, sql: str) -> None:
        self._db.execute(sql)

    def _abandon(self) -> None:
        if self._db.in_transaction:
            try:
                self._execute("rollback")
            except apsw.Error:
                if self._db.in_transaction:
                    raise


def translate(problem: Exception) -> Exception:
    """The store's own error for a driver's; any other error stays what it is."""
    if isinstance(problem, apsw.BusyError):
        error: StoreError = StoreBusy("the database file stayed locked by another process; nothing was written")
    elif isinstance(problem, apsw.Error):
        error = StoreError(f"SQLite: {problem}")
    else:
        return problem
    error.__cause__ = problem
    return error
