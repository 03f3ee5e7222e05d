"""The port for adding jobs in a transaction of the caller.

It is optional: only an engine whose database the application can use itself offers it.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ..core.job import Job, NewJob
from .jobs import Added


class CallerTransaction(Protocol):
    """A transaction of the caller. demora never commits it, rolls it back or closes it.

    On a blocking connection its verbs never suspend, and must be called on a thread that runs no event loop.
    """

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Add jobs as `Store.add` does. The jobs exist, and waiters are woken, if and when the caller commits."""
        ...

    async def get(self, id: str) -> Job | None:
        """Return the job as this transaction sees it, None if no job has this id."""
        ...


@runtime_checkable
class Transactional(Protocol):
    """An engine that can join transactions of the caller."""

    def within(self, connection: Any) -> CallerTransaction:
        """Return the transaction that a connection of the caller is in or is about to begin. Does no I/O.

        `Invalid` if demora cannot use this kind of connection.
        """
        ...
