"""The names of the line's keys. The keys of one queue share a hash tag, so that they live on one node of a cluster."""

from ...core.job import Lane, Priority

LANES = [(lane, rank) for lane in Lane for rank in Priority]


class Keys:
    """The keys of one database's line in one epoch.

    Each queue has a hash of its own, a sorted set of the jobs that were handed out, scored by when, and one sorted set for
    each lane and rank, scored by due time.
    """

    def __init__(self, database: str, epoch: int = 0) -> None:
        self._prefix, self._epoch = f"demora:{database}", epoch
        self.state = f"{self._prefix}:{{*}}:state"
        self.queues = f"{self._prefix}:{{*}}:queues"
        self.maintainer = f"{self._prefix}:{{*}}:maintainer"
        self.channel = f"{self._prefix}:notify"
        self._of: dict[str, list[str]] = {}

    def of(self, queue: str) -> list[str]:
        """Return all keys of a queue, in the order in which the scripts take them."""
        known = self._of.get(queue)
        if known is None:
            known = self._of[queue] = self.under(queue, self._epoch)
        return known

    def under(self, queue: str, epoch: int) -> list[str]:
        """Return the keys that a queue has, or had, in an epoch."""
        own = f"{self._prefix}:{{{queue}}}:{epoch}"
        return [own, f"{own}:out", *(f"{own}:{lane.name.lower()}.{rank.name.lower()}" for lane, rank in LANES)]


def number_of(lane: int, rank: int) -> int:
    """Return the index of a lane and rank's sorted set among the keys of its queue, counted from 1 as Lua does."""
    return 3 + lane * len(Priority) + rank
