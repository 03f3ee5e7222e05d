"""Looking after a line: whether it may be trusted, filling it again after a loss, and lining up what nobody else has.

Any number of processes do so at once, in small steps that can be repeated: one of them at a time fills and sweeps.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from .. import crash, notices
from ..core.spans import span_ms
from ..errors import BadSetting, StoreError
from ..line_feed import Entry, Outbox, Place
from .database_clock import Present
from .port import Heard, Line, LineAway, LineLost, LineState, Putting, Taken, are_delayed

HORIZON = timedelta(minutes=10)  # jobs that are due later stay in the database alone
STEP = timedelta(minutes=1)  # by which the horizon moves on
TICK = 1.0  # seconds between two looks at the line
SPAN = 3000  # milliseconds for which one looks after the line, unless it says so again
PAGE = 1000  # jobs at a time, so that nobody waits long for the lock
FILL_PAGE = 5000  # jobs at a time where the rows are only read
CLOCK = 10  # ticks between two looks at the database's clock
ARRANGE = 5  # ticks between two looks at the settings of queues
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries to reach a line that is away
FORGOTTEN = 5000  # milliseconds after which what was handed out and is not done counts as forgotten


class Tender:
    """A line and what is known of it. None of its verbs raises `LineAway`: they do nothing while it is away."""

    def __init__(
        self, outbox: Outbox, line: Line, woken: Heard, *, horizon: timedelta = HORIZON, ticks: bool = True
    ) -> None:
        self.line, self.trouble = line, "it was not asked yet"
        self._outbox, self._woken = outbox, woken
        self.horizon, self._ticks = horizon, ticks
        self._who = secrets.token_hex(8)
        self.present = Present(outbox)
        self._up = self._filled = False
        self.paced = False  # whether some queue has a pace
        self._until, self._position = 0, ""  # as in `LineState`
        self._kick = asyncio.Event()
        self._said_away = False
        self._task: asyncio.Task[None] | None = None

    @property
    def trusted(self) -> bool:
        """Whether the line can be believed when it says who is next."""
        return self._up and self._filled

    @property
    def up(self) -> bool:
        return self._up

    # Opening and closing

    async def open(self) -> None:
        """Connect if that is possible, and stay connected from then on. `BadSetting` if the server can never be used."""
        try:
            await self._revive()
            if not self._filled:
                await self._fill(pages=1)
        except LineAway as problem:
            self._lose(problem)
        except BadSetting:
            await self.line.close()
            raise
        if self._ticks:
            self._task = asyncio.ensure_future(self._tend())

    async def close(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()  # again, if a driver has swallowed it
            await asyncio.wait([task], timeout=FIRST_PAUSE)
        await self.line.close()

    # What others do with the line

    async def put(self, places: Iterable[Place], *, how: Putting = Putting.MOVED, quiet: bool = False) -> None:
        """Line up those that are due within the horizon; `quiet` wakes nobody in this process."""
        now = self.present.now()
        due = [place for place in places if place.due_at <= now + span_ms(self.horizon)]
        if not (self._up and due):
            return
        try:
            rang = await self.line.put(due, now=now, how=how)
        except LineAway as problem:
            self._lose(problem)
        else:
            if rang and not quiet:
                self._woken(are_delayed(due))

    async def remove(self, entries: Sequence[Entry]) -> None:
        if not (self._up and entries):
            return
        try:
            await self.line.remove(entries)
        except LineAway as problem:
            self._lose(problem)

    async def follow(self, ids: Sequence[str]) -> None:
        """Bring the line in step with the rows of these jobs. If these cannot be read, the next sweep does, for those that
        wait; others are dropped when they are handed out."""
        if not (self._up and ids):
            return
        try:
            standings = await self._outbox.standings(ids)
        except StoreError:
            return
        until = self.present.now() + span_ms(self.horizon)
        here = [s.place for s in standings if s.waiting and s.place.due_at <= until]
        gone = [Entry(s.place.id, s.place.queue) for s in standings if not s.waiting or s.place.due_at > until]
        await self.put(here)
        await self.remove(gone)

    async def take(self, queues: Sequence[str] | None, limit: int, *, in_turn: bool) -> Taken | None:
        """What the line hands out; None if it cannot be trusted to know all that is due."""
        try:
            if not self.trusted or not await self._knows_the_present():
                return None
            now, asked = self.present.due_by(), time.monotonic()
            taken = await self.line.take(queues, limit, now=now, stale=now - FORGOTTEN, in_turn=in_turn)
            self.present.answered(taken.next_due, asked)
            if taken.entries:
                await self.present.reach(now)
        except LineAway as problem:
            self._lose(problem)
            return None
        self.paced = taken.state.paced
        if not self._is_ours(taken.state):
            self._lose(LineLost("what it held is gone"))
            return None
        return taken

    async def done(self, entries: Sequence[Entry]) -> None:
        if self._up:
            try:
                await self.line.done(entries)
            except LineAway as problem:
                self._lose(problem)

    async def arrange(self) -> None:
        if self._up:
            try:
                await self._arrange()
            except LineAway as problem:
                self._lose(problem)

    async def _arrange(self) -> None:
        arrangements = await self._outbox.arrangements()
        await self.line.arrange(arrangements)
        self.paced = any(None in one.offsets for one in arrangements)

    # Loss and return

    def _lose(self, problem: LineAway) -> None:
        """Trust the line no more until it was looked at."""
        self._up = self._filled = False
        self.trouble = str(problem)
        if not self._said_away:
            self._said_away = True
            notices.line_away(problem)
        self._kick.set()

    async def _revive(self) -> None:
        """Reach the line. If it is not the one that was filled last, begin it anew under the next number."""
        asked = time.monotonic()
        record = await self._outbox.begin_lining()
        self.present.learn(record.wall_us, asked)
        run = await self.line.connect(record.database)
        state = await self.line.state()
        if record.run != run or state.epoch is None or state.epoch > record.epoch:
            record = await self._outbox.bump(record.epoch, above=state.epoch or 0, run=run)
            crash.at("line.bumped")
        if record.run != run:
            raise LineAway("another process has filled another server; do all have the same DEMORA_REDIS_URL?")
        await self.line.begin(record.epoch)
        await self._arrange()
        await self.line.listen(self._woken)
        state = await self.line.state()
        if state.epoch != record.epoch:
            raise LineAway("it is being begun anew by another process")
        self._up = True
        self._adopt(state)
        if self._filled:
            self._back()

    async def _fill(self, pages: int | None = None) -> None:
        """Put every waiting job that is due within the horizon, in one go or up to so many pages."""
        position, until, filled = await self._outbox.position(), self.present.now() + span_ms(self.horizon), 0
        walked = await self._outbox.walk(self.horizon, FILL_PAGE)
        while True:
            await self.line.put(walked.places, now=self.present.now(), how=Putting.FRESH)  # nothing stands under this number
            filled += len(walked.places)
            await self.line.tend(self._who, SPAN)  # else another begins the same once this takes long
            crash.at("line.filling")
            if walked.next is None:
                break
            if pages is not None and filled >= pages * FILL_PAGE:
                return
            walked = await self._outbox.walk(self.horizon, FILL_PAGE, walked.next)
        await self.line.note(until, position, filled=True)
        self._filled, self._until, self._position = True, until, position
        notices.line_filled(self.line.epoch, filled)
        self._back()

    def _back(self) -> None:
        if self._said_away:
            self._said_away = False
            notices.line_back(self.line.epoch)
        self._woken(True)

    def _is_ours(self, state: LineState) -> bool:
        return state.epoch == self.line.epoch and state.filled

    async def rebuild(self) -> int:
        """Begin the line anew under the next number, and fill it; answers with the number. `LineAway` if that fails."""
        await self._number_anew((await self._outbox.begin_lining()).epoch)
        try:
            await self._revive()
            await self._fill()
        except LineAway as problem:
            self._lose(problem)
            raise
        return self.line.epoch

    async def _number_anew(self, expected: int) -> None:
        """Record the next number, unless somebody has: whoever looks next begins the line under it."""
        record = await self._outbox.begin_lining()
        await self._outbox.bump(expected, above=expected, run=record.run)

    # What is done every second

    async def _tend(self) -> None:
        pause, ticks = FIRST_PAUSE, 0
        while True:
            await self._rest(pause)
            try:
                if not self._up:
                    await self._revive()
                await self._tick(ticks)
                pause, ticks = FIRST_PAUSE, ticks + 1
            except (LineAway, BadSetting) as problem:
                pause = min(pause * 2, LONGEST_PAUSE)
                self._lose(problem if isinstance(problem, LineAway) else LineAway(str(problem)))
            except StoreError:
                pause = min(pause * 2, LONGEST_PAUSE)  # whoever asks the database next is told
            except Exception as problem:  # a fault of ours must not end it: the line would stay as it is for good
                pause = LONGEST_PAUSE
                self._lose(LineAway(f"looking after it failed: {problem!r}"))

    async def _rest(self, pause: float) -> None:
        if not self._up:
            return await asyncio.sleep(pause)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK):
                await self._kick.wait()
        return self._kick.clear()

    async def _tick(self, ticks: int) -> None:
        state = await self.line.state()
        if state.epoch != self.line.epoch:
            raise LineLost("what it held is gone")
        self._adopt(state)
        if await self.line.tend(self._who, SPAN):
            if not self._filled:
                await self._fill()
            else:
                await self._sweep()
            if ticks % ARRANGE == 0:
                await self._arrange()
        if ticks % CLOCK == 0 and self._outbox.wall_us() is None:  # it may have been stepped, and not all processes claim
            asked = time.monotonic()
            self.present.learn(await self._outbox.read_clock(), asked)
        await self.line.done([])

    def _adopt(self, state: LineState) -> None:
        """Go on from what the line says of itself, whoever has noted it."""
        self._filled, self._until, self._position, self.paced = state.filled, state.until, state.position, state.paced

    async def sweep(self) -> None:
        """Line up now what nobody has lined up yet."""
        if self.trusted:
            try:
                await self._sweep()
            except LineAway as problem:
                self._lose(problem)
            except StoreError:
                pass  # the next sweep will

    async def _sweep(self) -> None:
        """Line up what moved into waiting since the last sweep, whoever moved it, and what the horizon has reached."""
        until, since = await self._reach(), self._position
        first = moved = await self._outbox.moved(since, self.horizon, PAGE)
        while moved is not None:
            await self._put_missing(moved.places)
            if moved.next is None:
                break
            moved = await self._outbox.moved(since, self.horizon, PAGE, moved.next)
        crash.at("line.sweeping")
        if first is None or moved is None:
            await self._number_anew(self.line.epoch)
            raise LineLost("it was filled from another database, or from this one before a part of it was lost")
        await self.line.note(until, first.position)
        self._until, self._position = until, first.position

    async def _reach(self) -> int:
        """Line up what the horizon has reached, a step at a time; answers until when all that is due is in the line."""
        horizon = self.present.now() + span_ms(self.horizon)
        since = min(self._until, horizon)  # beyond it, if the clock was stepped back: what was added since is not there
        if since > horizon - span_ms(STEP):
            return since
        walked = await self._outbox.walk(self.horizon, PAGE, since=since)
        while True:
            await self._put_missing(walked.places)
            if walked.next is None:
                return horizon
            walked = await self._outbox.walk(self.horizon, PAGE, walked.next, since=since)

    async def _put_missing(self, places: Sequence[Place]) -> None:
        if places and await self.line.put(places, now=self.present.now(), how=Putting.MISSING):
            self._woken(are_delayed(places))

    async def _knows_the_present(self) -> bool:
        """Whether all that is due by now was put into the line; if not, it is."""
        if self.present.due_by() < self._until:
            return True
        self._adopt(await self.line.state())
        if self.present.due_by() >= self._until:
            await self._sweep()
        return self.present.due_by() < self._until
