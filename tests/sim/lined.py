"""The simulation with a line: every process has one before its store, on one simulated server that has faults of its own."""

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from demora.core.spans import span_ms
from demora.line import LinedStore, claiming
from demora.line.filling import HORIZON
from demora.line.port import LineAway, LineLost, PutMode, WakeWaiters
from tests.modelline import ModelLine, ModelServer
from tests.sim.faults import FaultyStore
from tests.sim.loop import OWNER
from tests.sim.run import Result, Simulation

LATENCIES = (0.001, 0.01, 0.05)  # seconds that a call takes at most while nothing fails
PATIENCE = 1.0  # seconds that a client waits for an answer
NEEDS_MEMORY = ("begin", "checkpoint", "put", "take", "arrange", "maintain")
NET = claiming.SQL_CLAIM_EVERY  # seconds between two looks of a worker at SQL alone

EXPECTED = ("line flushed", "line restarted empty", "line restored from an old copy", "line away", "line out of memory")
EXPECTED += ("line paused", "run twice", "run late", "refused", "answer lost", "handed out by the line")


class LineRates(msgspec.Struct):
    """How likely each fault is for one verb."""

    twice: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    lost: float = 0.0


class LineWorld:
    """The server of the line, and what is wrong with it at the moment."""

    def __init__(self, simulation: "LinedSimulation") -> None:
        self.world, self.recorder = simulation._world, simulation._recorder
        self.chance: random.Random = self.world.random
        self.server = ModelServer(self.world.loop.time)
        self.rates = LineRates()
        self.latency = 0.0
        self.away = self.full = False
        self.paused_until = 0.0
        deeds = (self._flush, self._restart, self._restore, self._go_away, self._fill_up, self._pause)
        self._deeds = [deed for deed in deeds if self.chance.random() < 0.6]

    def stands(self, id: str) -> bool:
        """Whether a job is in the line, or handed out by it, or the line is not filled anyway."""
        filled = {(database, state.epoch) for database, state in self.server.state.items() if state.filled}
        lines = [line for key, line in self.server.queues.items() if key[:2] in filled]
        return not filled or any(id in lane for line in lines for lane in (line.out, *line.lanes.values()))

    async def trouble(self) -> None:
        for name in LineRates.__struct_fields__:
            if self.chance.random() < 0.6:
                setattr(self.rates, name, self.chance.choice((0.005, 0.02, 0.1)))
        while self._deeds:
            await asyncio.sleep(self.chance.expovariate(1 / 5))
            self.chance.choice(self._deeds)()

    def heal(self) -> None:
        self.rates = LineRates()
        self._deeds = []
        self.away = self.full = False
        self.paused_until = 0.0

    def _flush(self) -> None:
        self.server.flush()
        self.world.happened("line flushed")

    def _restart(self) -> None:
        self.server.restart()
        self.world.happened("line restarted empty")

    def _restore(self) -> None:
        """Take a copy, and come back as it is after a while."""
        self.world.loop.call_later(self.chance.uniform(1, 10), self._come_back_as, self.server.snapshot())

    def _come_back_as(self, copy: object) -> None:
        if self._deeds:
            self.server.restart(copy)
            self.world.happened("line restored from an old copy")

    def _go_away(self) -> None:
        self.away = not self.away
        self.world.happened("line away")

    def _fill_up(self) -> None:
        self.full = not self.full
        self.world.happened("line out of memory")

    def _pause(self) -> None:
        self.paused_until = self.world.loop.time() + self.chance.uniform(0.2, 12)
        self.world.happened("line paused")


class FaultyLine:
    """A client of the simulated line, whose verbs fail: not carried out, carried out without an answer, late, or twice."""

    def __init__(self, line: LineWorld) -> None:
        self._line, self._chance = line, line.chance
        self._model = ModelLine(line.server)

    @property
    def epoch(self) -> int:
        return self._model.epoch

    async def close(self) -> None:
        await self._model.close()

    async def listen(self, wake: WakeWaiters) -> None:
        world = self._line.world

        def notified(delayed: bool) -> None:
            if not world.loses_notification():
                world.loop.call_soon(wake, delayed, context=context)

        context = contextvars.copy_context()
        await self._model.listen(notified)

    def __getattr__(self, name: str) -> Any:
        async def faulty(*args: Any, **options: Any) -> Any:
            return await self._with_faults(name, args, options)

        return faulty

    async def _with_faults(self, name: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
        rates, happened, verb = self._line.rates, self._line.world.happened, getattr(self._model, name)
        await self._reach(name)
        if self._line.latency:
            await asyncio.sleep(self._chance.random() * self._line.latency)
        rescued = self._rescues(name, args, options)
        if self._chance.random() < rates.refused:
            happened("refused")
            raise LineAway("simulated: refused")
        if self._chance.random() < rates.late:
            happened("run late")
            sent = getattr(self._model.as_it_is(), name)
            self._line.world.loop.call_later(self._chance.uniform(0, 8), _run, sent, args, options, context=SERVER)
            await asyncio.sleep(PATIENCE)
            raise LineAway("simulated: no answer")
        if self._chance.random() < rates.twice:
            happened("run twice")
            await verb(*args, **options)
        answer = await verb(*args, **options)
        if self._chance.random() < rates.lost:
            happened("answer lost")
            raise LineAway("simulated: the answer was lost")
        if name == "take" and answer.entries:
            happened("handed out by the line")
        for id, net in rescued.items():
            self._line.recorder.rescued(id, net)
        return answer

    def _rescues(self, name: str, args: Sequence[Any], options: dict[str, Any]) -> dict[str, str]:
        """The jobs that a verb is about to find as a safety net, and which: a sweep those that no process has put, a take
        those that were handed out and forgotten."""
        if name == "put" and options.get("mode") is PutMode.MISSING:
            near = options["now"] + span_ms(HORIZON) // 2  # those beyond it are new to the line
            return {place.id: "sweep" for place in self._model.missing(args[0]) if place.due_at < near}
        return dict.fromkeys(self._model.forgotten(options["stale"]), "handed out again") if name == "take" else {}

    async def _reach(self, name: str) -> None:
        line = self._line
        if line.away:
            raise LineAway("simulated: away")
        if (left := line.paused_until - line.world.loop.time()) > 0:
            await asyncio.sleep(min(left, PATIENCE))
            if left > PATIENCE:
                raise LineAway("simulated: no answer")
        if line.full and name in NEEDS_MEMORY:
            raise LineAway("simulated: out of memory")


def _run(verb: Any, args: Sequence[Any], options: dict[str, Any]) -> None:
    """What was sent is carried out by a server that took its time, whatever became of the sender."""
    with contextlib.suppress(StopIteration, LineLost):
        verb(*args, **options).send(None)


SERVER = contextvars.Context()  # the server's own


class FaultyInner(FaultyStore):
    """A faulty store below a line: the calls that open it do not fail."""

    opening = False
    line: LineWorld

    async def _with_faults(self, verb: str, call: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.opening:
            return await call(*args, **options)
        return await super()._with_faults(verb, call, args, options)

    async def claim(self, *asked: Any, **options: Any) -> Any:
        """Claim by SQL alone, and note the jobs that the line did not have."""
        answer = await self._with_faults("claim", self._store.claim, asked, options)
        for job in answer.jobs:
            if not self.line.stands(job.lease.id):
                self.line.recorder.rescued(job.lease.id, "look at SQL")
        return answer


class OpenedLinedStore(LinedStore):
    inner: Any

    async def open(self) -> None:
        self.inner.opening = True
        await super().open()
        self.inner.opening = False


class LinedSimulation(Simulation):
    """A seed with a line, come to life. In half of them no worker ever looks past the line: what falls out must come back by
    itself."""

    def __init__(self, seed: int, jobs: int) -> None:
        super().__init__(seed, jobs)
        self._line = LineWorld(self)
        self._net = self._world.random.choice((NET, 10_000.0))

    def run(self) -> Result:
        claiming.SQL_CLAIM_EVERY = self._net
        try:
            return super().run()
        finally:
            claiming.SQL_CLAIM_EVERY = NET

    def _store(self) -> Any:
        inner: Any = FaultyInner(self._world, self._schedules.watch(self._world.store()), self._rates)
        inner.line = self._line
        return OpenedLinedStore(inner, lambda: FaultyLine(self._line))

    async def _live(self) -> list[str]:
        if not self.calm:
            self._world.loop.spawn("line", self._line.trouble())
        return await super()._live()

    async def _drain(self) -> list[str]:
        self._line.heal()
        return await super()._drain()


class CalmSimulation(LinedSimulation):
    """A seed with a line in which nothing fails: calls only take their time. Then no safety net has anything to do."""

    calm = True

    async def _trouble(self) -> None:
        self._rates.latency = self._line.latency = self._world.random.choice(LATENCIES)
        await asyncio.Event().wait()


def simulate_calmly(seed: int, jobs: int) -> Result:
    """Live through one seed with a line and without faults, and judge it."""
    return CalmSimulation(seed, jobs).run()


def simulate(seed: int, jobs: int) -> Result:
    """Live through one seed with a line, and judge it."""
    assert OWNER.get() == "world"
    return LinedSimulation(seed, jobs).run()
