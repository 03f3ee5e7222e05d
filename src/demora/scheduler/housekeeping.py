"""What paces let go, summed up for the log: a fast pace would write a line for every job, and wait for the disk."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import closing

from ..core.pace import Release
from ..core.retention import Retention
from ..errors import StoreClosed
from ..store.jobs import Store, Subscription, Topic
from ..store.paces import PaceStore, Released
from ..system import notices
from ..system.seams import Seams

APART = 1.0  # seconds between two lines


class ReleaseLog:
    """Says at once what is let go after a rest, and what follows once a second: one line for each queue."""

    def __init__(self) -> None:
        self._untold: Counter[str] = Counter()
        self._resting: asyncio.TimerHandle | None = None

    def add(self, released: Iterable[Release]) -> None:
        self._untold.update(job.queue for job in released)
        if self._resting is None:
            self._tell()

    def close(self) -> None:
        """Say what is left to say."""
        if self._resting is not None:
            self._resting.cancel()
        self._say()

    def _tell(self) -> None:
        self._resting = None
        if self._untold:
            self._say()
            self._resting = asyncio.get_running_loop().call_later(APART, self._tell)

    def _say(self) -> None:
        for queue, jobs in self._untold.items():
            notices.jobs_released(queue, jobs)
        self._untold.clear()


# The pause between two tries of a store in trouble.


async def wait_before_retry(bell: Subscription, seconds: float) -> None:
    """Let it be for so long, unless something rings: it may be back."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0 and not await bell.wait(left):
        pass


# The scheduler role: housekeeping. Nothing waits for it, and any number of processes may do it at once.


PIECE = 200  # jobs at a time, so that nobody waits long for the lock
REST = 0.02  # seconds between two pieces
LONGEST = 60.0  # seconds without a look: retention by number has no time of its own
CLAIMS_FIRST = 0.25  # seconds after a slot in which a worker's claim may use it
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds between looks while the store is in trouble


class Scheduler:
    """Cancels what expired, deletes what need not be kept, forgets workers that are gone, and lets delayed jobs go at the
    pace of their queue where no worker's claim does; sleeps in between.

    An error makes it wait, longer each time; it never ends by itself unless the store is closed.
    """

    def __init__(self, store: Store, retention: Retention, *, seams: Seams | None = None) -> None:
        self._store, self._retention, self._chance = store, retention, (seams or Seams()).chance
        self._stopping = False
        self._bell: Subscription | None = None

    async def run(self) -> None:
        """Tidy until stopped, and let delayed jobs go where no worker does it in time."""
        releasing = asyncio.ensure_future(self._release_on())
        try:
            await self._tidy_on()
        finally:
            releasing.cancel()
            await asyncio.wait([releasing])

    async def _tidy_on(self) -> None:
        with self._store.subscribe(Topic.EXPIRY) as self._bell:
            pause = FIRST_PAUSE
            while not self._stopping:
                self._bell.clear()
                try:
                    wait, pause = await self._housekeep(), FIRST_PAUSE
                    notices.store_well("the housekeeping")
                except StoreClosed:
                    return
                except Exception as problem:
                    wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
                    notices.store_trouble("the housekeeping", problem, wait)
                await self._rest(wait)

    async def _release_on(self) -> None:
        """Let go what no claim does. Where there is a pace, it hears of every job that comes; else of paces alone."""
        topic, let_go = Topic.PACE, ReleaseLog()
        with closing(let_go):
            while isinstance(self._store, PaceStore):
                with self._store.subscribe(topic) as bell:
                    heard, pause = topic, FIRST_PAUSE
                    while topic is heard:
                        bell.clear()
                        try:
                            released, pause = await self._store.release(), FIRST_PAUSE
                        except StoreClosed:
                            return
                        except Exception as problem:
                            notices.store_trouble("the release of delayed jobs", problem, pause)
                            await wait_before_retry(bell, pause)
                            pause = min(pause * 2, LONGEST_PAUSE)
                            continue
                        notices.store_well("the release of delayed jobs")
                        let_go.add(released.jobs)
                        topic = Topic.READY if released.paced else Topic.PACE
                        if topic is heard:
                            await self._until_release(bell, released)

    async def _until_release(self, bell: Subscription, released: Released) -> None:
        """Sleep until there may be something to let go; where many jobs come, a few looks a second will do."""
        if released.paced:
            await asyncio.sleep(CLAIMS_FIRST)
        await bell.wait(LONGEST if released.next_in is None else min(released.next_in.total_seconds(), LONGEST))

    def stop(self) -> None:
        self._stopping = True
        if self._bell is not None:
            self._bell.wake()

    async def _housekeep(self) -> float:
        """Do one piece; answers with the seconds until the next."""
        done = await self._store.housekeep(self._retention, limit=PIECE)
        if done.expired or done.removed:
            notices.housekeeping_done(done.expired, done.removed)
        left = LONGEST if done.next_in is None else done.next_in.total_seconds()
        return min(max(left, REST), LONGEST * (0.5 + self._chance() / 2))  # many schedulers do not look all at once

    async def _rest(self, seconds: float) -> None:
        """Sleep, but not through the adding of a job that expires sooner. Pieces are kept apart."""
        if self._bell is not None and not self._stopping:
            await asyncio.sleep(min(seconds, REST))
            await self._bell.wait(max(seconds - REST, 0))
