"""Draws a different mix of faults for each seed, lets them happen, and then heals everything."""

import asyncio
import random
from collections.abc import Callable

from tests.sim.faults import Rates
from tests.sim.world import World


class Nemesis:
    """Kills, stops and continues processes, steps the clock, and sets how often stores fail and notifications are lost."""

    def __init__(self, world: World, rates: Rates, start_worker: Callable[[], str]) -> None:
        self._world, self._rates, self._start_worker = world, rates, start_worker
        self._chance: random.Random = world.random
        self.workers: list[str] = []
        self._stopped: list[str] = []
        deeds = (self._kill, self._stop, self._stop, self._step_clock, self._restart)
        self._deeds = [deed for deed in deeds if self._chance.random() < 0.6] or [self._kill]

    async def run(self) -> None:
        """Make trouble until cancelled."""
        self._choose_rates()
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / 4))
            self._chance.choice(self._deeds)()

    def heal(self, number: int) -> None:
        """No more faults; every process that was stopped goes on, and enough workers live."""
        for name in Rates.__struct_fields__:
            if name != "longest_delay":
                setattr(self._rates, name, 0.0)
        self._world.lost_notifications = 0.0
        for worker in list(self._stopped):
            self._continue_one(worker)
        while len(self._living()) < number:
            self.start()

    def start(self) -> None:
        self.workers.append(self._start_worker())

    def _choose_rates(self) -> None:
        for name in ("before", "after", "delay", "busy"):
            if self._chance.random() < 0.6:
                setattr(self._rates, name, self._chance.choice((0.005, 0.02, 0.1)))
        if self._chance.random() < 0.5:
            self._rates.crash = self._chance.choice((0.001, 0.01))
        if self._chance.random() < 0.5:
            self._world.lost_notifications = self._chance.choice((0.05, 0.5, 1.0))

    def _living(self) -> list[str]:
        return [worker for worker in self.workers if self._world.loop.alive(worker)]

    def _kill(self) -> None:
        if living := self._living():
            victim = self._chance.choice(living)
            self._world.kill(victim)
            self._world.happened("worker killed")
            self._stopped = [worker for worker in self._stopped if worker != victim]
        if self._chance.random() < 0.8 or not self._living():
            self.start()

    def _stop(self) -> None:
        running = [worker for worker in self._living() if worker not in self._stopped]
        if running:
            victim = self._chance.choice(running)
            self._world.loop.pause(victim)
            self._stopped.append(victim)
            self._world.happened("worker stopped")
            self._world.loop.call_later(self._chance.uniform(0.5, 15), self._continue_one, victim)

    def _continue_one(self, worker: str) -> None:
        if worker in self._stopped:
            self._stopped.remove(worker)
            self._world.loop.resume(worker)
            self._world.happened("worker continued")

    def _step_clock(self) -> None:
        self._world.clock.stepped += self._chance.choice((-5_000, -1_000, 300, 5_000, 60_000))
        self._world.happened("clock stepped")

    def _restart(self) -> None:
        """SIGTERM to a worker and another one in its place."""
        running = [worker for worker in self._living() if worker not in self._stopped]
        if running:
            self._world.terminate(self._chance.choice(running))
            self._world.happened("worker restarted")
        self.start()
