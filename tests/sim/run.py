"""One simulation: processes, load and faults for a seed; then healing, draining and judging."""

import asyncio
import contextvars
from datetime import timedelta
from typing import Any

import msgspec

from demora import Demora
from demora.core.pace import EVERY_QUEUE, Governs, Pace, Rate, request_of
from demora.errors import StoreError
from demora.system import crash
from demora.system.seams import Seams
from demora.worker import Worker
from tests.sim import rare, schedules, slots, statistics
from tests.sim.faults import FaultyStore, Rates
from tests.sim.history import LONGEST_DRAIN, Recorder
from tests.sim.load import Caller, register
from tests.sim.loop import OWNER, Deadlock, Killed
from tests.sim.nemesis import Nemesis
from tests.sim.receivers import SECRET, Receivers
from tests.sim.world import World

CALLERS = 3
UNWINDING = 10.0  # seconds until what ended elsewhere has ended here too
WORKERS = 3
SETTLING = 60.0  # seconds after a fault in which safety nets may still have to find jobs
ON_ITS_WAY = 500  # milliseconds from the commit of a move until the line must have it
SERVED: tuple[dict[str, Any], ...] = (
    {},
    {"queues": {"default": 3, "mail": 1, "reports": 2}},
    {"queues": ("mail", "default", "reports"), "strict": True},
)
PACES = (
    Pace(gap=timedelta(seconds=2), burst=4, stagger=timedelta(milliseconds=200), rapid=None),
    Pace(
        gap=timedelta(seconds=2),
        burst=3,
        stagger=timedelta(milliseconds=500),
        rapid=Rate(timedelta(seconds=1), 4, timedelta(milliseconds=100)),
        governs=Governs.RETRIES,
    ),
)
EVERY = 4  # of so many seeds, one gives its pace to all queues
SELDOM = {"worker.lapsed": 20, "worker.stopping": 120, "worker.renewed": 5, "worker.ran": 3}  # points that few pass
SELDOM |= {"line.bumped": 30, "line.filling": 30, "line.sweeping": 5}


class Result(msgspec.Struct):
    """What became of one seed."""

    seed: int
    jobs: int
    trace: str
    violations: list[str]
    fired: dict[str, int]
    reached: frozenset[str]
    steps: int
    rescued: int = 0  # jobs that a safety net had to find
    compared: int = 0  # moments at which the statistics were held to the oracle
    gaps: int = 0  # paced queues in them that held a job and whose next release was foretold


def simulate(seed: int, jobs: int) -> Result:
    """Live through one seed and judge it."""
    return Simulation(seed, jobs).run()


class Simulation:
    """A seed, come to life. If it is `calm`, nothing fails and no process dies."""

    calm = False

    def __init__(self, seed: int, jobs: int) -> None:
        self._seed, self._jobs = seed, jobs
        self._world = World(seed)
        self._recorder = Recorder(self._world)
        self._rates = Rates()
        self._receivers = Receivers(self._world)
        self._slots = slots.Slots(self._world, self._recorder)
        self._schedules = schedules.Schedules(self._world)
        self._keep = self._world.random.choice(("forever", "forever", "forever", "20s", "10", "60s,20"))
        self._pace = self._world.random.choice((None, *PACES))
        self._paced = EVERY_QUEUE if seed % EVERY == 0 else "reports"
        self._statistics = statistics.Statistics(self._world, seed, self._pace, self._paced)
        self._nemesis = Nemesis(self._world, self._rates, self._start_worker)
        self._crashes: list[str] = []
        self._started = 0
        self._reached: frozenset[str] = frozenset()
        self._rescued = self._faults = 0

    def run(self) -> Result:
        crash.arm(self._crash_point)
        try:
            violations = self._world.loop.run_until_complete(self._live())
        except Deadlock as problem:
            violations = [f"I16 liveness: deadlock {problem}"]
        finally:
            crash.arm(None)
        result = Result(
            seed=self._seed,
            jobs=self._jobs,
            trace=self._world.loop.trace(),
            violations=violations + self._crashes + self._statistics.wrong,
            fired=self._world.fired,
            reached=self._reached,
            steps=self._world.loop.steps,
            rescued=self._rescued,
            compared=self._statistics.compared,
            gaps=self._statistics.gaps,
        )
        self._world.close()
        return result

    async def _live(self) -> list[str]:
        store = self._world.store()
        await store.open()
        await self._schedules.add(store)
        if self._pace is not None:
            await store.paces.set(self._paced, request_of(self._pace), by="simulation")
        self._world.loop.spawn("statistics", self._statistics.watch(store))
        if not self.calm:
            self._recorder.world("trouble")
        for _ in range(self._world.random.randint(1, WORKERS)):
            self._nemesis.start()
        trouble = self._world.loop.spawn("nemesis", self._trouble())
        share = self._jobs // CALLERS + 1
        await asyncio.gather(*(self._world.loop.spawn(f"caller-{n}", self._call(share)) for n in range(CALLERS)))
        trouble.cancel()
        self._recorder.world("healed")
        if not self.calm:
            self._disturb("settling")
        return await self._drain()

    async def _trouble(self) -> None:
        """Make trouble until cancelled."""
        await self._nemesis.run()

    def _disturb(self, kind: str) -> None:
        """Note a fault from which the line recovers within a while."""
        self._faults += 1
        self._recorder.world(kind)
        self._world.loop.call_later(SETTLING, self._settle, context=contextvars.Context())

    def _settle(self) -> None:
        self._faults -= 1
        if not self._faults:
            self._recorder.world("healed")

    def _start_worker(self) -> str:
        self._started += 1
        owner = f"worker-{self._started}"
        self._world.on_death(owner, lambda: self._disturb("worker died"))
        task = self._world.loop.spawn(owner, self._work(owner))
        task.add_done_callback(lambda done: self._ended(owner, done))
        return owner

    async def _work(self, owner: str) -> None:
        chance = self._world.random
        app = slots.app = self._app()
        concurrency = chance.choice((1, 2, 8))
        worker = Worker(
            app,
            **chance.choice(SERVED),
            concurrency=concurrency,
            lease=timedelta(seconds=chance.choice((2, 5, 10))),
            grace=timedelta(seconds=chance.choice((0, 1))),
            seams=Seams(
                monotonic=self._world.loop.time,
                chance=chance.random,
                name=lambda: owner,
                job_id=self._world.new_id,
                spawn=lambda: self._slots.spawn(app.registry, concurrency),
            ),
        )
        self._world.on_terminate(worker.stop)
        await worker.run()
        await app.close()

    async def _call(self, jobs: int) -> None:
        await Caller(self._app(), self._world, self._recorder, jobs, calm=self.calm).run()

    def _app(self) -> Demora:
        app = Demora(store=self._store(), new_id=self._world.new_id)
        register(app, self._world, self._recorder)
        app.configure(keep_completed=self._keep, webhook_secret=SECRET)
        app.sender = self._receivers  # type: ignore[assignment]
        return app

    def _store(self) -> Any:
        """A store for one process."""
        return FaultyStore(self._world, self._schedules.watch(self._world.store()), self._rates)

    async def _drain(self) -> list[str]:
        """Heal, wait until all jobs have ended, and judge. Workers that their own handlers kill are replaced."""
        store = self._world.store()
        await store.open()
        passed_over = await self._schedules.pause(store)
        until = self._world.loop.time() + LONGEST_DRAIN / 1000
        while self._world.loop.time() < until:
            self._nemesis.heal(2)
            if all(queue.ready + queue.delayed + queue.processing == 0 for queue in await store.queues()):
                break
            await asyncio.sleep(5)
        self._recorder.world("drained")
        await asyncio.sleep(UNWINDING)
        evidence = await store.audit.evidence(integrity=False)
        findings = self._recorder.judge(evidence, rescue=ON_ITS_WAY)
        self._rescued = findings.counts.get("rescued", 0)
        self._reached = rare.reached(evidence.events or []) | self._schedules.reached()
        told = [*self._receivers.judge(evidence), *self._slots.judge(evidence)]
        told += [*passed_over, *self._schedules.judge(evidence)]
        return [*(violation.explain() for violation in findings.violations), *told]

    def _crash_point(self, name: str) -> None:
        """End the process that passes a crash point, if chance has it so; what it had not committed is gone."""
        owner = OWNER.get()
        rate = self._rates.crash * SELDOM.get(name, 1)
        if owner.startswith("worker") and self._world.random.random() < rate:
            self._world.happened(f"crash at {name}")
            self._world.kill(owner)
            raise Killed(name)

    def _ended(self, owner: str, task: "asyncio.Task[Any]") -> None:
        self._world.kill(owner)  # nothing of an ended process goes on
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, StoreError | Killed):
            self._crashes.append(f"process {owner} ended by {problem!r}")
