"""Looking after a line: whether it may be trusted, filling it again after a loss, and confirming what stands in it.

Any number of processes do so at once, in small steps that can be repeated: one of them at a time fills and sweeps, each of
them confirms what it put itself.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta

from .. import crash, notices
from ..core.spans import span_ms
from ..errors import BadSetting, StoreError
from ..line import Entry, Heard, Line, LineAway, LineLost, LineState, Place, Taken, are_delayed
from ..outbox import Outbox

HORIZON = timedelta(minutes=10)  # jobs that are due later stay in the database alone
TICK = 1.0  # seconds between two looks at the line
PAGE = 1000  # jobs at a time, so that nobody waits long for the lock
FILL_PAGE = 5000  # jobs at a time where the rows are only read
CONFIRM = 250  # jobs in one confirmation
LATE = 2.0  # seconds after which a place is confirmed: most jobs have run by then and cost no write
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
        self._offset_us = 0.0
        self._up = self._filled = False
        self.paced = False  # whether some queue has a pace
        self._until = 0
        self._put: dict[str, tuple[float, Place]] = {}  # put and not confirmed, with the time
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
        if self._ticks:
            self._task = asyncio.ensure_future(self._tend())

    async def close(self) -> None:
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()  # again, if a driver has swallowed it
            await asyncio.wait([task], timeout=TICK)
        await self.line.close()

    # The database's time

    def now_us(self) -> int:
        """The database's time, as far as it is known here."""
        known = self._outbox.wall_us()
        return known if known is not None else int(_loop_us() + self._offset_us)

    def now(self) -> int:
        return self.now_us() // 1000

    def learn(self, wall_us: int, asked: float) -> None:
        """Note what the database's clock said between `asked`, a time of the loop, and now."""
        self._offset_us = wall_us - (asked * 1e6 + _loop_us()) / 2

    # What others do with the line

    async def put(self, places: Iterable[Place], *, fresh: bool = False, quiet: bool = False) -> None:
        """Line up those that are due within the horizon, and confirm them later; `quiet` wakes nobody in this process."""
        now = self.now()
        due = [place for place in places if place.due_at <= now + span_ms(self.horizon)]
        if not (self._up and due):
            return
        try:
            rang = await self.line.put(due, now=now, fresh=fresh)
        except LineAway as problem:
            self._lose(problem)
        else:
            self._note_put(due)
            if rang and not quiet:
                self._woken(are_delayed(due))

    async def remove(self, entries: Sequence[Entry]) -> None:
        if not (self._up and entries):
            return
        for entry in entries:
            self._put.pop(entry.id, None)
        try:
            await self.line.remove(entries)
        except LineAway as problem:
            self._lose(problem)

    async def follow(self, ids: Sequence[str]) -> None:
        """Bring the line in step with the rows of these jobs."""
        if not (self._up and ids):
            return
        standings = await self._outbox.standings(ids)
        until = self.now() + span_ms(self.horizon)
        here = [s.place for s in standings if s.waiting and s.place.due_at <= until]
        gone = [Entry(s.place.id, s.place.queue) for s in standings if not s.waiting or s.place.due_at > until]
        await self.put(here)
        await self.remove(gone)

    async def take(self, queues: Sequence[str] | None, limit: int, *, in_turn: bool) -> Taken | None:
        """What the line hands out; None if it cannot be trusted to know all that is due."""
        try:
            if not self.trusted or not await self._knows_the_present():
                return None
            now = self.now()
            taken = await self.line.take(queues, limit, now=now, stale=now - FORGOTTEN, in_turn=in_turn)
        except LineAway as problem:
            self._lose(problem)
            return None
        self.paced = taken.state.paced
        if not self._is_ours(taken.state):
            self._lose(LineLost("what it held is gone"))
        return taken

    async def done(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._put.pop(entry.id, None)
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
        asked = asyncio.get_running_loop().time()
        record = await self._outbox.begin_lining()
        self.learn(record.wall_us, asked)
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
        self._put.clear()
        self._up, self._filled, self._until = True, state.filled, state.until
        if self._filled:
            self._back()

    async def _fill(self, pages: int | None = None) -> None:
        """Put every waiting job that is due within the horizon, in one go or up to so many pages."""
        until, filled = self.now() + span_ms(self.horizon), 0
        walked = await self._outbox.walk(self.horizon, FILL_PAGE)
        while True:
            await self.line.put(walked.places, now=self.now(), fresh=True)  # under this number nothing stands anywhere
            self._note_put(walked.places)
            filled += len(walked.places)
            crash.at("line.filling")
            if walked.next is None:
                break
            if pages is not None and filled >= pages * FILL_PAGE:
                return
            walked = await self._outbox.walk(self.horizon, FILL_PAGE, walked.next)
        await self.line.note(filled=True, until=until)
        self._filled, self._until = True, until
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
        record = await self._outbox.begin_lining()
        await self._outbox.bump(record.epoch, above=record.epoch, run=record.run)
        try:
            await self._revive()
            await self._fill()
        except LineAway as problem:
            self._lose(problem)
            raise
        return self.line.epoch

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
                pass  # whoever asks the database next is told

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
        self._filled, self._until = state.filled, max(state.until, self._until if state.filled else 0)
        self.paced = state.paced
        if await self.line.tend(self._who, int(3000 * TICK)):
            if not self._filled:
                await self._fill()
            else:
                await self._sweep()
            if ticks % ARRANGE == 0:
                await self._arrange()
        await self.line.done([])
        await self._confirm()

    async def sweep(self) -> None:
        """Line up now what nobody has lined up yet."""
        if self.trusted:
            try:
                await self._sweep()
            except LineAway as problem:
                self._lose(problem)

    async def _sweep(self) -> None:
        """Line up what was forgotten, and what the horizon has reached."""
        until = self.now() + span_ms(self.horizon)
        while True:
            found = await self._outbox.unlined(self.horizon, PAGE)
            places = [
                place for place in found if place.id not in self._put
            ]  # what we put ourselves is confirmed in its time
            if places and await self.line.put(places, now=self.now()):
                self._woken(are_delayed(places))
            crash.at("line.confirming")
            if places:
                await self._outbox.confirm(places, self.line.epoch)
            if len(found) < PAGE or not places:
                break
        await self.line.note(until=until)
        self._until = until

    async def _knows_the_present(self) -> bool:
        """Whether all that is due by now was put into the line; if not, it is, unless there is too much."""
        if self.now() < self._until:
            return True
        self._until = (await self.line.state()).until
        if self.now() >= self._until:
            await self._sweep()
        return self.now() < self._until

    # Confirming

    def _note_put(self, places: Iterable[Place]) -> None:
        now = asyncio.get_running_loop().time()
        for place in places:
            self._put[place.id] = now, place

    async def _confirm(self) -> None:
        """Record the places of jobs that still wait; those that stand elsewhere by now are put there."""
        before = asyncio.get_running_loop().time() - LATE
        due = [entry for entry in self._put.values() if entry[0] <= before]
        for start in range(0, len(due), CONFIRM):
            part = due[start : start + CONFIRM]
            crash.at("line.confirming")
            elsewhere = await self._outbox.confirm([place for _, place in part], self.line.epoch)
            for entry in part:
                if self._put.get(entry[1].id) is entry:
                    del self._put[entry[1].id]
            await self.put(elsewhere)


def _loop_us() -> float:
    return asyncio.get_running_loop().time() * 1e6
