"""Keeps a line usable: connects to it, decides whether it can be trusted, and has it filled again after a loss.

Every process has a maintainer, and all of them check the line, in small steps that can be repeated. Normally one of them
fills and sweeps it; two that do so at once do no harm.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from ..errors import BadSetting, StoreError
from ..store.line_feed import Entry, LineFeed, Place
from ..system import crash, notices
from .database_clock import DatabaseClock
from .filling import HORIZON, MAINTAINER_SPAN, Filler, advance_epoch
from .placing import Placer
from .port import HandedOut, Line, LineAway, LineLost, PutMode, WakeWaiters

TICK = 1.0  # seconds between two checks of the line
CLOCK_TICKS = 10  # ticks between two readings of the database's clock
ARRANGE_TICKS = 5  # ticks between two readings of the queues' settings
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two attempts to reach a line that is away
STALE_AFTER = 5000  # milliseconds after which a job that was handed out and is not done is handed out again


class Maintainer:
    """The maintainer of one process. The verbs for the store never raise `LineAway`: while the line is away they do
    nothing."""

    def __init__(
        self, feed: LineFeed, line: Line, wake: WakeWaiters, *, horizon: timedelta = HORIZON, ticks: bool = True
    ) -> None:
        self.line, self.horizon = line, horizon
        self.clock = DatabaseClock(feed)
        self.up = False  # whether the line was reached, and no verb has failed since
        self.paced = False  # whether any queue has a pace
        self.trouble = "it has not been contacted yet"  # why the line is not up
        self._feed, self._wake, self._ticks = feed, wake, ticks
        self._process = secrets.token_hex(8)
        self._placer = Placer(feed, line, self.clock, wake, horizon=horizon)
        self._filler = Filler(feed, line, self.clock, self._placer, process=self._process)
        self._check_now = asyncio.Event()
        self._reported_away = False
        self._task: asyncio.Task[None] | None = None

    @property
    def trusted(self) -> bool:
        """Whether a claim may rely on the line: it was reached and it was filled."""
        return self.up and self._filler.filled

    async def open(self) -> None:
        """Connect if the server is there, and keep trying if it is not. `BadSetting` if it can never be used. After an error
        no connection is left open."""
        try:
            await self._connect()
            if not self._filler.filled:
                await self._fill(pages=1)
        except LineAway as problem:
            self._lose(problem)
        except BaseException:
            await self.line.close()
            raise
        if self._ticks:
            self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()  # again, if a driver has swallowed it
            await asyncio.wait([task], timeout=FIRST_PAUSE)
        await self.line.close()

    # The verbs for the store

    def reach(self) -> int:
        """Return the time up to which jobs belong in the line."""
        return self._placer.reach()

    async def put(self, places: Iterable[Place], *, mode: PutMode = PutMode.MOVED, quiet: bool = False) -> None:
        """Put those of the jobs that are due within the horizon; `quiet` wakes no waiter of this process."""
        if self.up:
            with self._losing():
                await self._placer.put(places, mode=mode, quiet=quiet)

    async def remove(self, entries: Sequence[Entry]) -> None:
        if self.up and entries:
            with self._losing():
                await self.line.remove(entries)

    async def follow(self, ids: Sequence[str]) -> None:
        """Bring the line in step with the rows of these jobs."""
        if self.up:
            with self._losing():
                await self._placer.follow(ids)

    async def take(self, queues: Sequence[str] | None, limit: int, *, in_turn: bool) -> HandedOut | None:
        """Return what the line hands out; None if it may not know every job that is due."""
        with self._losing():
            if not self.trusted or not await self._filler.covers_now():
                return None
            now, asked = self.clock.due_by(), time.monotonic()
            taken = await self.line.take(queues, limit, now=now, stale=now - STALE_AFTER, in_turn=in_turn)
            self.clock.learn_answer(taken.next_due, asked)
            if taken.entries:
                await self.clock.wait_until(now)
            self.paced = taken.state.paced
            if not (taken.state.epoch == self.line.epoch and taken.state.filled):
                raise LineLost("what it held is gone")
            return taken
        return None

    async def done(self, entries: Sequence[Entry]) -> None:
        if self.up:
            with self._losing():
                await self.line.done(entries)

    async def arrange(self) -> None:
        """Serve the queues as their settings in the database say."""
        if self.up:
            with self._losing():
                await self._arrange()

    async def sweep(self) -> bool:
        """Put now the jobs that no process has put into the line, and return whether that was possible."""
        if self.trusted:
            with self._losing(), contextlib.suppress(StoreError):
                await self._filler.sweep()
                return True
        return False

    async def rebuild(self) -> int:
        """Begin the line under the next epoch, fill it, and return the epoch. `LineAway` if that fails."""
        await advance_epoch(self._feed, (await self._feed.begin()).epoch)
        try:
            await self._connect()
            await self._fill()
        except LineAway as problem:
            self._lose(problem)
            raise
        return self.line.epoch

    # Loss and return

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        """Treat an error of the line as its loss."""
        try:
            yield
        except LineAway as problem:
            self._lose(problem)

    def _lose(self, problem: LineAway) -> None:
        """Stop using the line until the next check of it succeeds."""
        self.up = self._filler.filled = False
        self.trouble = str(problem)
        if not self._reported_away:
            self._reported_away = True
            notices.line_away(problem)
        self._check_now.set()

    async def _connect(self) -> None:
        """Reach the line. If it is not the one that was filled last, begin it under the next epoch."""
        asked = time.monotonic()
        record = await self._feed.begin()
        self.clock.learn(record.wall_us, asked)
        run = await self.line.connect(record.database)
        state = await self.line.state()
        if record.run != run or state.epoch is None or state.epoch > record.epoch:
            record = await self._feed.bump(record.epoch, above=state.epoch or 0, run=run)
            crash.at("line.bumped")
        if record.run != run:
            raise LineAway("another process has filled another server; do all have the same DEMORA_REDIS_URL?")
        await self.line.begin(record.epoch)
        await self._arrange()
        await self.line.listen(self._wake)
        state = await self.line.state()
        if state.epoch != record.epoch:
            raise LineAway("another process is beginning it under another epoch")
        self.up, self.paced = True, state.paced
        self._filler.adopt(state)
        if self._filler.filled:
            self._report_return()

    async def _fill(self, pages: int | None = None) -> None:
        jobs = await self._filler.fill(pages)
        if jobs is not None:
            notices.line_filled(self.line.epoch, jobs)
            self._report_return()

    def _report_return(self) -> None:
        """Report that the line is trusted again, and wake the waiters: their next claim asks it."""
        if self._reported_away:
            self._reported_away = False
            notices.line_back(self.line.epoch)
        self._wake(True)

    async def _arrange(self) -> None:
        arrangements = await self._feed.arrangements()
        await self.line.arrange(arrangements)
        self.paced = any(None in one.offsets for one in arrangements)

    # The task in the background

    async def _run(self) -> None:
        """Check the line every second, and at once after a loss."""
        pause, ticks = FIRST_PAUSE, 0
        while True:
            await self._rest(pause)
            try:
                if not self.up:
                    await self._connect()
                await self._check(ticks)
                pause, ticks = FIRST_PAUSE, ticks + 1
            except (LineAway, BadSetting) as problem:
                pause = min(pause * 2, LONGEST_PAUSE)
                self._lose(problem if isinstance(problem, LineAway) else LineAway(str(problem)))
            except StoreError:
                pause = min(pause * 2, LONGEST_PAUSE)  # the next caller of the database sees the error
            except Exception as problem:  # a defect must not end this task: the line would stay as it is for good
                pause = LONGEST_PAUSE
                self._lose(LineAway(f"its maintenance failed: {problem!r}"))

    async def _rest(self, pause: float) -> None:
        if not self.up:
            return await asyncio.sleep(pause)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK):
                await self._check_now.wait()
        return self._check_now.clear()

    async def _check(self, ticks: int) -> None:
        state = await self.line.state()
        if state.epoch != self.line.epoch:
            raise LineLost("what it held is gone")
        self._filler.adopt(state)
        self.paced = state.paced
        if await self.line.maintain(self._process, MAINTAINER_SPAN):
            if not self._filler.filled:
                await self._fill()
            else:
                await self._filler.sweep()
            if ticks % ARRANGE_TICKS == 0:
                await self._arrange()
        if ticks % CLOCK_TICKS == 0 and self._feed.wall_us() is None:  # it may have been set, and not every process claims
            asked = time.monotonic()
            self.clock.learn(await self._feed.read_clock(), asked)
        await self.line.done([])
