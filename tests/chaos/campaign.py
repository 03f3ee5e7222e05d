"""A campaign: several groups of worlds side by side, each world with its faults, then healed and judged."""

import asyncio
import random
import time
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos import tools
from tests.chaos.faults import FAULTS, OVERTAKEN, Fault, faked_clock
from tests.chaos.judging import Result
from tests.chaos.lines import LOST, LineServer
from tests.chaos.outages import CUTS, RESTARTS, Postgres
from tests.chaos.world import World

LIFE = {"sqlite": 30.0, "postgres": 60.0, "sqlite+line": 60.0, "postgres+line": 60.0}  # seconds of faults in one world
ROUND = 90.0  # seconds that the first round of all faults may take beyond the time that was given
BROAD = {"DEMORA_CONCURRENCY": "16"}  # so that workers keep up with several producers
KILLS, ZOMBIES, SCHEDULERS = "kill -9 of a worker in mid-job", OVERTAKEN, "kill -9 of a scheduler"
KINDS = {  # of worlds
    "sqlite": ("plain", "full", "clock"),
    "postgres": ("postgres",),
    "sqlite+line": ("lined",),
    "postgres+line": ("lined postgres",),
}
CROWDED = ("plain", "postgres", "lined", "lined postgres")  # where a scheduler of its own is kept alive
WORKERS = {"plain": 3, "full": 3, "clock": 2, "postgres": 2, "lined": 3, "lined postgres": 2}
PLAGUES = {"plain": 3, "full": 1, "clock": 1, "postgres": 3, "lined": 3, "lined postgres": 3}  # faults at a time


class Plan(msgspec.Struct, frozen=True):
    """What a campaign is to do: for so long, or until so many kills of workers and schedulers, zombies, restarts, cuts and
    losses of the line."""

    seed: int
    seconds: float = 0
    kills: int = 0
    zombies: int = 0
    restarts: int = 0
    cuts: int = 0
    flushes: int = 0
    schedulers: int = 0
    groups: int = 2
    in_turn: bool = False  # one group after the other, so that none takes the cores from another
    only: tuple[str, ...] = ()
    database: str = "sqlite"

    @property
    def goals(self) -> dict[str, tuple[str, int]]:
        """By the name of the fault: how its counts begin, and how many there are to be."""
        wanted = {"kill": (KILLS, self.kills), "zombie": (ZOMBIES, self.zombies)}
        wanted["kill-scheduler"] = (SCHEDULERS, self.schedulers)
        servers = {"server": (RESTARTS, self.restarts), "cut": (CUTS, self.cuts)}
        lines = {"flush": (LOST, self.flushes), "line-kill": (LOST, self.flushes)}
        return {fault: goal for fault, goal in {**wanted, **servers, **lines}.items() if goal[1]}


class Bag:
    """Deals faults evenly and in a different order each time; one that came to nothing is dealt again."""

    def __init__(self, faults: Iterable[Fault], chance: random.Random) -> None:
        self._faults, self._chance = list(faults), chance
        self._left: list[Fault] = []
        self._again: list[Fault] = []
        self.wanting = {fault.name for fault in self._faults}

    def draw(self) -> Fault:
        if self._again:
            return self._again.pop()
        if not self._left:
            self._left = self._chance.sample(self._faults, len(self._faults))
        return self._left.pop()

    def done(self, fault: Fault, *, came_about: bool) -> None:
        if came_about:
            self.wanting.discard(fault.name)
        elif fault.name in self.wanting:
            self._again.insert(0, fault)


class Campaign:
    """Lives through a plan in a folder. `result` is what is known so far."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self._folder, self._kinds = plan, folder, KINDS[plan.database]
        chance = random.Random(plan.seed)
        self._began = time.monotonic()
        self._worlds = 0
        self._alive: list[World] = []
        faults = [fault for fault in FAULTS if self._is_wanted(fault)]
        self.skipped = {fault.name: why for fault in faults if (why := tools.missing(fault.tool))}
        self._faults = [fault for fault in faults if fault.name not in self.skipped]
        self._bags = {kind: Bag((f for f in self._faults if kind in f.worlds), chance) for kind in self._kinds}
        self.result = Result()

    async def run(self) -> None:
        plain, *others = (kind if self._needed(kind) else None for kind in self._kinds)
        groups = [(plain,) if plain else ()] * self.plan.groups + [tuple(filter(None, others))]
        if not self.plan.in_turn:
            await _together(*(self._group(kinds) for kinds in groups if kinds))
            return
        for kinds in filter(None, groups):
            self._began = time.monotonic()
            await self._group(kinds)

    @property
    def never(self) -> list[str]:
        """The faults that did not come about at all."""
        return [] if self.plan.goals else sorted({name for kind in self._kinds for name in self._wanting(kind)})

    def total(self, fault: str) -> int:
        """How often something came about whose name begins like this."""
        fired = [self.result.fired, *(world.fired for world in self._alive)]
        alive = sum(world.watch.kills_in_mid_job() for world in self._alive) if fault == KILLS else 0
        return alive + sum(count for one in fired for name, count in one.items() if name.startswith(fault))

    def _is_wanted(self, fault: Fault) -> bool:
        if not any(kind in fault.worlds for kind in self._kinds):
            return False
        if self.plan.goals:
            return fault.name in self.plan.goals
        return not self.plan.only or any(fault.name.startswith(one) for one in self.plan.only)

    def _needed(self, kind: str) -> set[str]:
        """The faults that need this kind of world."""
        return {fault.name for fault in self._faults if next(one for one in fault.worlds if one in self._kinds) == kind}

    def _wanting(self, kind: str) -> set[str]:
        return self._bags[kind].wanting & self._needed(kind)

    async def _group(self, kinds: tuple[str, ...]) -> None:
        """One world after the other until the plan is fulfilled; of several kinds each has its turn."""
        turn = 0
        while turn < len(kinds) or not self._fulfilled(time.monotonic() + 5):
            await self._live(kinds[turn % len(kinds)], self._life(len(kinds)))
            turn += 1
        for kind in kinds:
            if self._wanting(kind) and not self.plan.goals:  # the last world of its kind did not know that it was
                await self._live(kind, self._life(len(kinds)))

    def _life(self, kinds: int) -> float:
        longest = LIFE[self.plan.database]
        return longest if self.plan.goals else min(longest, max(self.plan.seconds - self._age(), 6) / kinds)

    def _age(self) -> float:
        return time.monotonic() - self._began

    def _fulfilled(self, at: float) -> bool:
        if self.plan.goals:
            return all(self.total(counted) >= number for counted, number in self.plan.goals.values())
        return at - self._began > self.plan.seconds

    async def _live(self, kind: str, seconds: float) -> None:
        self._worlds += 1
        number = self._worlds
        with ExitStack() as stack:
            world = self._make(kind, number, stack)
            async with world.alive():
                self._alive.append(world)
                try:
                    await self._trouble(world, kind, time.monotonic() + seconds)
                    await world.heal()
                    result = await world.judge()
                finally:
                    self._alive.remove(world)
                self.result.add(result)

    def _make(self, kind: str, number: int, stack: ExitStack) -> World:
        folder = self._folder / f"{number}-{kind}"
        folder.mkdir()
        disk, environment = None, {}
        if kind == "full":
            disk = folder / "disk"
            disk.mkdir()
            stack.enter_context(tools.small_disk(disk))
        elif kind == "clock":
            environment = faked_clock(self._folder, folder)
        elif self.plan.flushes:
            environment = BROAD
        servers = {
            "postgres": Postgres() if "postgres" in kind else None,
            "line": LineServer() if "lined" in kind else None,
        }
        seed = f"{self.plan.seed} {number}"
        world = World(f"world {number}, {kind}", folder, seed, disk=disk, **servers, **environment)
        workers = 4 if self.plan.kills or self.plan.zombies else WORKERS[kind]
        producers = 3 if self.plan.flushes else 1
        world.wanted.update({"worker": workers, "producer": producers, "service": int(kind not in ("full", "clock"))})
        world.wanted["scheduler"] = 4 if self.plan.schedulers else int(kind in CROWDED)
        return world

    async def _trouble(self, world: World, kind: str, until: float) -> None:
        if self.plan.goals:
            await _together(*(self._repeat(world, fault, *goal, until) for fault, goal in self.plan.goals.items()))
        else:
            await _together(*(self._plague(world, kind, until) for _ in range(PLAGUES[kind])))

    async def _repeat(self, world: World, name: str, counted: str, number: int, until: float) -> None:
        fault = next(fault for fault in FAULTS if fault.name == name)
        while self.total(counted) < number and time.monotonic() < until:
            await fault.do(world)
            await asyncio.sleep(world.chance.random() * 0.05)

    async def _plague(self, world: World, kind: str, until: float) -> None:
        """Fault after fault until the time is up; in the last world of a kind until each came about once."""
        bag, latest = self._bags[kind], until + ROUND
        while time.monotonic() < until or (self._wanting(kind) and time.monotonic() < latest and self._fulfilled(until + 1)):
            fault = bag.draw()
            bag.done(fault, came_about=await fault.do(world))
            await asyncio.sleep(world.chance.random() * 0.3)


async def _together(*tasks: Coroutine[Any, Any, None]) -> None:
    """If one fails, the others end too."""
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task)
