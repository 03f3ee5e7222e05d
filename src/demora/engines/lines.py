"""How a queue is served by a line, from what engines keep of it."""

from collections.abc import Collection

from ..core.job import Lane, Priority
from ..core.order import QueueOrder
from ..line import Arrangement


def arranged(queue: str, order: QueueOrder, held: Collection[int], *, paused: bool) -> Arrangement:
    """The arrangement of a queue; what its pace governs is in the lanes that are `held`."""
    offsets = tuple(None if lane in held else order.offset(lane, rank) for lane in Lane for rank in Priority)
    return Arrangement(queue, offsets, paused)
