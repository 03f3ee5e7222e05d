"""How a worker that serves several queues chooses among them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..errors import Invalid
from .own import OWN_QUEUES
from .request import check_queue

MOST_WEIGHT = 1000


class QueueShares:
    """The queues of one worker: all of them, or some, which it serves as one, strictly in order, or by weight. Refuses
    contradictions, such as a queue that is named twice."""

    def __init__(self, queues: Sequence[str] | Mapping[str, int] | None, *, strict: bool = False) -> None:
        self.queues = None if queues is None else _names(queues)
        self._weights = queues if isinstance(queues, Mapping) else None
        self.in_turn = strict or self._weights is not None
        _refuse(self.queues, self._weights, strict)

    def turn(self, chance: Callable[[], float]) -> tuple[str, ...] | None:
        """Return the queues in the order for the next claim. By weight, each queue comes first in proportion to its weight.
        Every worker also serves demora's own queues: with a weight of 1, or, strictly in order, after all others."""
        if self.queues is None:
            return None
        queues = (*self.queues, *(own for own in OWN_QUEUES if own not in self.queues))
        if self._weights is None:
            return queues
        luck = {queue: (1.0 - chance()) ** (1.0 / self._weights.get(queue, 1)) for queue in queues}
        return tuple(sorted(queues, key=lambda queue: luck[queue], reverse=True))

    def __str__(self) -> str:
        if self._weights is not None:
            return ",".join(f"{queue}={weight}" for queue, weight in self._weights.items())
        return "all" if self.queues is None else (" then " if self.in_turn else ",").join(self.queues)


def _names(queues: Sequence[str] | Mapping[str, int]) -> tuple[str, ...]:
    if isinstance(queues, str) or not isinstance(queues, Iterable):
        raise Invalid("queues", f"must be a list of names, or names with weights, not {type(queues).__name__}")
    return tuple(check_queue(queue, "queues") for queue in queues)


def _refuse(queues: Sequence[str] | None, weights: Mapping[str, int] | None, strict: bool) -> None:
    if queues is not None and (not queues or len(set(queues)) < len(queues)):
        raise Invalid("queues", "name at least one queue, and each only once")
    if not isinstance(strict, bool):
        raise Invalid("strict", "must be true or false")
    if strict and (queues is None or weights is not None):
        raise Invalid("strict", "serves queues in the order in which they are named; name them, without weights")
    for queue, weight in (weights or {}).items():
        if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MOST_WEIGHT:
            raise Invalid("queues", f"the weight of {queue} must be a whole number from 1 to {MOST_WEIGHT}")
