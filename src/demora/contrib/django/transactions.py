"""Jobs that wait for the commit of a transaction of Django, also in tests that never commit."""

from collections.abc import Callable
from typing import Any


def in_transaction(connection: Any, *, in_test: bool) -> bool:
    """Whether a connection is inside `atomic`. The blocks that `TestCase` puts around a test do not count in a test."""
    if not in_test:
        return bool(connection.in_atomic_block)
    return any(not block._from_testcase for block in connection.atomic_blocks)


class AfterCommit:
    """Stores a job once: when Django calls this after a commit, or in a test when the tested code has left its blocks."""

    def __init__(self, connection: Any, store: Callable[[], None]) -> None:
        self._connection, self._store, self._done = connection, store, False

    def __call__(self) -> None:
        if not self._done:
            self._done = True
            self._store()

    def store_in_test(self) -> bool:
        """Store the job if the tested code has left its transaction, unless it was rolled back. Returns whether it has."""
        if in_transaction(self._connection, in_test=True):
            return False
        if any(callback is self for _, callback, *_ in self._connection.run_on_commit):
            self()
        return True
