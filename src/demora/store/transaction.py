"""A small port beside the store: adding jobs in a transaction that belongs to the caller.

Only an engine whose database the application may use as well can do it, so it stays out of `Store`.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ..core.job import Job, NewJob
from .jobs import Added


class CallerTransaction(Protocol):
    """The caller's transaction, joined. It is never committed, rolled back or closed from here.

    On a connection that blocks nothing is ever awaited, and it must be asked where no event loop runs.
    """

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Record new jobs as `Store.add` does; they are there, and sleepers are woken, if and when the caller commits."""
        ...

    async def get(self, id: str) -> Job | None:
        """The job as this transaction sees it."""
        ...


@runtime_checkable
class Transactional(Protocol):
    """An engine that can join transactions."""

    def within(self, connection: Any) -> CallerTransaction:
        """The transaction that a connection of the caller's is in, or is about to begin; `Invalid` if it is no connection
        that can be joined. Asks the connection nothing yet."""
        ...
