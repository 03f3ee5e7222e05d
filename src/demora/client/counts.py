"""Counts: how many jobs there are in each state, and what the dead letters have in common.

Counting reads the whole index of waiting jobs, so callers share one count.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from ..core.spans import say
from ..store.diagnostics import AGES, DeadLetterGroup
from ..store.jobs import Queue
from ..store.store import Store
from .shared import Shared

MOST_QUEUES = 1000  # named in the answer: those with the most jobs
MOST_DEAD_LETTERS = 100_000  # that are read, newest first
MOST_NAMES = 100  # in each list, those with the most dead letters


class JobCounts(msgspec.Struct, frozen=True):
    """The number of jobs that are ready, delayed, running (`processing`) and FAILED (`dead`)."""

    ready: int = 0
    delayed: int = 0
    processing: int = 0
    dead: int = 0


class Stats(msgspec.Struct, frozen=True):
    """The counts of all queues together, and of each. `more_queues` says how many queues are left out of `queues`."""

    total: JobCounts
    queues: dict[str, JobCounts]
    more_queues: int
    counted_at: datetime


class DeadLetterCount(msgspec.Struct, frozen=True):
    """The dead letters with one thing in common: its name, their number, the first and the last failure, and the id of the
    newest of them."""

    name: str
    jobs: int
    first_at: datetime
    last_at: datetime
    sample_id: str


class DeadLetterStats(msgspec.Struct, frozen=True):
    """The dead letters by type, error class, queue and age. Those that failed within the last hour, day and week are in
    `by_age`, each in the shortest of these spans. `complete` is False if there are more than 100,000: then only the newest
    are counted."""

    jobs: int
    complete: bool
    by_type: list[DeadLetterCount]
    by_error: list[DeadLetterCount]
    by_queue: list[DeadLetterCount]
    by_age: list[DeadLetterCount]


class FailureGroup(msgspec.Struct, frozen=True):
    """The dead letters of one type and error class. `by_age` has their numbers by age: within the last hour, day and week,
    and older. `first_at` and `last_at` are the first and the last failure, and `sample_id` is the newest job."""

    type: str
    error: str
    queues: tuple[str, ...]
    jobs: int
    by_age: tuple[int, ...]
    first_at: datetime
    last_at: datetime
    sample_id: str


class Counts:
    """Counts the jobs of one store, for all callers on this event loop together: one count at a time."""

    def __init__(self, store: Store) -> None:
        self._store, self._stats = store, Shared(self._count)

    async def stats(self, *, fresh: bool = False) -> Stats:
        """Return how many jobs there are in each state. `counted_at` says when they were counted: at most a second ago, or
        20 times as long ago as counting takes. With `fresh` they are counted after this call began."""
        return await self._stats.get(fresh=fresh)

    async def dead_letter_stats(self, *, within: timedelta | None = None) -> DeadLetterStats:
        """Count the dead letters by what they have in common. With a time limit, `within`, a slow count raises
        `SearchTooSlow`."""
        groups = await self._store.diagnostics.dead_letters(MOST_DEAD_LETTERS, within=within)
        jobs, bands = sum(group.jobs for group in groups), [*(f"within {say(age)}" for age in AGES), "older"]
        return DeadLetterStats(
            jobs,
            jobs < MOST_DEAD_LETTERS,
            _largest(groups, lambda group: group.type),
            _largest(groups, lambda group: group.error),
            _largest(groups, lambda group: group.queue),
            sorted(_joined(groups, lambda group: bands[group.band]), key=lambda count: bands.index(count.name)),
        )

    async def failure_groups(self, *, within: timedelta | None = None) -> list[FailureGroup]:
        """Return the dead letters by type and error class, the largest groups first. Of more than 100,000 dead letters only
        the newest are counted. With a time limit, `within`, a slow count raises `SearchTooSlow`."""
        found = defaultdict[tuple[str, str], list[DeadLetterGroup]](list)
        for group in await self._store.diagnostics.dead_letters(MOST_DEAD_LETTERS, within=within):
            found[group.type, group.error].append(group)
        groups = [_failure_group(type, error, parts) for (type, error), parts in found.items()]
        return sorted(groups, key=lambda group: (-group.jobs, group.type, group.error))[:MOST_NAMES]

    async def _count(self) -> Stats:
        counted_at = datetime.now(UTC)
        return summarise(await self._store.queues(), counted_at)


def summarise(queues: list[Queue], counted_at: datetime) -> Stats:
    """Return the counts of all queues together, and those of the queues with the most jobs."""
    counts = {queue.name: JobCounts(queue.ready, queue.delayed, queue.processing, queue.dead) for queue in queues}
    largest = sorted(counts, key=lambda name: (-sum(msgspec.structs.astuple(counts[name])), name))[:MOST_QUEUES]
    columns = zip(*(msgspec.structs.astuple(one) for one in counts.values()), strict=True)
    shown = {name: counts[name] for name in sorted(largest)}
    return Stats(JobCounts(*map(sum, columns)), shown, len(counts) - len(shown), counted_at)


def _failure_group(type: str, error: str, parts: Sequence[DeadLetterGroup]) -> FailureGroup:
    return FailureGroup(
        type=type,
        error=error,
        queues=tuple(sorted({part.queue for part in parts})),
        jobs=sum(part.jobs for part in parts),
        by_age=tuple(sum(part.jobs for part in parts if part.band == band) for band in range(len(AGES) + 1)),
        first_at=min(part.first_at for part in parts),
        last_at=max(part.last_at for part in parts),
        sample_id=max(part.sample_id for part in parts),
    )


def _largest(groups: Sequence[DeadLetterGroup], name: Callable[[DeadLetterGroup], str]) -> list[DeadLetterCount]:
    return sorted(_joined(groups, name), key=lambda count: (-count.jobs, count.name))[:MOST_NAMES]


def _joined(groups: Iterable[DeadLetterGroup], name: Callable[[DeadLetterGroup], str]) -> list[DeadLetterCount]:
    named = defaultdict[str, list[DeadLetterGroup]](list)
    for group in groups:
        named[name(group)].append(group)
    return [
        DeadLetterCount(
            name=one,
            jobs=sum(group.jobs for group in found),
            first_at=min(group.first_at for group in found),
            last_at=max(group.last_at for group in found),
            sample_id=max(group.sample_id for group in found),
        )
        for one, found in named.items()
    ]
