"""A small port beside the store: how a line agrees with the rows behind it, for those who look after both."""

from typing import Protocol, runtime_checkable

import msgspec


class Comparison(msgspec.Struct, frozen=True):
    """How rows and line agree, by ids: jobs that wait within the horizon and stand nowhere in the line; entries in the line
    whose job does not wait; and jobs that stand elsewhere than their row says, or twice. What was moving while it was looked
    at is not told. `away` says why there was no line to compare with."""

    waiting: int = 0
    missing: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()
    repaired: bool = False
    away: str | None = None

    @property
    def agrees(self) -> bool:
        return not (self.missing or self.strays or self.misplaced)


@runtime_checkable
class Reconciled(Protocol):
    """A store with a line."""

    async def compare(self, *, repair: bool = False) -> Comparison:
        """Hold the line to the rows; with `repair` bring it in step where it is not."""
        ...

    async def rebuild(self) -> int:
        """Begin the line anew and fill it from the rows; answers with the number that it goes by from now on. `LineAway` if
        it cannot be reached."""
        ...
