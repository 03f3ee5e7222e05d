"""The processes of simulated workers that call process handlers: they speak the real messages, and die of anything.

Each is a simulated process of its own at the other end of a pipe. What was written before a death still arrives, before the
death is seen or after it.
"""

import asyncio
import contextvars
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from demora import Demora
from demora.core.payload import pack
from demora.core.verdict import Raised, Succeeded
from demora.handlers.context import Context
from demora.handlers.control import ControlFlow
from demora.handlers.registry import Registry
from demora.store.audit import Evidence
from demora.store.jobs import Lease
from demora.worker.processes.messages import HEAD, Began, End, Hello, RunEnded, Said, ToProcess, Work, for_process, frame
from demora.worker.run import failed
from tests.sim.history import Recorder
from tests.sim.loop import OWNER, Killed
from tests.sim.world import World

PAUSE = 0.1  # seconds between reports at least, as in a real one
LONGEST_WAY = 0.1  # seconds that a message takes at most, and so long is a death unseen at most

app: Demora | None = None  # whose worker was made last: an import of this module finds it

FATES = {
    "lives": 60,
    "exits in mid-run": 5,
    "is killed in mid-run": 5,
    "closes its pipe": 4,
    "hangs": 2,
    "dies while idle": 6,
    "dies before its greeting": 4,
    "never greets": 2,
    "answers without a greeting": 2,
    "answers and dies": 5,
    "sends half a message and dies": 4,
    "sends half a message and hangs": 1,
    "sends what is no message": 4,
}
FAULTS = ("process cannot be started", *(f"process {fate}" for fate in FATES if fate != "lives"))


class Slots:
    """All processes of slots that ever were, and what is held against their workers in the end."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        self.world, self.recorder = world, recorder
        self.all: list[SimProcess] = []
        self.failed: set[Lease] = set()  # by a process that had begun the job, or was started for it
        self.answered: set[Lease] = set()
        self.faults: list[str] = []

    async def spawn(self, registry: Registry, slots: int) -> "SimProcess":
        """A process of the calling worker, which has so many slots."""
        if self.world.random.random() < 0.01:
            self.world.happened("process cannot be started")
            raise OSError("simulated: no more processes")
        parent = OWNER.get()
        process = SimProcess(self, f"{parent}.{len(self.all)}", registry)
        self.all.append(process)
        self.world.on_death(parent, process.close)
        living = [one for one in self.all if one.alive and one.parent == parent]
        if len(living) > slots:
            self.faults.append(f"{parent} has {slots} slots and {len(living)} processes")
        return process

    def hear(self, ctx: Context, how: str) -> None:
        """An answer arrives as a whole."""
        self.answered.add(ctx.job.lease)
        self.recorder.ended(ctx, how)

    def judge(self, evidence: Evidence) -> Iterator[str]:
        """What a process said counts; what it did not begin costs nothing; none is left behind. That nothing else counts
        is judged by the ends of runs, which are recorded when the answer arrives as a whole."""
        yield from self.faults
        for process in self.all:
            if process.alive and (process.at_work or not self.world.loop.alive(process.parent)):
                yield f"process {process.owner} is left behind, at work on {process.at_work}"
        for event in evidence.events or ():
            if event.kind != "settled" or "ProcessDied" not in (event.error or ""):
                continue
            lease = Lease(event.job, event.token)
            if lease not in self.failed:
                yield f"I5 attempts: job {event.job} paid with attempt {event.token} for a process that had not begun it"
            if lease in self.answered:
                yield f"I5 attempts: what the process of job {event.job} said under token {event.token} was not heard"


class SimProcess:
    """One process: what its worker holds of it, and its own life."""

    def __init__(self, slots: Slots, owner: str, registry: Registry) -> None:
        self._slots, self._world, self._loop = slots, slots.world, slots.world.loop
        self._chance: random.Random = self._world.random
        self.owner, self.parent, self._registry = owner, OWNER.get(), registry
        self.reader = asyncio.StreamReader(loop=self._loop)
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._inbox = asyncio.StreamReader(loop=self._loop)
        self._kernel = contextvars.copy_context()
        self._kernel.run(OWNER.set, "kernel")
        self._arrivals = [0.0, 0.0]  # of the last message each way: they keep their order
        self.alive = self._speaks = True
        self._fresh = True
        self._begun: Lease | None = None
        self.at_work: Lease | None = None
        self._waiting: asyncio.Queue[Work] = asyncio.Queue()
        self._handling: asyncio.Task[Any] | None = None
        self._loop.spawn(owner, self._live())

    # As its worker holds it

    def write(self, data: bytes) -> None:
        self._carry(0, self._inbox.feed_data, data)

    def close(self) -> None:
        self._carry(0, self._inbox.feed_eof)

    def kill(self) -> None:
        self._end(-signal.SIGKILL)

    # Its own life

    async def _live(self) -> None:
        """Listen to the worker until the pipe ends, and end with it."""
        assert isinstance(await self._receive(), Hello)
        await asyncio.sleep(self._chance.random() * 0.5)
        self._loop.create_task(self._serve())
        while (message := await self._receive()) is not None:
            if isinstance(message, Work):
                if self.at_work is not None:
                    self._slots.faults.append(f"process {self.owner} was given a job while at work on another")
                self.at_work = message.job.lease
                self._waiting.put_nowait(message)
            elif isinstance(message, End) and self._handling is not None:
                self._handling.cancel()
        self._end(-signal.SIGKILL)

    async def _receive(self) -> ToProcess | None:
        try:
            size = int.from_bytes(await self._inbox.readexactly(HEAD))
            return for_process(await self._inbox.readexactly(size))
        except asyncio.IncompleteReadError:
            return None

    async def _serve(self) -> None:
        while True:
            work = await self._waiting.get()
            await self._meet(self._chance.choices(tuple(FATES), tuple(FATES.values()))[0], work)
            self.at_work = self._begun = None
            self._fresh = False

    async def _meet(self, fate: str, work: Work) -> None:
        """Run a job as the fate of this process has it."""
        if fate != "lives" and (fate != "never greets" or self._fresh):
            self._world.happened(f"process {fate}")
        if await self._greet(fate, work):
            self._upset(fate)
            quiet = fate == "hangs" or (fate == "closes its pipe" and self._chance.random() < 0.5)
            await self._finish(fate, await self._run(work, hangs=quiet))

    async def _greet(self, fate: str, work: Work) -> bool:
        """Say that the handler is called now, if it is."""
        if fate == "dies before its greeting":
            self._exit(1)
        if fate == "never greets" and self._fresh:
            self._fail()
            await asyncio.Event().wait()
        if fate == "answers without a greeting":
            ctx = Context(work.job, work.worker_id, self._loop.time)
            self._answer(RunEnded(ctx.report(), Raised("BadHandler: gone")), ctx, "BadHandler")
            return False
        self._say(frame(Began(work.job.lease)))
        self._begun = work.job.lease
        return True

    def _upset(self, fate: str) -> None:
        """What happens in the middle of a run."""
        if fate == "exits in mid-run":
            self._loop.call_later(self._chance.random(), self._die, 3)
        elif fate == "is killed in mid-run":
            self._loop.call_later(self._chance.random(), self._die, -signal.SIGSEGV)
        elif fate == "closes its pipe":
            self._loop.call_later(self._chance.random(), self._hang_up)
        elif fate == "sends what is no message":
            self._fail()
            self._say(b"\0\0\0\4nope")

    async def _finish(self, fate: str, answer: "tuple[RunEnded, Context, str]") -> None:
        if fate.startswith("sends half"):
            self._fail()
            self._say(frame(answer[0])[: self._chance.randrange(1, 40)])
            if fate.endswith("hangs"):
                await asyncio.Event().wait()
            self._exit(1)
        self._answer(*answer)
        if fate == "answers and dies":
            self._exit(0)
        if fate == "dies while idle":
            self._loop.call_later(self._chance.random() * 3, self._die, -signal.SIGTERM)

    async def _run(self, work: Work, *, hangs: bool) -> tuple[RunEnded, Context, str]:
        """Call the handler, report what it says, and answer with what it came to; one that hangs hears no End."""
        ctx = Context(work.job, work.worker_id, self._loop.time)
        handler = self._registry.get(work.job.type)
        assert handler is not None
        handling = self._loop.create_task(handler.function(**handler.arguments(work.job.payload, ctx)))
        if hangs:
            await asyncio.Event().wait()
        self._handling = handling
        while not handling.done():
            await asyncio.wait({handling}, timeout=PAUSE)
            if ctx.has_news and not handling.done():
                self._say(frame(Said(ctx.report())))
        self._handling = None
        outcome, signal, how = _outcome(handling)
        return RunEnded(ctx.report(), outcome, signal), ctx, how

    # What it does to its worker

    def _say(self, data: bytes, arrives: Callable[[], None] | None = None) -> None:
        """Write into the pipe; one whose pipe is closed ends, as a real one does."""
        if not self._speaks:
            self._exit(1)
        self._carry(1, self._deliver, data, arrives)

    def _deliver(self, data: bytes, arrives: Callable[[], None] | None) -> None:
        if arrives is not None:
            arrives()
        self.reader.feed_data(data)

    def _answer(self, ended: RunEnded, ctx: Context, how: str) -> None:
        is_in_order = ctx.job.lease not in self._slots.failed
        self._say(frame(ended), partial(self._slots.hear, ctx, how) if is_in_order else None)

    def _hang_up(self) -> None:
        """Close the pipe, and live on."""
        self._fail()
        if self._speaks:
            self._speaks = False
            self._carry(1, self.reader.feed_eof)

    def _exit(self, code: int) -> None:
        self._die(code)
        raise Killed

    def _die(self, code: int) -> None:
        self._fail()
        self._end(code)

    def _end(self, code: int) -> None:
        """End at once, without a further line; what was said before arrives, and then the end of the pipe."""
        if not self.alive:
            return
        self.alive = False
        self._loop.kill(self.owner)
        if self._speaks:
            self._carry(1, self.reader.feed_eof)
        self._loop.call_later(self._chance.random() * LONGEST_WAY, self.exited.set_result, code, context=self._kernel)

    def _fail(self) -> None:
        """From now on the job at work may have failed by this process: it had begun it, or was started for it."""
        if self.at_work is not None and (self._begun == self.at_work or self._fresh):
            self._slots.failed.add(self.at_work)

    def _carry(self, way: int, deliver: Callable[..., None], *data: Any) -> None:
        self._arrivals[way] = max(self._arrivals[way], self._loop.time() + self._chance.random() * LONGEST_WAY)
        self._loop.call_at(self._arrivals[way], deliver, *data, context=self._kernel)


def _outcome(handling: "asyncio.Task[Any]") -> tuple[Any, bool, str]:
    """What the run came to, whether the handler raised a signal to say so, and what is recorded of it."""
    if handling.cancelled():
        return None, False, "CancelledError"
    if (problem := handling.exception()) is None:
        return Succeeded(pack(handling.result(), "result")), False, "returned"
    return failed(problem, ()), isinstance(problem, ControlFlow), type(problem).__name__
