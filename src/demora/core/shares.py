"""How a worker that serves several queues divides itself among them."""

from collections.abc import Mapping, Sequence

MOST_WEIGHT = 1000


def turn(weights: Mapping[str, int], drawn: Sequence[float]) -> list[str]:
    """The queues in the order to be asked this time: each comes first as often as its weight is of all weights.

    `drawn` has a random number from [0, 1) for each queue.
    """
    luck = {queue: (1.0 - number) ** (1.0 / weight) for (queue, weight), number in zip(weights.items(), drawn, strict=True)}
    return sorted(weights, key=lambda queue: luck[queue], reverse=True)
