"""The claims of remote workers that wait for a job. A ready job wakes only as many of them as it needs.

All claims of a process share one subscription. Claims of workers with the same queues and types form a group, since a job
that one of them may get, each of them may get. An event wakes the claim of each group that has waited longest. A claim
that gets as many jobs as it asked for wakes two more, because there may be more jobs. The others sleep on.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice

from ...errors import StoreError
from ...store.jobs import Subscription, Topic
from ...store.store import Store
from ...system import notices

_LISTENING = "listening for jobs of remote workers"
PAUSE = 1.0  # seconds until a subscription that failed is tried again
Served = tuple[tuple[str, ...], tuple[str, ...]]  # the queues and the types of a worker


class WaitingClaims:
    """The waiting claims on one store, on one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._groups: dict[Served, _Group] = {}
        self._listening = ExitStack()

    @contextmanager
    def claiming(self, served: Served) -> "Iterator[ClaimSubscription]":
        """Subscribe a claim for the duration of the block. If the claim ends before it has used its wake-up, another claim
        of its group gets that."""
        if not self._groups:
            self._listen()
        group = self._groups.setdefault(served, _Group())
        group.members += 1
        subscription = ClaimSubscription(group)
        try:
            yield subscription
        except BaseException:
            group.wake(1)
            raise
        finally:
            group.asleep.pop(subscription, None)  # its task may not have ended yet, and must take no wake-up any more
            if subscription.woken:
                group.wake(1)
            group.members -= 1
            if not group.members:
                group.close()
                del self._groups[served]
            if not self._groups:
                self._listening.close()

    def _listen(self) -> None:
        events = self._listening.enter_context(self._store.subscribe(Topic.READY))
        events.clear()
        listening = asyncio.ensure_future(self._pass_on(events))
        self._listening.callback(listening.cancel)

    async def _pass_on(self, events: Subscription) -> None:
        """Wake a claim of each group at every event. A store in trouble counts as one: the claim reports the trouble."""
        while True:
            try:
                await events.wait(None)
                notices.store_well(_LISTENING)
            except StoreError:
                await asyncio.sleep(PAUSE)
            except Exception as problem:  # a defect must not end this task: the claims would sleep for their whole wait
                notices.store_trouble(_LISTENING, problem, PAUSE)
                await asyncio.sleep(PAUSE)
            events.clear()
            for group in self._groups.values():
                group.wake(1)


class _Group:
    """Claims that may get the same jobs."""

    def __init__(self) -> None:
        self.members = 0
        self.asleep: dict[ClaimSubscription, None] = {}  # in the order in which they fell asleep
        self.news = 0  # grows with every wake-up, so that a claim that is about to fall asleep notices it
        self._due: asyncio.TimerHandle | None = None

    def wake(self, number: int) -> None:
        self.news += 1
        for subscription in list(islice(self.asleep, number)):
            subscription.wake()

    def wake_in(self, span: timedelta) -> None:
        """Wake one claim after this time, or earlier."""
        loop = asyncio.get_running_loop()
        at = loop.time() + span.total_seconds()
        if self._due is None or at < self._due.when():
            self.close()
            self._due = loop.call_at(at, self._wake_due)

    def close(self) -> None:
        if self._due is not None:
            self._due.cancel()

    def _wake_due(self) -> None:
        self._due = None
        self.wake(1)


class ClaimSubscription:
    """The subscription of one claim. The order is that of every `Subscription`: `clear`, read the store, `wait`."""

    def __init__(self, group: _Group) -> None:
        self._group, self._woken, self._seen = group, asyncio.Event(), group.news

    @property
    def woken(self) -> bool:
        """Whether it was woken and has not read the store since."""
        return self._woken.is_set()

    def wake(self) -> None:
        self._group.asleep.pop(self, None)
        self._woken.set()

    def clear(self) -> None:
        self._seen = self._group.news
        self._woken.clear()

    def wake_others(self) -> None:
        """Wake two other claims of the group, because there may be more jobs than this one took."""
        self._group.wake(2)

    def next_in(self, span: timedelta) -> None:
        """Wake a claim of the group when the next job comes due."""
        self._group.wake_in(span)

    async def wait(self, seconds: float) -> bool:
        """Wait for a wake-up or this many seconds. Returns whether there may be something new."""
        if self._seen != self._group.news:
            return True
        self._group.asleep[self] = None
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            self._group.asleep.pop(self, None)
        return self._woken.is_set()
