"""How the keys of a line are named. Those of one queue share a hash tag, so that they live on one node of a cluster."""

from ...core.job import Lane, Priority

LANES = [(lane, rank) for lane in Lane for rank in Priority]


class Keys:
    """The keys of one database's line under one number.

    For each queue: a hash of its own, a sorted set of what was handed out, and one for each lane and rank, scored by due
    time.
    """

    def __init__(self, database: str, epoch: int = 0) -> None:
        self._prefix, self._epoch = f"demora:{database}", epoch
        self.state = f"{self._prefix}:{{*}}:state"
        self.queues = f"{self._prefix}:{{*}}:queues"
        self.tender = f"{self._prefix}:{{*}}:tender"
        self.bell = f"{self._prefix}:bell"
        self._of: dict[str, list[str]] = {}

    def of(self, queue: str) -> list[str]:
        """All keys of a queue, in the order that the scripts take them."""
        known = self._of.get(queue)
        if known is None:
            known = self._of[queue] = self.under(queue, self._epoch)
        return known

    def under(self, queue: str, epoch: int) -> list[str]:
        """The keys that a queue has, or had, under a number."""
        own = f"{self._prefix}:{{{queue}}}:{epoch}"
        return [own, f"{own}:out", *(f"{own}:{lane.name.lower()}.{rank.name.lower()}" for lane, rank in LANES)]


def number_of(lane: int, rank: int) -> int:
    """Where the sorted set of a lane and rank is among the keys of its queue, counted from 1 as Lua does."""
    return 3 + lane * len(Priority) + rank
