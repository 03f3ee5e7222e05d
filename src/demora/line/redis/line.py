"""The line on Redis or Valkey: for each queue one sorted set per lane and rank, scored by due time.

A job is ready once its score has passed, so that nothing is moved to promote it; the scripts merge the heads of the lanes by
the offsets that they are given. One script for each verb, each on the keys of one queue.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec
from redis.exceptions import RedisError

from ...core.order import QueueOrder
from ...line_feed import Arrangement, Entry, Place
from ..port import Heard, LineAway, LineState, Putting, Taken, are_delayed, by_queue
from .connections import Call, Nodes, Script, command, hang_up, next_ring, translate
from .keys import LANES, Keys, number_of

_encode = msgspec.json.Encoder().encode
AT_ONCE = 1000  # jobs put by one script: a server does nothing else meanwhile
MOST_TAKEN = 3500  # jobs taken by one script: more are too many arguments for Lua
_REAL_TIME = "realtime"  # in a ring: nothing has moved that a pace may hold
_HELD = "held"  # in place of an offset: the lane is not handed out
_USUAL = " ".join(str(QueueOrder().offset(lane, rank)) for lane, rank in LANES)
_PUT, _TAKE, _PEEK, _REMOVE, _ARRANGE, _BEGIN, _NOTE, _TEND = map(
    Script, ("put", "take", "peek", "remove", "arrange", "begin", "note", "tend")
)


class RedisLine:
    """Keeps the promises of `Line` on one server or on a cluster."""

    def __init__(self, url: str) -> None:
        self.epoch = 0
        self._nodes = Nodes(url)
        self._database = ""
        self._keys = Keys("")
        self._who = secrets.token_hex(8)
        self._begun: set[str] = set()  # queues that are in the line under this number
        self._done: dict[str, list[str]] = {}
        self._bell: asyncio.Task[None] | None = None

    async def connect(self, database: str) -> str:
        await self._stop_listening()
        self._database = database
        self._under(self.epoch)
        return await self._nodes.connect()

    async def close(self) -> None:
        await self._stop_listening()
        await self._nodes.close()

    async def state(self) -> LineState:
        if self._bell is not None and self._bell.done():
            raise LineAway("its bell is not heard any more")
        [told] = await self._nodes.ask(self._state())
        return _state(told)

    async def begin(self, epoch: int) -> None:
        await self._nodes.ask(_BEGIN.call([self._keys.state], epoch))
        self._under(epoch)
        [members] = await self._nodes.ask(command("SMEMBERS", self._keys.queues))
        older = [(member, *member.split(" ", 1)) for member in members if int(member.split(" ", 1)[0]) < epoch]
        for member, number, queue in older:
            for key in self._keys.under(queue, int(number)):
                await self._nodes.ask(command("UNLINK", key))
            await self._nodes.ask(command("SREM", self._keys.queues, member))

    async def note(self, until: int, position: str, *, filled: bool = False) -> None:
        await self._nodes.ask(_NOTE.call([self._keys.state], self.epoch, until, position, int(filled)))

    async def put(self, places: Sequence[Place], *, now: int, how: Putting = Putting.MOVED) -> bool:
        lanes: dict[tuple[str, int, int], list[Place]] = {}
        for place in places:
            lane = lanes.get(which := (place.queue, place.lane, place.rank))
            if lane is None:
                lane = lanes[which] = []
            lane.append(place)
        await self._begin_queues(dict.fromkeys(queue for queue, *_ in lanes))
        calls = []
        for (queue, *lane_and_rank), together in lanes.items():
            ring, number = self._ring(delayed=are_delayed(together)), number_of(*lane_and_rank)
            for part in _parts(together):
                pairs = [word for place in part for word in (place.due_at, place.id)]
                what = (how.value, number, min(pairs[::2]), _encode(pairs))
                calls.append(_PUT.call(self._keys.of(queue), now, self._keys.bell, ring, *what))
        return any(await self._nodes.ask(*calls)) if calls else False

    async def take(self, queues: Sequence[str] | None, limit: int, *, now: int, stale: int, in_turn: bool = False) -> Taken:
        limit = min(limit, MOST_TAKEN)
        known = self._served(queues)
        if len(known) == 1 and limit:
            [told, members, taken] = await self._nodes.ask(
                self._state(), self._members(), self._take(known[0], limit, now, stale)
            )
            if not self._learn(members, queues):
                entries = [Entry(id, known[0]) for id in taken[1:]]
                return Taken(entries, int(taken[0]) if taken[0] else None, _state(told))
            first = [Entry(id, known[0]) for id in taken[1:]]
            rest = await self._merge(self._served(queues), limit - len(first), now, stale, in_turn)
            return Taken(first + rest.entries, rest.next_due, _state(told))
        [told, members] = await self._nodes.ask(self._state(), self._members())
        self._learn(members, queues)
        merged = await self._merge(self._served(queues), limit, now, stale, in_turn)
        return Taken(merged.entries, merged.next_due, _state(told))

    async def done(self, entries: Sequence[Entry]) -> None:
        """Told to the server with the next `take`, or at once if there are many."""
        for queue, ids in by_queue(entries).items():
            self._done.setdefault(queue, []).extend(ids)
        full = [queue for queue, ids in self._done.items() if len(ids) >= AT_ONCE or not entries]
        calls = [command("ZREM", self._keys.of(queue)[1], *self._done.pop(queue)) for queue in full]
        if calls:
            await self._nodes.ask(*calls)

    async def remove(self, entries: Sequence[Entry]) -> None:
        calls = [
            _REMOVE.call(self._keys.of(queue), *part) for queue, ids in by_queue(entries).items() for part in _parts(ids)
        ]
        if calls:
            await self._nodes.ask(*calls)

    async def arrange(self, arrangements: Sequence[Arrangement]) -> None:
        calls = []
        for one in arrangements:
            offsets = " ".join(_HELD if offset is None else str(offset) for offset in one.offsets)
            own = self._keys.of(one.queue)[:1]
            calls.append(_ARRANGE.call(own, offsets, int(one.paused), self._keys.bell, self._ring(delayed=True)))
        if calls:
            paced = any(None in one.offsets for one in arrangements)
            await self._nodes.ask(*calls, command("HSET", self._keys.state, "paced", int(paced)))
            await self._name([one.queue for one in arrangements])

    async def tend(self, who: str, span: int) -> bool:
        [ours] = await self._nodes.ask(_TEND.call([self._keys.tender], who, span))
        return bool(ours)

    async def places(self) -> tuple[list[Place], list[Entry]]:
        [members] = await self._nodes.ask(self._members())
        self._learn(members, None)
        places, out = [], []
        for queue in sorted(self._begun):
            keys = self._keys.of(queue)
            for (lane, rank), key in zip(LANES, keys[2:], strict=True):
                places += [Place(id, queue, lane, rank, int(score)) for id, score in await self._scan(key)]
            out += [Entry(id, queue) for id, _ in await self._scan(keys[1])]
        return places, out

    async def listen(self, heard: Heard) -> None:
        await self._stop_listening()
        bell = await self._nodes.bell(self._keys.bell)
        self._bell = asyncio.ensure_future(self._hear(bell, heard))

    async def _hear(self, bell: Any, heard: Heard) -> None:
        """Call `heard` for what others put; what we put ourselves is told where it is put."""
        try:
            while True:
                who, _, what = (await next_ring(bell)).partition(" ")
                if who != self._who:
                    heard(what != _REAL_TIME)
        except (RedisError, OSError, TimeoutError) as problem:
            heard(True)  # whoever looks next finds the trouble
            raise translate(problem) from problem
        finally:
            await hang_up(bell)

    async def _stop_listening(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.cancel()
            with contextlib.suppress(asyncio.CancelledError, LineAway):
                await bell

    # How it is done

    def _ring(self, *, delayed: bool) -> str:
        """What sleepers are told: by whom they are woken, and whether it is for real-time jobs alone."""
        return self._who if delayed else f"{self._who} {_REAL_TIME}"

    def _under(self, epoch: int) -> None:
        self.epoch, self._keys = epoch, Keys(self._database, epoch)
        self._begun.clear()
        self._done.clear()

    def _served(self, queues: Sequence[str] | None) -> list[str]:
        return sorted(self._begun) if queues is None else [queue for queue in dict.fromkeys(queues) if queue in self._begun]

    def _learn(self, members: Iterable[str], queues: Sequence[str] | None) -> bool:
        """Note which queues are in the line; says whether there are some among those asked for that we did not know."""
        mine = f"{self.epoch} "
        new = {member.removeprefix(mine) for member in members if member.startswith(mine)} - self._begun
        self._begun |= new
        return bool(new if queues is None else new.intersection(queues))

    async def _begin_queues(self, queues: Iterable[str]) -> None:
        """Begin those that are not in the line: only after a look, so that nobody takes for new what was lost."""
        if all(queue in self._begun for queue in queues):
            return
        [members] = await self._nodes.ask(self._members())
        self._learn(members, None)
        new = [queue for queue in queues if queue not in self._begun]
        if new:
            await self._nodes.ask(*(command("HSET", self._keys.of(queue)[0], "begun", "1") for queue in new))
            await self._name(new)

    async def _name(self, queues: Sequence[str]) -> None:
        await self._nodes.ask(command("SADD", self._keys.queues, *(f"{self.epoch} {queue}" for queue in queues)))
        self._begun |= set(queues)

    async def _merge(self, queues: Sequence[str], limit: int, now: int, stale: int, in_turn: bool) -> Taken:
        """Take from several queues as if they were one: look at the heads of all, and then take so many of each."""
        done = [queue for queue in queues if queue in self._done]
        first_done = [command("ZREM", self._keys.of(queue)[1], *self._done.pop(queue)) for queue in done]
        peeks = [_PEEK.call(self._keys.of(queue), now, limit, stale, _USUAL) for queue in queues]
        seen = (await self._nodes.ask(*first_done, *peeks))[len(done) :] if peeks else []
        heads = []
        for turn, (queue, told) in enumerate(zip(queues, seen, strict=True)):
            pairs = zip(told[1::2], told[2::2], strict=True)
            heads += [(turn if in_turn else 0, float(place), id, queue) for place, id in pairs]
        first = sorted(heads)[:limit]
        counts: dict[str, int] = {}
        for _, _, _, queue in first:
            counts[queue] = counts.get(queue, 0) + 1
        takes = [self._take(queue, count, now, stale) for queue, count in counts.items()]
        taken = await self._nodes.ask(*takes) if takes else []
        entries = [Entry(id, queue) for queue, told in zip(counts, taken, strict=True) for id in told[1:]]
        order = {(id, queue): n for n, (_, _, id, queue) in enumerate(first)}
        nexts = [int(told[0]) for told in seen if told[0]]
        if len(entries) < len(first):  # others took them: what stands behind them was not looked at
            nexts.append(now)
        merged = sorted(entries, key=lambda entry: order.get((entry.id, entry.queue), limit))
        return Taken(merged, min(nexts, default=None), LineState())

    def _take(self, queue: str, limit: int, now: int, stale: int) -> Call:
        done = self._done.pop(queue, [])
        return _TAKE.call(self._keys.of(queue), now, limit, stale, _USUAL, *done)

    def _state(self) -> Call:
        return command("HMGET", self._keys.state, "epoch", "filled", "until", "position", "paced")

    def _members(self) -> Call:
        return command("SMEMBERS", self._keys.queues)

    async def _scan(self, key: str) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        while True:
            [part] = await self._nodes.ask(command("ZRANGE", key, len(found), len(found) + AT_ONCE - 1, "WITHSCORES"))
            pairs = [(p[0], float(p[1])) for p in part] if part and not isinstance(part[0], str) else _pairs(part)
            found += pairs
            if len(pairs) < AT_ONCE:
                return found


def _pairs(flat: Sequence[str]) -> list[tuple[str, float]]:
    return [(id, float(score)) for id, score in zip(flat[::2], flat[1::2], strict=True)]


def _state(told: Sequence[str | None]) -> LineState:
    epoch, filled, until, position, paced = told
    is_filled = filled is not None and filled == epoch and position is not None
    return LineState(None if epoch is None else int(epoch), is_filled, int(until or 0), position or "", paced == "1")


def _parts(whole: Sequence[Any]) -> Iterable[list[Any]]:
    rest = iter(whole)
    while part := list(islice(rest, AT_ONCE)):
        yield part
