"""The line on Redis or Valkey: for each queue one sorted set per lane and rank, scored by due time.

A job is ready once its score has passed, so no step promotes it. The scripts merge the heads of the lanes by the offsets
that are passed to them. A verb that must be atomic is a script on the keys of one queue; the others are plain commands.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from ...core.job import QueueOrder
from ...core.pace import EVERY_QUEUE
from ...store.line_feed import Arrangement, Entry, Place
from ..port import HandedOut, LineAway, LineLost, LineState, Placed, PutMode, WakeWaiters, are_delayed, by_queue
from .connections import BROKEN, Call, Nodes, Script, command, next_message, translate, unsubscribe
from .keys import LANES, Keys, number_of

_encode = msgspec.json.Encoder().encode
BATCH = 1000  # jobs of one script call: the server executes no other command meanwhile
MOST_TAKEN = 3500  # jobs taken by one script call: Lua cannot unpack many more
_REAL_TIME = "realtime"  # in a notification: no delayed job, which a pace may hold, has moved
_HELD = "held"  # in place of an offset: the line does not hand out this lane
_USUAL = " ".join(str(QueueOrder().offset(lane, rank)) for lane, rank in LANES)
_PUT, _TAKE, _PEEK, _REMOVE, _ARRANGE, _BEGIN, _CHECKPOINT, _MAINTAIN = map(
    Script, ("put", "take", "peek", "remove", "arrange", "begin", "checkpoint", "maintain")
)


class RedisLine:
    """The port `Line` on one server or on a cluster. `done` is sent with the next `take`, or at once if there are many
    jobs."""

    def __init__(self, url: str) -> None:
        self.epoch = 0
        self._nodes = Nodes(url)
        self._database = ""
        self._keys = Keys("")
        self._client_id = secrets.token_hex(8)
        self._begun: set[str] = set()  # queues that were begun in this epoch
        self._done: dict[str, list[str]] = {}  # ids by queue, not yet sent
        self._usual = _USUAL  # offsets of a queue without an arrangement of its own
        self._listener: asyncio.Task[None] | None = None

    async def connect(self, database: str) -> str:
        await self._stop_listening()
        self._database = database
        self._under(self.epoch)
        return await self._nodes.connect()

    async def close(self) -> None:
        await self._stop_listening()
        await self._nodes.close()

    async def state(self) -> LineState:
        if self._listener is not None and self._listener.done():
            raise LineAway("its notifications no longer arrive")
        [values] = await self._nodes.ask(self._state())
        return self._read(values)

    async def begin(self, epoch: int) -> None:
        await self._nodes.ask(_BEGIN.call([self._keys.state], epoch))
        self._under(epoch)
        [members] = await self._nodes.ask(command("SMEMBERS", self._keys.queues))
        for member in members:
            earlier, _, queue = member.partition(" ")
            is_ours = earlier.isdecimal() and earlier.isascii()
            if is_ours and int(earlier) >= epoch:
                continue
            for key in self._keys.under(queue, int(earlier)) if is_ours else ():
                await self._nodes.ask(command("UNLINK", key))
            await self._nodes.ask(command("SREM", self._keys.queues, member))

    async def checkpoint(self, until: int, position: str, *, filled: bool = False) -> None:
        await self._nodes.ask(_CHECKPOINT.call([self._keys.state], self.epoch, until, position, int(filled)))

    async def put(self, places: Sequence[Place], *, now: int, mode: PutMode = PutMode.MOVED) -> Placed:
        lanes: dict[tuple[str, int, int], list[Place]] = {}
        for place in places:
            lane = lanes.get(which := (place.queue, place.lane, place.rank))
            if lane is None:
                lane = lanes[which] = []
            lane.append(place)
        if mode is not PutMode.FRESH:
            self._forget_done(places)
        await self._begin_queues(dict.fromkeys(queue for queue, *_ in lanes))
        calls = []
        for (queue, *lane_and_rank), together in lanes.items():
            message, number = self._message(delayed=are_delayed(together)), number_of(*lane_and_rank)
            for batch in _batches(together):
                pairs = [word for place in batch for word in (place.due_at, place.id)]
                jobs = (mode.value, number, min(pairs[::2]), _encode(pairs))
                calls.append(_PUT.call(self._keys.of(queue), now, self._keys.channel, message, *jobs))
        answers = await self._nodes.ask(*calls) if calls else []
        return Placed(sum(moved for moved, _ in answers), any(woken for _, woken in answers))

    async def take(
        self, queues: Sequence[str] | None, limit: int, *, now: int, stale: int, in_turn: bool = False
    ) -> HandedOut:
        limit = min(limit, MOST_TAKEN)
        known = self._served(queues)
        if len(known) == 1 and limit:
            [state, members, taken] = await self._nodes.ask(
                self._state(), self._members(), self._take(known[0], limit, now, stale)
            )
            here = self._read(state)
            if not self._learn(members, queues):
                entries = [Entry(id, known[0]) for id in taken[1:]]
                return HandedOut(entries, int(taken[0]) if taken[0] else None, here)
            first = [Entry(id, known[0]) for id in taken[1:]]
            rest = await self._merge(self._served(queues), limit - len(first), now, stale, in_turn)
            return HandedOut(first + rest.entries, rest.next_due, here)
        [state, members] = await self._nodes.ask(self._state(), self._members())
        here = self._read(state)
        self._learn(members, queues)
        merged = await self._merge(self._served(queues), limit, now, stale, in_turn)
        return HandedOut(merged.entries, merged.next_due, here)

    async def done(self, entries: Sequence[Entry]) -> None:
        for queue, ids in by_queue(entries).items():
            self._done.setdefault(queue, []).extend(ids)
        full = [queue for queue, ids in self._done.items() if len(ids) >= BATCH or not entries]
        calls = [command("ZREM", self._keys.of(queue)[1], *self._done.pop(queue)) for queue in full]
        if calls:
            await self._nodes.ask(*calls)

    async def remove(self, entries: Sequence[Entry]) -> None:
        calls = [
            _REMOVE.call(self._keys.of(queue), *batch) for queue, ids in by_queue(entries).items() for batch in _batches(ids)
        ]
        if calls:
            await self._nodes.ask(*calls)

    async def arrange(self, arrangements: Sequence[Arrangement]) -> None:
        calls, message = list[Call](), self._message(delayed=True)
        for one in arrangements:
            offsets = " ".join(_HELD if offset is None else str(offset) for offset in one.offsets)
            if one.queue == EVERY_QUEUE:
                calls += self._arrange_usual(offsets, message)
            else:
                own = self._keys.of(one.queue)[:1]
                calls.append(_ARRANGE.call(own, offsets, int(one.paused), self._keys.channel, message))
        if arrangements:
            paced = any(None in one.offsets for one in arrangements)
            await self._nodes.ask(*calls, command("HSET", self._keys.state, "paced", int(paced)))
        if own_ones := [one.queue for one in arrangements if one.queue != EVERY_QUEUE]:
            await self._register(own_ones)

    def _arrange_usual(self, offsets: str, message: str) -> list[Call]:
        """Record how queues without an arrangement of their own are served, and notify waiters if that is a change."""
        noted = command("HSET", self._keys.state, "usual", offsets)
        changed, self._usual = offsets != self._usual, offsets
        return [noted, command("PUBLISH", self._keys.channel, message)] if changed else [noted]

    async def maintain(self, process: str, span: int) -> bool:
        [granted] = await self._nodes.ask(_MAINTAIN.call([self._keys.maintainer], process, span))
        return bool(granted)

    async def places(self) -> tuple[list[Place], list[Entry]]:
        [members] = await self._nodes.ask(self._members())
        self._learn(members, None)
        places, handed_out = [], []
        for queue in sorted(self._begun):
            keys = self._keys.of(queue)
            for (lane, rank), key in zip(LANES, keys[2:], strict=True):
                places += [Place(id, queue, lane, rank, int(score)) for id, score in await self._scan(key)]
            handed_out += [Entry(id, queue) for id, _ in await self._scan(keys[1])]
        return places, handed_out

    async def listen(self, wake: WakeWaiters) -> None:
        await self._stop_listening()
        subscription = await self._nodes.subscribe(self._keys.channel)
        self._listener = asyncio.ensure_future(self._forward(subscription, wake))

    # Notifications

    async def _forward(self, subscription: Any, wake: WakeWaiters) -> None:
        """Call `wake` for each notification of another client; the caller of `put` wakes the waiters of this one."""
        try:
            while True:
                sender, _, kind = (await next_message(subscription)).partition(" ")
                if sender != self._client_id:
                    wake(kind != _REAL_TIME)
        except BROKEN as problem:
            wake(True)  # the next claim, or the next check of the state, finds the trouble
            raise translate(problem) from problem
        finally:
            await unsubscribe(subscription)

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            with contextlib.suppress(asyncio.CancelledError, LineAway):
                await listener

    def _message(self, *, delayed: bool) -> str:
        """Return the notification that a script publishes: its sender, and whether it is about real-time jobs alone."""
        return self._client_id if delayed else f"{self._client_id} {_REAL_TIME}"

    # Epochs and queues

    def _under(self, epoch: int) -> None:
        self.epoch, self._keys = epoch, Keys(self._database, epoch)
        self._begun.clear()
        self._done.clear()

    def _served(self, queues: Sequence[str] | None) -> list[str]:
        return sorted(self._begun) if queues is None else [queue for queue in dict.fromkeys(queues) if queue in self._begun]

    def _learn(self, members: Iterable[str], queues: Sequence[str] | None) -> bool:
        """Record which queues are in the line. Return whether a queue of the request is among those that were unknown."""
        mine = f"{self.epoch} "
        new = {member.removeprefix(mine) for member in members if member.startswith(mine)} - self._begun
        self._begun |= new
        return bool(new if queues is None else new.intersection(queues))

    async def _begin_queues(self, queues: Iterable[str]) -> None:
        """Begin the queues that are not in the line, after reading which are: a queue that was lost is not begun again."""
        if all(queue in self._begun for queue in queues):
            return
        [members] = await self._nodes.ask(self._members())
        self._learn(members, None)
        new = [queue for queue in queues if queue not in self._begun]
        if new:
            await self._nodes.ask(*(command("HSET", self._keys.of(queue)[0], "begun", "1") for queue in new))
            await self._register(new)

    async def _register(self, queues: Sequence[str]) -> None:
        await self._nodes.ask(command("SADD", self._keys.queues, *(f"{self.epoch} {queue}" for queue in queues)))
        self._begun |= set(queues)

    # Taking

    async def _merge(self, queues: Sequence[str], limit: int, now: int, stale: int, in_turn: bool) -> HandedOut:
        """Take from several queues as if they were one: peek at the heads of all, then take from each as many as belong
        among the first `limit`."""
        done = [queue for queue in queues if queue in self._done]
        first_done = [command("ZREM", self._keys.of(queue)[1], *self._done.pop(queue)) for queue in done]
        peeks = [_PEEK.call(self._keys.of(queue), now, limit, stale, self._usual) for queue in queues]
        seen = (await self._nodes.ask(*first_done, *peeks))[len(done) :] if peeks else []
        heads = []
        for turn, (queue, answer) in enumerate(zip(queues, seen, strict=True)):
            pairs = zip(answer[1::2], answer[2::2], strict=True)
            heads += [(turn if in_turn else 0, float(place), id, queue) for place, id in pairs]
        first = sorted(heads)[:limit]
        counts: dict[str, int] = {}
        for _, _, _, queue in first:
            counts[queue] = counts.get(queue, 0) + 1
        takes = [self._take(queue, count, now, stale) for queue, count in counts.items()]
        taken = await self._nodes.ask(*takes) if takes else []
        entries = [Entry(id, queue) for queue, answer in zip(counts, taken, strict=True) for id in answer[1:]]
        order = {(id, queue): n for n, (_, _, id, queue) in enumerate(first)}
        nexts = [int(answer[0]) for answer in seen if answer[0]]
        if len(entries) < len(first):  # other clients took them, and the jobs behind them were not peeked at
            nexts.append(now)
        merged = sorted(entries, key=lambda entry: order.get((entry.id, entry.queue), limit))
        return HandedOut(merged, min(nexts, default=None), LineState())

    def _forget_done(self, places: Sequence[Place]) -> None:
        """Do not send later that these jobs are done: by then another client may have taken them from their new places."""
        for queue, ids in by_queue(places).items():
            again = set(ids)
            left = [id for id in self._done.pop(queue, []) if id not in again]
            if left:
                self._done[queue] = left

    def _take(self, queue: str, limit: int, now: int, stale: int) -> Call:
        done = self._done.pop(queue, [])
        return _TAKE.call(self._keys.of(queue), now, limit, stale, self._usual, *done)

    # Reading

    def _state(self) -> Call:
        return command("HMGET", self._keys.state, "epoch", "filled", "until", "position", "paced", "usual")

    def _read(self, values: Sequence[str | None]) -> LineState:
        """Return the state, and learn from it how queues without an arrangement of their own are served. `LineLost` if it is
        not as demora writes it."""
        epoch, filled, until, position, paced, usual = values
        self._usual = usual or _USUAL
        is_filled = filled is not None and filled == epoch and position is not None
        try:
            numbers = None if epoch is None else int(epoch), int(until or 0)
        except ValueError:
            raise LineLost("another program has written to it") from None
        return LineState(numbers[0], is_filled, numbers[1], position or "", paced == "1")

    def _members(self) -> Call:
        return command("SMEMBERS", self._keys.queues)

    async def _scan(self, key: str) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        while True:
            [part] = await self._nodes.ask(command("ZRANGE", key, len(found), len(found) + BATCH - 1, "WITHSCORES"))
            pairs = [(p[0], float(p[1])) for p in part] if part and not isinstance(part[0], str) else _pairs(part)
            found += pairs
            if len(pairs) < BATCH:
                return found


def _pairs(flat: Sequence[str]) -> list[tuple[str, float]]:
    return [(id, float(score)) for id, score in zip(flat[::2], flat[1::2], strict=True)]


def _batches(whole: Sequence[Any]) -> Iterable[list[Any]]:
    rest = iter(whole)
    while batch := list(islice(rest, BATCH)):
        yield batch
