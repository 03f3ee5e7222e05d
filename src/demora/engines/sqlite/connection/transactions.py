"""Transactions on SQLite: what a call works on, and group commit.

Calls that are waiting at the same time share one transaction. Each runs in a savepoint, so that a bad one fails alone. Calls
that may be joined, such as adds of plain jobs, even share their statements.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import apsw

from ....errors import StoreBusy, StoreError
from ....store.jobs import Topic
from ....system import crash
from .connections import SQL, WAITS, BusyHandler, Stamps, Waits, busy, has_triggers, stamps_of
from .file_problems import why_refused
from .file_watch import FileWatch, OpenedFile
from .locking import LockTurns, Overtaken, Stall

WRITING, READING = "begin immediate", "begin"
LOCK_HELD_AT_MOST = 0.005  # seconds after which a batch is committed, since other processes wait for the lock
MOST_JOINED = 128  # the weight of calls that run as one: a fraction of the time that a batch may hold the lock


class Transaction:
    """What a call works on: the connection, the clocks as read at its start, and the topics to wake once it is committed.

    A new lease is counted from `boot`. Whether a lease has lapsed is decided by `lease_clock`, which runs behind `boot` for
    a while after a stall. The call sets `unplaced` if it records jobs that no caller puts into the line.
    """

    __slots__ = ("_settled", "boot", "db", "lease_clock", "stall", "stamps", "topics", "unplaced", "wall", "wall_us")

    def __init__(self, db: apsw.Connection, stamps: Stamps, topics: set[Topic], boot: int, stall: Stall) -> None:
        self.db, self.stamps, self.topics, self.boot, self.stall = db, stamps, topics, boot, stall
        self.wall, self.wall_us, self.lease_clock = stamps.wall, stamps.wall_us, stamps.boot
        self.unplaced = False
        self._settled: int | None = 0

    def wake(self, topic: Topic) -> None:
        self.topics.add(topic)

    def next_move(self) -> int | None:
        """The number to record with rows that move into waiting now; None while there is no line."""
        if not self.stamps.lined:
            return None
        [(number,)] = self.db.execute(SQL["next_move"])
        return int(number)

    def settled(self) -> int | None:
        """The number to record with rows that this call ends or sends into a retry; None if there never was a listener."""
        if self._settled == 0:
            row = self.db.execute(SQL["settled_position"]).fetchone()
            self._settled = None if row is None else int(row[0]) + 1
        return self._settled

    def rows_written(self) -> int:
        """Rows written on this connection so far, without the events of an audit."""
        return self.db.total_changes() - self.stamps.events


class Pending:
    """A call that waits or runs, and the future that its caller awaits. A call with `requests` is given them too and returns
    an answer to each, so that it may be joined with others of the same function."""

    __slots__ = ("after_commit", "asked", "bare", "call", "error", "future", "requests", "result", "weight")

    def __init__(
        self,
        call: Callable[..., Any],
        future: "asyncio.Future[Any]",
        *,
        weight: int = 1,
        requests: Sequence[Any] | None = None,
        bare: bool = False,
    ) -> None:
        self.call, self.future, self.bare = call, future, bare
        self.weight, self.requests = weight, requests
        self.asked = time.monotonic()
        self.result: Any = None
        self.error: Exception | None = None
        self.after_commit: Callable[[], None] | None = None  # runs on the loop, before the future is resolved

    def run(self, tx: Transaction) -> Any:
        return self.call(tx) if self.requests is None else self.call(tx, self.requests)

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
    """Runs calls on one connection; those that wait at the same time share a transaction."""

    def __init__(
        self,
        db: apsw.Connection,
        begin: str,
        clocks: Callable[[], tuple[int, int]],
        notify: Callable[[set[Topic]], None],
        timer: Callable[[], float] = time.perf_counter,
        turns: LockTurns | None = None,
        *,
        file: OpenedFile | None = None,
        watch: FileWatch | None = None,
        stall: Stall | None = None,
        waits: Waits = WAITS,
        on_unplaced: Callable[[], None] | None = None,
    ) -> None:
        self._timer, self._most, self._on_unplaced = timer, waits, on_unplaced
        self._file, self._watch = file, watch
        self.writes = begin != READING
        self._waits_since: int | None = None  # when the wait for the lock began, on the clock of leases
        self.turns, self._stall = turns or LockTurns(None), stall or Stall()
        self._db, self._begin, self._clocks, self._notify = db, begin, clocks, notify
        self._busy = BusyHandler(waits, self._note_long_wait)
        db.set_busy_handler(self._busy)
        self._stamps = stamps_of(db)
        self._stamps.audited = has_triggers(db)
        self.disk_takes = 0.0  # expected seconds of a commit, from earlier ones: quick to rise, slow to fall

    def begin_at_once(self) -> bool:
        """Begin a transaction if that is possible without waiting. The next `commit` then uses it."""
        self._busy.refuses = True
        try:
            if self._watch is not None:
                self._watch.expect(self._db)
            self._db.execute(self._begin)
        except apsw.Error:
            return False
        finally:
            self._busy.refuses = False
        return True

    def commit(self, batch: list[Pending]) -> tuple[list[Pending], set[Topic]]:
        """Run and commit calls from the front of `batch`, and return them; the others stay in it.

        If the lock stays taken, the calls that have waited too long fail. Raises `Overtaken` if another thread took over.
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
            if self._file is not None and self.writes:
                self._file.check()  # what was committed to a file that is gone must not be acknowledged
        except Overtaken:
            raise
        except Exception as problem:
            traceback.clear_frames(problem.__traceback__)  # an open cursor in one would keep an interrupt in force
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
            self._notify(topics)
            crash.at("batch.notified")
        return finished, topics

    def run_next(self, waiting: list[Pending]) -> tuple[list[Pending], set[Topic]]:
        """Run the bare calls in `waiting`, or else its next batch; finished calls leave the list."""
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
        """Interrupt the statement that runs, if one does. Any thread may call it."""
        self._db.interrupt()

    def hurry(self) -> None:
        """Shorten all waits for the lock, since the store is being closed. Any thread may call it."""
        self._busy.hurry()

    def close(self) -> None:
        self._db.close()
        self.turns.close()

    def _begin_late(self, batch: list[Pending], *, in_turn: bool) -> bool:
        """Begin once the lock is free; False if it stays taken until the oldest call has waited too long."""
        self._busy.asked, self._busy.next = batch[0].asked if batch else None, in_turn
        try:
            self._execute(self._begin)
        except apsw.BusyError:
            return False
        finally:
            self._busy.asked = None
        return True

    def _note_stall(self) -> None:
        """After a long wait for the lock, note that no process could renew its leases meanwhile."""
        since, self._waits_since = self._waits_since, None
        if self.writes and (since is not None or not self._stall.ended):
            now = self._clocks()[1]
            if not self._stall.ended or (since is not None and now - since > self._most.stall * 1000):
                self._stall.is_over(now if since is None else since, now)

    def _note_long_wait(self) -> None:
        """Note a wait that has not ended, so that other connections and processes judge leases by its beginning."""
        now = self._clocks()[1]
        self._stall.goes_on(self._waits_since or now, now)

    def _refuse_overdue(self, batch: list[Pending]) -> list[Pending]:
        """Take the calls that have waited too long out of the batch, with an error that names the holder of the lock."""
        self._note_long_wait()
        self._waits_since = None
        now = time.monotonic()
        hurried = now >= self._busy.at_most_until
        overdue = [pending for pending in batch if hurried or now - pending.asked >= self._most.lock] or batch[:1]
        problem = busy(self._db.filename, now - overdue[0].asked if overdue else 0.0)
        for pending in overdue:
            batch.remove(pending)
            pending.error = StoreBusy(str(problem))
        return overdue

    def _check_files(self) -> None:
        """Refuse to write if the files of the database were cut, deleted or replaced, and to read a file that is gone."""
        if self._watch is None:
            if self._file is not None:
                self._file.check()
            return
        if self._watch.is_well():
            return
        self._execute("rollback")
        self._watch.judge(self._db)
        self._execute(self._begin)

    def _run(self, batch: list[Pending], finished: list[Pending], topics: set[Topic]) -> None:
        started, alone = self._timer(), len(batch) == 1
        while batch:
            together = _take(batch)
            finished += together
            if alone:
                self._apply(together[0], topics)
            elif len(together) > 1:
                self._apply_as_one(together, topics)
            elif self.writes:
                self._apply_in_savepoint(together[0], topics)
            else:
                self._read(together[0], topics)
            if self._timer() - started > LOCK_HELD_AT_MOST:
                return

    def _apply(self, pending: Pending, topics: set[Topic]) -> None:
        stamps = self._stamps
        stamps.wall_us, boot = self._clocks()
        stamps.wall = stamps.wall_us // 1000
        stamps.boot = self._stall.lease_clock(boot)
        tx = Transaction(self._db, stamps, topics, boot, self._stall)
        pending.result = pending.run(tx)
        if tx.unplaced:
            pending.after_commit = self._on_unplaced

    def _read(self, pending: Pending, topics: set[Topic]) -> None:
        try:
            self._apply(pending, topics)
        except Exception as problem:
            pending.error = translate(problem)

    def _apply_as_one(self, together: Sequence[Pending], topics: set[Topic]) -> None:
        """Run calls of one function as one. If that fails, run each of them, so that only the bad ones fail."""
        requests = [request for pending in together for request in pending.requests or ()]
        joint = Pending(together[0].call, together[0].future, requests=requests)
        self._apply_in_savepoint(joint, topics)
        if joint.error is not None:
            for pending in together:
                self._apply_in_savepoint(pending, topics)
            return
        answers = iter(joint.result)
        for pending in together:
            pending.result = list(islice(answers, len(pending.requests or ())))
        together[0].after_commit = joint.after_commit

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


def _take(batch: list[Pending]) -> list[Pending]:
    """Take the first call out of the batch, and those directly behind it that run as one with it."""
    first, count = batch[0], 1
    if first.requests is not None:
        weight = first.weight
        for pending in islice(batch, 1, None):
            weight += pending.weight
            if pending.requests is None or pending.call != first.call or weight > MOST_JOINED:
                break
            count += 1
    taken = batch[:count]
    del batch[:count]
    return taken


def translate(problem: Exception) -> Exception:
    """The store's own error for one of the driver's; any other error is returned as it is."""
    if isinstance(problem, apsw.BusyError):
        error: StoreError = StoreBusy("the database file stayed locked by another process; nothing was written")
    elif isinstance(problem, apsw.Error):
        error = StoreError(why_refused(problem))
    else:
        return problem
    error.__cause__ = problem
    return error
