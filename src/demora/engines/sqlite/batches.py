"""Group commit: calls that have gathered share one transaction. Each has its savepoint, so that a bad one fails alone."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ... import crash
from ...errors import StoreBusy, StoreError
from ...store import Topic
from .connections import WAITS, Patience, Waits, busy
from .stalls import Stall
from .stamps import Stamps, has_triggers, stamps_of
from .statements import SQL
from .turns import Overtaken, Turns
from .watch import FileWatch

T = TypeVar("T")

WRITING, READING = "begin immediate", "begin"
LOCK_HELD_AT_MOST = 0.005  # seconds; others that write to the file wait no longer for one batch


class Transaction:
    """What a verb works on: the connection, the clocks read at its start, and whom to wake once it is committed.

    Leases are given by the clock `boot`, and judged by `lease_clock`, which is behind it for a while after a stall.
    """

    __slots__ = ("boot", "db", "lease_clock", "stall", "stamps", "topics", "wall", "wall_us")

    def __init__(self, db: apsw.Connection, stamps: Stamps, topics: set[Topic], boot: int, stall: Stall) -> None:
        self.db, self.stamps, self.topics, self.boot, self.stall = db, stamps, topics, boot, stall
        self.wall, self.wall_us, self.lease_clock = stamps.wall, stamps.wall_us, stamps.boot

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

    __slots__ = ("asked", "bare", "call", "error", "future", "result")

    def __init__(self, call: Callable[[Any], Any], future: "asyncio.Future[Any]", *, bare: bool = False) -> None:
        self.call, self.future, self.bare = call, future, bare
        self.asked = time.monotonic()
        self.result: Any = None
        self.error: Exception | None = None

    def resolve(self) -> None:
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
        *,
        watch: FileWatch | None = None,
        stall: Stall | None = None,
        waits: Waits = WAITS,
    ) -> None:
        self._timer, self._watch, self._most = timer, watch, waits
        self._writes = begin != READING
        self._waits_since: int | None = None  # on the clock of leases
        self.turns, self._stall = turns or Turns(None), stall or Stall()
        self._db, self._begin, self._clocks, self._ring = db, begin, clocks, ring
        self._patience = Patience(waits)
        db.set_busy_handler(self._patience)
        self._stamps = stamps_of(db)
        self._stamps.audited = has_triggers(db)
        self.disk_takes = 0.0  # seconds that a commit may take, from those before: quick to rise, slow to fall

    def begin_at_once(self) -> bool:
        """Begin a transaction if that is possible without waiting. The next `commit` goes on from there."""
        self._patience.lost = True
        try:
            if self._watch is not None:
                self._watch.expect(self._db)
            self._db.execute(self._begin)
        except apsw.Error:
            return False
        finally:
            self._patience.lost = False
        return True

    def commit(self, batch: list[Pending]) -> tuple[list[Pending], set[Topic]]:
        """Commit what fits from the front of `batch`; the rest stays in it. Answers with the finished calls.

        If the lock is not to be had, those calls fail whose time is up. `Overtaken` if another thread goes on instead.
        """
        topics: set[Topic] = set()
        finished: list[Pending] = []
        in_turn = False
        try:
            if not self._db.in_transaction and not self.begin_at_once():
                self._waits_since = self._waits_since or self._clocks()[1]
                in_turn = self.turns.take()
                if not self._begin_late(batch, in_turn=in_turn):
                    return self._refuse_overdue(batch), topics
            self._note_stall()
            self._check_files()
            self._run(batch, finished, topics)
            crash.at("batch.applied")
            self._to_disk()
        except Overtaken:
            raise
        except Exception as problem:
            self._abandon()
            finished += batch
            batch.clear()
            topics.clear()
            for pending in finished:
                pending.error = pending.error or translate(problem)
        finally:
            if in_turn:
                self.turns.give_back()
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

    def hurry(self) -> None:
        """Wait for little more from now on, on whatever thread: the store is being closed."""
        self._patience.hurry()

    def close(self) -> None:
        self._db.close()
        self.turns.close()

    def _begin_late(self, batch: list[Pending], *, in_turn: bool) -> bool:
        """Begin once the lock is free; False if it is not before the time of the oldest call is up."""
        self._patience.asked, self._patience.next = batch[0].asked if batch else None, in_turn
        try:
            self._execute(self._begin)
        except apsw.BusyError:
            return False
        finally:
            self._patience.asked = None
        return True

    def _note_stall(self) -> None:
        """Remember for a while that nobody could write, now that this is over."""
        since, self._waits_since = self._waits_since, None
        if self._writes and (since is not None or not self._stall.ended):
            now = self._clocks()[1]
            if not self._stall.ended or (since is not None and now - since > self._most.stall * 1000):
                self._stall.is_over(now if since is None else since, now)

    def _refuse_overdue(self, batch: list[Pending]) -> list[Pending]:
        """The calls that have waited for too long, with the error that says for whom; they leave the batch."""
        self._stall.goes_on(self._waits_since or self._clocks()[1])
        self._waits_since = None
        now = time.monotonic()
        hurried = now >= self._patience.at_most_until
        overdue = [pending for pending in batch if hurried or now - pending.asked >= self._most.lock] or batch[:1]
        problem = busy(self._db.filename, now - overdue[0].asked if overdue else 0.0)
        for pending in overdue:
            batch.remove(pending)
            pending.error = StoreBusy(str(problem))
        return overdue

    def _check_files(self) -> None:
        """Refuse to write to files that are no longer those of this database."""
        if self._watch is None or self._watch.is_well():
            return
        self._execute("rollback")
        self._watch.judge(self._db)
        self._execute(self._begin)

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
        stamps.wall_us, boot = self._clocks()
        stamps.wall = stamps.wall_us // 1000
        stamps.boot = self._stall.lease_clock(boot)
        pending.result = pending.call(Transaction(self._db, stamps, topics, boot, self._stall))

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
