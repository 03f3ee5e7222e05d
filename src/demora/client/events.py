"""Listening to events. All listeners of a client share one reader, which reads the database only while there is a listener.

The reader looks for settled and new jobs when a job ends, and at least each second; at running jobs and at queues it looks
each second. If no listener needs news that often, it reads less often. It never waits for a listener: one that falls too far
behind is cut off.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Protocol, Self

from ..core.events import (
    Event,
    EventFilter,
    EventKind,
    added_event,
    pause_events,
    placed,
    running_events,
    settled_event,
)
from ..core.request import check_queue, check_tag, check_type
from ..errors import Invalid, ListenerTooSlow, StoreClosed, StoreError
from ..store.events import EventStore, QueueSigns, RunningJobs, SettledJobs
from ..store.jobs import Subscription, Topic
from ..store.store import Store

LOOK = 1.0  # seconds at most between two looks; running jobs and queues are read this often
PAUSE = 0.2  # seconds at least between two looks for settled jobs
PAGE = 1000  # jobs that one read returns
MOST_RUNNING = 10_000  # running jobs that are looked at
MOST_PENDING = 10_000  # events that a listener may be behind
MOST_REPLAYED = 10_000  # ends that a listener that resumes hears
REPLAYS = 2  # listeners that read what they missed at the same time
LONGEST_ID = 36
LONGEST_POSITION = 16 * 1024


class Batch:
    """Events that were read together. The listeners share it, and what a face makes of it (`texts`)."""

    __slots__ = ("_by_filter", "_by_job", "after", "before", "events", "texts")

    def __init__(self, events: list[Event], before: str, after: str) -> None:
        self.events, self.before, self.after = events, before, after
        self.texts: dict[EventFilter, Any] = {}
        self._by_filter: dict[EventFilter, list[Event]] = {}
        self._by_job: dict[str, list[Event]] | None = None

    def matching(self, which: EventFilter) -> list[Event]:
        """Return the events that a listener with this filter hears, with their positions."""
        if which.job is not None:
            return placed([event for event in self._of_job(which.job) if which.matches(event)], self.before, self.after)
        found = self._by_filter.get(which)
        if found is None:
            matching = [event for event in self.events if which.matches(event)]
            found = self._by_filter[which] = placed(matching, self.before, self.after)
        return found

    def _of_job(self, id: str) -> list[Event]:
        if self._by_job is None:
            self._by_job = {}
            for event in self.events:
                self._by_job.setdefault("" if event.job is None else event.job.id, []).append(event)
        return self._by_job.get("", []) + self._by_job.get(id, [])


class EventListener:
    """One listener's queue of batches that it has not heard yet."""

    __slots__ = ("_batches", "_pending", "_waiter", "cut", "ended", "pause", "position")

    def __init__(self, position: str, pause: float) -> None:
        self.position = position  # where to resume after all that was taken
        self.pause = pause  # seconds for which it needs no news after the last
        self.cut = self.ended = False
        self._batches: deque[Batch] = deque()
        self._pending = 0
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, batch: Batch) -> None:
        """Add a batch. A listener that is too far behind is cut off, and forgets what it has not taken."""
        if self._pending and self._pending + len(batch.events) > MOST_PENDING:
            self.cut = True
            self._batches.clear()
        else:
            self._pending += len(batch.events)
            self._batches.append(batch)
        self.wake()

    def end(self) -> None:
        """Say that no more batches come."""
        self.ended = True
        self.wake()

    @property
    def pending(self) -> int:
        """The number of events that it has not taken."""
        return self._pending

    def take(self) -> Batch | None:
        """Return the next batch, None if there is none now."""
        if not self._batches:
            return None
        batch = self._batches.popleft()
        self._pending -= len(batch.events)
        self.position = batch.after
        return batch

    async def wait(self, timeout: float | None = None) -> None:
        """Return when there is a batch, when the listener is cut off or woken, or after the timeout."""
        if self._batches or self.cut or self.ended:
            return
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, self.wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class EventReader:
    """Reads events for all listeners of a client, on one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: dict[EventListener, None] = {}
        self._reading: asyncio.Task[None] | None = None
        self._began: asyncio.Future[None] | None = None
        self._joined = asyncio.Event()
        self._replays = asyncio.Semaphore(REPLAYS)
        self.position = ""

    async def join(self, pause: float | None = None) -> EventListener:
        """Return a listener to everything from now on. The first one starts the reader."""
        listener = EventListener("", PAUSE if pause is None else min(pause, LOOK))
        self._listeners[listener] = None
        self._joined.set()
        try:
            if self._reading is None or self._reading.done():
                self._began = asyncio.get_running_loop().create_future()
                self._reading = asyncio.create_task(self._read(self._began), name="demora-events")
            assert self._began is not None
            await asyncio.shield(self._began)
        except BaseException:
            self.leave(listener)
            raise
        listener.position = self.position
        return listener

    def leave(self, listener: EventListener) -> None:
        """Forget a listener. The last one stops the reader."""
        self._listeners.pop(listener, None)
        if not self._listeners and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def replay(self, since: str) -> AsyncIterator[Batch]:
        """Return the ends since a position, in pages. The last batch says `reset` if they are too many, or if the database
        was never at that position."""
        after, replayed = None, 0
        while True:
            async with self._replays:
                page = await self._store.events.settled(since, PAGE, after)
            if page is None or replayed + len(page.jobs) > MOST_REPLAYED:
                yield _reset(self.position)
                return
            replayed += len(page.jobs)
            ends = [settled_event(job) for job in page.jobs if job.status.ended]
            yield Batch(ends, since, since if page.next else page.position)
            if page.next is None:
                return
            after = page.next

    async def _read(self, began: "asyncio.Future[None]") -> None:
        try:
            with self._store.subscribe(Topic.ENDED) as woken:
                try:
                    looks = await self._begin()
                except Exception as problem:
                    began.set_exception(problem)
                    began.exception()  # marks it as seen: the listener may be gone
                    return
                began.set_result(None)
                await self._go_on(looks, woken)
        finally:
            if self._began is began:  # else these listeners belong to the next reader
                for listener in self._listeners:
                    listener.end()

    async def _begin(self) -> "_Looks":
        """Read the present state: listeners hear what changes from now on."""
        events = self._store.events
        await events.begin()
        self.position = await events.position()
        mark = (await events.added(None, PAGE)).mark
        signs, running = await events.queue_signs(None), await events.running(MOST_RUNNING)
        return _Looks(events, self._publish, mark, running, signs)

    async def _go_on(self, looks: "_Looks", woken: Subscription) -> None:
        while True:
            woken.clear()
            try:
                self.position = await looks.look(self.position)
            except StoreClosed:
                return
            except StoreError:  # the database is away, as the health of the service says; the position stays
                await asyncio.sleep(LOOK)
            rested = await self._rest()
            if rested < LOOK:
                await woken.wait(LOOK - rested)

    async def _rest(self) -> float:
        """Wait until a listener needs news, also one that joins meanwhile. Returns the seconds that the most eager one needs
        none."""
        now = asyncio.get_running_loop().time
        began = now()
        while (left := began + (pause := self._pause()) - now()) > 0:
            self._joined.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._joined.wait()
        return pause

    def _pause(self) -> float:
        return min((listener.pause for listener in self._listeners), default=PAUSE)

    def _publish(self, batch: Batch) -> None:
        self.position = batch.after
        for listener in list(self._listeners):
            listener.offer(batch)


class _Looks:
    """Reads the changes in the database since its previous reading."""

    def __init__(
        self,
        events: EventStore,
        publish: Callable[[Batch], None],
        mark: str,
        running: RunningJobs,
        signs: QueueSigns,
    ) -> None:
        self._events, self._publish = events, publish
        self._mark, self._running, self._signs = mark, running, signs
        self._told: frozenset[str] = frozenset()  # new jobs that the last look told
        self._sampled_at = asyncio.get_running_loop().time()

    async def look(self, position: str) -> str:
        """Publish everything since the last look, and return the new position.

        Settled jobs are read before new ones and published after them, so no listener hears of an end before the addition.
        """
        page = await self._events.settled(position, PAGE)
        events = [event async for event in self._added()]
        if asyncio.get_running_loop().time() - self._sampled_at >= LOOK:
            events += await self._sample()
        if events:
            self._publish(Batch(events, position, position))
        if page is None:  # another database is in its place
            position = await self._events.position()
            self._publish(_reset(position))
            return position
        return await self._tell_settled(position, page)

    async def _tell_settled(self, position: str, page: SettledJobs) -> str:
        while True:
            following = page.next
            if page.jobs:
                events = [settled_event(job) for job in page.jobs]
                self._publish(Batch(events, position, position if following else page.position))
            if following is None:
                return page.position
            more = await self._events.settled(position, PAGE, following)
            if more is None:
                return position
            page = more

    async def _added(self) -> AsyncIterator[Event]:
        while True:
            found = await self._events.added(self._mark, PAGE)
            for job in found.jobs:
                if job.id not in self._told:
                    yield added_event(job)
            self._mark, self._told = found.mark, frozenset(job.id for job in found.jobs)
            if len(found.jobs) < PAGE:
                return

    async def _sample(self) -> list[Event]:
        self._sampled_at = asyncio.get_running_loop().time()
        before, self._running = self._running, await self._events.running(MOST_RUNNING)
        signs, self._signs = self._signs, await self._events.queue_signs(self._signs.last_change)
        earlier = {job.id: job for job in before.jobs}
        return [
            *running_events(earlier, self._running.jobs, self._running.read_at),
            *pause_events(signs.paused, self._signs.paused, self._signs.read_at),
            *self._signs.paces,
        ]


def _reset(position: str) -> Batch:
    return Batch([Event(EventKind.RESET)], position, position)


class EventSource(Protocol):
    """Where the events of one listener come from: the reader of a database, or a service over HTTP."""

    pause: float | None  # seconds for which the listener needs no news after the last; None if it is in a hurry

    @property
    def ended(self) -> bool:
        """Whether no more events come: the source is closed."""

    @property
    def position(self) -> str:
        """The position after all batches that were returned."""

    async def begin(self) -> None:
        """Start to listen, unless that is done."""

    async def wait(self, timeout: float | None = None) -> Batch | None:
        """Return the next batch; None after the timeout and at the end. Raises `ListenerTooSlow` if it was cut off."""

    def close(self) -> None:
        """Stop listening. A wait that is under way ends."""


class ReaderSource:
    """The events that the reader of a client finds in its database."""

    def __init__(self, reader: EventReader, after: str | None) -> None:
        self._reader, self._after = reader, after
        self.pause: float | None = None
        self._listener: EventListener | None = None
        self._replay: AsyncIterator[Batch] | None = None

    @property
    def ended(self) -> bool:
        return self._listener is not None and self._listener.ended and not self._listener.pending

    @property
    def position(self) -> str:
        listener = self._listener
        if listener is None or self._replay is not None:
            return self._after or ""
        return listener.position if listener.pending else self._reader.position

    async def begin(self) -> None:
        if self._listener is None:
            self._listener = await self._reader.join(self.pause)
            if self._after is not None:
                self._replay = self._reader.replay(self._after)

    async def wait(self, timeout: float | None = None) -> Batch | None:
        await self.begin()
        assert self._listener is not None
        if self._replay is not None:
            try:
                async for missed in self._replay:
                    self._after = missed.after
                    return missed
            except BaseException:  # also a caller that gave up: what it missed is read again from the last position
                self._replay = self._reader.replay(self._after or "")
                raise
            self._replay = None
        listener = self._listener
        await listener.wait(timeout)
        if listener.cut:
            raise ListenerTooSlow(listener.position)
        return listener.take()

    def close(self) -> None:
        if self._listener is not None:
            self._reader.leave(self._listener)
            self._listener.end()


class EventStream:
    """The events of one listener, as an async iterator.

    As a context manager it listens from the beginning of its block; otherwise from its first step. `position` is where to
    resume later: another stream with `after=position` hears the ends since, at least once each.
    """

    def __init__(self, source: EventSource, which: EventFilter) -> None:
        self.filter, self._source = which, source
        self._batch: Batch | None = None
        self._events: deque[Event] = deque()  # of the batch, not returned yet

    @property
    def ended(self) -> bool:
        """Whether no more events come: the stream or the store is closed."""
        return self._source.ended

    @property
    def position(self) -> str:
        """The position after all events that were returned."""
        if self._events and self._batch is not None:
            return self._batch.before
        return self._source.position

    def every(self, seconds: float) -> Self:
        """Ask for events at most this often, so that the database is not read more often for this stream alone. They still
        arrive at least once a second. Call it before the stream begins to listen; over HTTP it has no effect."""
        self._source.pause = seconds
        return self

    async def begin(self) -> None:
        """Start to listen, unless that is done."""
        await self._source.begin()

    def close(self) -> None:
        """Stop listening. The iterator ends."""
        self._source.close()

    async def wait(self, timeout: float | None = None) -> Batch | None:
        """Return the next batch; None after the timeout and at the end.

        Raises `ListenerTooSlow` if the listener was cut off.
        """
        return await self._source.wait(timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            self._batch = await self.wait()
            if self._batch is not None:
                self._events.extend(self._batch.matching(self.filter))
            elif self.ended:
                raise StopAsyncIteration
        return self._events.popleft()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed, and so is the source
            self.close()


def _check_id(id: str) -> str:
    if not isinstance(id, str) or not 1 <= len(id) <= LONGEST_ID:
        raise Invalid("job", "must be the id of a job")
    return id.lower()


class Events:
    """The events of a client. `listen` makes the source of one listener, from its filter and the position to begin after."""

    def __init__(self, listen: Callable[[EventFilter, str | None], EventSource]) -> None:
        self._listen = listen

    def events(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        job: str | None = None,
        after: str | None = None,
    ) -> EventStream:
        """Listen to events of jobs and queues; an event must match all filters.

        With `after`, the position of an earlier event, the stream first returns the end of each job that has ended since, at
        least once, or an event of the kind `reset` if the position is too old. All other events are live only. A listener
        that falls behind by more than 10,000 events gets `ListenerTooSlow`.
        """
        which = EventFilter(
            None if queue is None else check_queue(queue),
            None if type is None else check_type(type),
            None if tag is None else check_tag(tag),
            None if job is None else _check_id(job),
        )
        if after is not None and len(after) > LONGEST_POSITION:
            raise Invalid("after", f"is longer than {LONGEST_POSITION:,} characters, so it is no position")
        return EventStream(self._listen(which, after), which)
