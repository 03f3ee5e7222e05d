"""A store that fails: before a call is carried out, after it was committed, late, or busy."""

import asyncio
import random
from typing import Any

import msgspec

from demora.engines.sqlite import SqliteStore
from demora.errors import StoreBusy, StoreError
from tests.sim.world import World


class Rates(msgspec.Struct):
    """How likely each fault is for one call."""

    before: float = 0.0
    after: float = 0.0
    delay: float = 0.0
    busy: float = 0.0
    crash: float = 0.0
    latency: float = 0.0  # seconds that each call takes at most, which is no fault
    longest_delay: float = 2.0


class Unknown(StoreError):
    """The call may have been carried out."""


class FaultyStore:
    """Does what a real store does, except when chance has it otherwise."""

    def __init__(self, world: World, store: SqliteStore, rates: Rates) -> None:
        self._world, self._store, self._rates = world, store, rates

    def sibling(self) -> None:
        return None

    def subscribe(self, topic: Any) -> Any:
        return self._store.subscribe(topic)

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._store, verb)
        if verb in PARTS:
            return FaultyPart(self, call)

        async def faulty(*args: Any, **options: Any) -> Any:
            return await self._with_faults(verb, call, args, options)

        return faulty

    async def _with_faults(self, verb: str, call: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        chance: random.Random = self._world.random
        if self._rates.latency:
            await asyncio.sleep(chance.random() * self._rates.latency)
        if chance.random() < self._rates.delay:
            self._world.happened(f"{verb} late")
            await asyncio.sleep(chance.random() * self._rates.longest_delay)
        if chance.random() < self._rates.busy:
            self._world.happened(f"{verb} busy")
            raise StoreBusy("simulated: busy")
        if chance.random() < self._rates.before:
            self._world.happened(f"{verb} failed before")
            raise StoreError("simulated: failed before")
        answer = await call(*args, **options)
        if chance.random() < self._rates.after:
            self._world.happened(f"{verb} failed after")
            raise Unknown("simulated: failed after commit")
        return answer


PARTS = frozenset(
    {"paces", "schedules", "api_keys", "webhooks", "events", "statistics", "diagnostics", "audit", "line_feed"}
)
AT_ONCE = frozenset({"wall_us", "on_unplaced", "notes"})  # verbs that do no I/O


class FaultyPart:
    """A part of a faulty store. A verb that does no I/O does not fail."""

    def __init__(self, store: FaultyStore, part: Any) -> None:
        self._faulty, self._part = store, part

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._part, verb)
        if verb in AT_ONCE:
            return call

        async def faulty(*args: Any, **options: Any) -> Any:
            return await self._faulty._with_faults(verb, call, args, options)

        return faulty
