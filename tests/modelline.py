"""A line in memory, for tests: the same answers as that on Redis, without a server; `line/redis/test_model.py` holds the
two to each other."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence

from demora.core.job import Lane, Priority, QueueOrder
from demora.core.pace import EVERY_QUEUE
from demora.line.port import HandedOut, LineLost, LineState, Placed, PutMode, WakeWaiters, are_delayed, by_queue
from demora.store.line_feed import Arrangement, Entry, Place

LANES = [(lane, rank) for lane in Lane for rank in Priority]
USUAL: tuple[int | None, ...] = tuple(QueueOrder().offset(lane, rank) for lane, rank in LANES)
LaneAndRank = tuple[int, int]  # lane and rank
Head = tuple[int, float, str, str]  # turn of the queue, place in the order, id, queue


class QueueLine:
    """What stands in one queue under one number."""

    def __init__(self) -> None:
        self.lanes: dict[LaneAndRank, dict[str, int]] = {lane: {} for lane in LANES}
        self.out: dict[str, int] = {}
        self.own: tuple[int | None, ...] | None = None
        self.paused, self.offsets = False, USUAL

    def under(self, usual: tuple[int | None, ...]) -> "QueueLine":
        """The queue, as one client serves it."""
        self.offsets = self.own or usual
        return self

    def heads(self, now: int, limit: int, stale: int) -> list[tuple[float, str, LaneAndRank | None]]:
        """What would be handed out, with its place in the order, and where it stands; None if it is handed out already."""
        if self.paused:
            return []
        forgotten = sorted((when, id) for id, when in self.out.items() if when < stale)[:limit]
        due = [
            (when + offset, id, lane)
            for lane, offset in zip(LANES, self.offsets, strict=True)
            if offset is not None
            for id, when in self.lanes[lane].items()
            if when <= now
        ]
        return [*((float("-inf"), id, None) for _, id in forgotten), *sorted(due)]

    def next_due(self, now: int) -> int | None:
        served = [self.lanes[lane] for lane, offset in zip(LANES, self.offsets, strict=True) if offset is not None]
        return None if self.paused else min((due for lane in served for due in lane.values() if due > now), default=None)

    def take(self, now: int, limit: int, stale: int) -> list[str]:
        first = self.heads(now, limit, stale)[:limit]
        for _, id, lane in first:
            if lane is not None:
                del self.lanes[lane][id]
            self.out[id] = now
        return [id for _, id, _ in first]

    def put(self, places: Sequence[Place], now: int, mode: PutMode) -> Placed:
        """How many were not in their place, and whether one of them is ready or the new head of its lane."""
        if mode is PutMode.MISSING:
            places = [p for p in places if p.id not in self.out and self.lanes[p.lane, p.rank].get(p.id) != p.due_at]
        count, woken = 0, False
        for which in dict.fromkeys((place.lane, place.rank) for place in places):
            lane, here = self.lanes[which], [place for place in places if (place.lane, place.rank) == which]
            first, head = min(place.due_at for place in here), min(lane.values(), default=None)
            kept = lane if mode is PutMode.FRESH else {}
            moved = [place for place in here if place.id not in kept and lane.get(place.id) != place.due_at]
            lane |= {place.id: place.due_at for place in moved}
            count += len(moved)
            wakes = moved and mode is not PutMode.RETURNED
            woken = woken or bool(wakes and (first <= now or head is None or first < head))
        if mode is not PutMode.FRESH:
            for place in places:
                self.out.pop(place.id, None)
                for which, lane in self.lanes.items():
                    if which != (place.lane, place.rank):
                        lane.pop(place.id, None)
        return Placed(count, woken)

    def remove(self, id: str) -> None:
        self.out.pop(id, None)
        for lane in self.lanes.values():
            lane.pop(id, None)


class ModelServer:
    """What all clients of one line share. It can be emptied, restarted, and restored from an old copy."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        self.run = 1
        self.listeners: dict[ModelLine, WakeWaiters] = {}
        self.flush()

    def flush(self) -> None:
        self.state: dict[str, LineState] = {}
        self.queues: dict[tuple[str, int, str], QueueLine] = {}  # by database, number and name
        self.usual: dict[tuple[str, int], tuple[int | None, ...]] = {}  # by database and number
        self.maintainer: dict[str, tuple[str, float]] = {}

    def snapshot(self) -> object:
        return copy.deepcopy((self.state, self.queues, self.usual))

    def restart(self, snapshot: object = None) -> None:
        """Come back as another run, empty or as an old copy has it."""
        self.run += 1
        self.flush()
        if snapshot is not None:
            self.state, self.queues, self.usual = copy.deepcopy(snapshot)  # type: ignore[misc]

    def notify(self, sender: "ModelLine", *, delayed: bool) -> None:
        for line, wake in list(self.listeners.items()):
            if line is not sender:
                wake(delayed)


class ModelLine:
    """One client of a line in memory. What is done is told with the next take, as by the one on Redis."""

    def __init__(self, server: ModelServer) -> None:
        self.epoch = 0
        self._server, self._database = server, ""
        self._run = 0
        self._begun: set[str] = set()
        self._done: dict[str, list[str]] = {}
        self._usual = USUAL  # as this client has last read it

    async def connect(self, database: str) -> str:
        self._server.listeners.pop(self, None)
        self._database, self._run = database, self._server.run
        self._under(self.epoch)
        return str(self._run)

    async def close(self) -> None:
        self._server.listeners.pop(self, None)
        self._run = 0

    async def state(self) -> LineState:
        self._check()
        state = self._server.state.get(self._database, LineState())
        self._usual = self._server.usual.get((self._database, state.epoch or 0), USUAL)
        return state

    async def begin(self, epoch: int) -> None:
        known = (await self.state()).epoch
        if known is None or known < epoch:
            self._server.state[self._database] = LineState(epoch)
        self._under(epoch)
        for key in [key for key in self._server.queues if key[0] == self._database and key[1] < epoch]:
            del self._server.queues[key]

    async def checkpoint(self, until: int, position: str, *, filled: bool = False) -> None:
        state = await self.state()
        if state.epoch != self.epoch:
            raise LineLost("the line is in another epoch")
        noted = LineState(self.epoch, filled or state.filled, until, position, state.paced)
        self._server.state[self._database] = noted

    async def put(self, places: Sequence[Place], *, now: int, mode: PutMode = PutMode.MOVED) -> Placed:
        self._check()
        moved, woken, lost = 0, False, None
        for queue, ids in by_queue(places).items() if mode is not PutMode.FRESH else ():
            self._done[queue] = [id for id in self._done.get(queue, []) if id not in ids]
        for queue in dict.fromkeys(place.queue for place in places):
            group = [place for place in places if place.queue == queue]
            try:
                placed = self._in_line(queue).put(group, now, mode)
                moved += placed.moved
                if placed.woken:
                    woken = True
                    self._server.notify(self, delayed=are_delayed(group))
            except LineLost as problem:
                lost = lost or problem  # a pipeline goes on
        if lost is not None:
            raise lost
        return Placed(moved, woken)

    async def take(
        self, queues: Sequence[str] | None, limit: int, *, now: int, stale: int, in_turn: bool = False
    ) -> HandedOut:
        """As the real one: who knows of one queue takes from it at once, and looks at others that it then hears of."""
        before = self._usual
        state, known, members = await self.state(), self._served(queues), self._members()
        first: list[Entry] = []
        if len(known) == 1 and limit:
            [queue] = known
            line = self._known(queue).under(before)
            self._tell_done(queue)
            next_due = line.next_due(now)
            first = [Entry(id, queue) for id in line.take(now, limit, stale)]
            new = members - self._begun
            if not (new if queues is None else new.intersection(queues)):
                self._begun |= members
                return HandedOut(first, next_due, state)
        self._begun |= members
        rest, next_due = self._merge(self._served(queues), limit - len(first), now, stale, in_turn)
        return HandedOut(first + rest, next_due, state)

    def _served(self, queues: Sequence[str] | None) -> list[str]:
        return sorted(self._begun) if queues is None else [queue for queue in dict.fromkeys(queues) if queue in self._begun]

    def _merge(
        self, queues: Sequence[str], limit: int, now: int, stale: int, in_turn: bool
    ) -> tuple[list[Entry], int | None]:
        lines = {queue: self._known(queue).under(self._usual) for queue in queues}
        heads: list[Head] = []
        for turn, (queue, line) in enumerate(lines.items()):
            self._tell_done(queue)
            heads += [(turn if in_turn else 0, place, id, queue) for place, id, _ in line.heads(now, limit, stale)]
        nexts = [due for line in lines.values() if (due := line.next_due(now)) is not None]
        first = sorted(heads)[:limit]
        order = {(id, queue): n for n, (_, _, id, queue) in enumerate(first)}
        counts = Counter(queue for *_, queue in first)
        taken = [Entry(id, queue) for queue, count in counts.items() for id in lines[queue].take(now, count, stale)]
        return sorted(taken, key=lambda entry: order.get((entry.id, entry.queue), limit)), min(nexts, default=None)

    async def done(self, entries: Sequence[Entry]) -> None:
        self._check()
        for queue, ids in by_queue(entries).items():
            self._done.setdefault(queue, []).extend(ids)
        if not entries:
            for queue in list(self._done):
                self._tell_done(queue)

    async def remove(self, entries: Sequence[Entry]) -> None:
        self._check()
        for entry in entries:
            line = self._server.queues.get((self._database, self.epoch, entry.queue))
            if line is not None:
                line.remove(entry.id)

    async def arrange(self, arrangements: Sequence[Arrangement]) -> None:
        self._check()
        state = self._server.state.get(self._database, LineState())
        for one in arrangements:
            if one.queue == EVERY_QUEUE:
                if one.offsets != self._usual:
                    self._server.notify(self, delayed=True)
                self._usual = self._server.usual[self._database, state.epoch or 0] = one.offsets
                continue
            line = self._server.queues.setdefault((self._database, self.epoch, one.queue), QueueLine())
            changed = (line.own, line.paused) != (one.offsets, one.paused)
            line.own, line.paused = one.offsets, one.paused
            self._begun.add(one.queue)
            if changed:
                self._server.notify(self, delayed=True)
        if arrangements:
            paced = any(None in one.offsets for one in arrangements)
            noted = LineState(state.epoch, state.filled, state.until, state.position, paced)
            self._server.state[self._database] = noted

    async def maintain(self, process: str, span: int) -> bool:
        self._check()
        maintainer, until = self._server.maintainer.get(self._database, (process, 0.0))
        if maintainer != process and until > self._server.time():
            return False
        self._server.maintainer[self._database] = process, self._server.time() + span / 1000
        return True

    async def places(self) -> tuple[list[Place], list[Entry]]:
        self._check()
        places: list[Place] = []
        out: list[Entry] = []
        self._begun |= self._members()
        for queue in sorted(self._members()):
            line = self._server.queues[self._database, self.epoch, queue]
            for (lane, rank), ids in line.lanes.items():
                standing = sorted((due, id) for id, due in ids.items())
                places += [Place(id, queue, lane, rank, due) for due, id in standing]
            out += [Entry(id, queue) for _, id in sorted((when, id) for id, when in line.out.items())]
        return places, out

    async def listen(self, wake: WakeWaiters) -> None:
        self._check()
        self._server.listeners[self] = wake

    def missing(self, places: Sequence[Place]) -> list[Place]:
        """Those that are neither in their places nor handed out."""
        found = []
        for place in places:
            line = self._server.queues.get((self._database, self.epoch, place.queue), QueueLine())
            if place.id not in line.out and line.lanes[place.lane, place.rank].get(place.id) != place.due_at:
                found.append(place)
        return found

    def forgotten(self, stale: int) -> list[str]:
        """Those that were handed out before this time and are not done."""
        lines = [self._server.queues[self._database, self.epoch, queue] for queue in self._members()]
        return [id for line in lines for id, when in line.out.items() if when < stale]

    def as_it_is(self) -> "ModelLine":
        """A copy, whose verbs are those that would be sent now."""
        copied = copy.copy(self)
        copied._begun, copied._done = set(self._begun), {queue: list(ids) for queue, ids in self._done.items()}
        return copied

    # How it is done

    def _check(self) -> None:
        if self._run != self._server.run:
            raise LineLost("the server was restarted, or is another one")

    def _under(self, epoch: int) -> None:
        self.epoch = epoch
        self._begun.clear()
        self._done.clear()

    def _members(self) -> set[str]:
        return {queue for database, epoch, queue in self._server.queues if (database, epoch) == (self._database, self.epoch)}

    def _in_line(self, queue: str) -> QueueLine:
        """The line of a queue, begun if it is not; `LineLost` if this client has begun it and it is gone."""
        if queue not in self._begun:
            self._server.queues.setdefault((self._database, self.epoch, queue), QueueLine())
            self._begun.add(queue)
        return self._known(queue)

    def _known(self, queue: str) -> QueueLine:
        line = self._server.queues.get((self._database, self.epoch, queue))
        if line is None:
            raise LineLost("this queue is not in the line")
        return line

    def _tell_done(self, queue: str) -> None:
        line = self._server.queues.get((self._database, self.epoch, queue))
        for id in self._done.pop(queue, []):
            if line is not None:
                line.out.pop(id, None)
