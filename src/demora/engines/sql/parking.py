"""Which types of parked jobs no live worker knows, and for how long."""

from collections.abc import Iterable, Sequence

import msgspec

from ...core.spans import span_ms
from ...core.verdict import NO_HANDLER_GRACE
from ...store.jobs import WorkerRecord
from ...store.occupancy import knows_type, serves

GRACE = span_ms(NO_HANDLER_GRACE)


class ParkedType(msgspec.Struct, frozen=True):
    """A type that claims have parked jobs of in a queue. `unknown_since` is None while a live worker there knows it, or none
    is there."""

    type: str
    queue: str
    unknown_since: int | None


class Judged(msgspec.Struct, frozen=True):
    """What the workers of today mean for the parked types: those whose `unknown_since` has changed, those to forget because
    every worker knows them, and those that are unknown."""

    changed: list[ParkedType]
    forgotten: list[ParkedType]
    unknown: list[ParkedType]


def judge(parked: Iterable[ParkedType], workers: Sequence[WorkerRecord], wall: int) -> Judged:
    """Compare the parked types with the types that live workers know."""
    live = [worker for worker in workers if worker.live]
    judged = Judged([], [], [])
    for one in parked:
        known = knows_type(live, one.queue, one.type)
        since = None if known is not False else one.unknown_since if one.unknown_since is not None else wall
        now = msgspec.structs.replace(one, unknown_since=since)
        if now != one:
            judged.changed.append(now)
        if known is False:
            judged.unknown.append(now)
        if known and all(one.type in worker.types for worker in live if serves(worker, one.queue)):
            judged.forgotten.append(one)
    return judged
