"""Adding jobs in the caller's own transaction, by the same statements as everywhere else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

from ...core.job import Job, NewJob
from ...errors import Invalid
from ...store import Added, Topic
from . import additions, troubles, views
from .bells import Bells
from .connections import Place, Session
from .drivers import Borrowed
from .statements import Statement

Naming = Callable[[Set[str]], Awaitable[None]]


class Joined:
    """A transaction of the caller's, on a connection to `home`: the same server and database as the store's own.

    Queues are named outside of it, and stay named: until it ended, all others who add to a new queue would have to wait.
    """

    def __init__(
        self,
        borrowed: Borrowed,
        known: dict[str, Statement],
        *,
        wall_us: int | None,
        lined: bool,
        home: Place,
        name_queues: Naming,
        bells: Bells,
    ) -> None:
        self._borrowed, self._home, self._name_queues, self._bells = borrowed, home, name_queues, bells
        self._session = Session(_Connection(borrowed, known), known, wall_us, lined)

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Record jobs, to be there if the caller commits. With a conflict nothing is recorded and the transaction is as it
        was; what the database refuses is a `StoreError`, after which the caller has to roll back."""
        self._expect_its_thread()
        for job in jobs:
            job.payload.decode()  # what is no text fails before the transaction is touched
        with self._refusals():
            await self._expect_home()
            queues = {job.queue for job in jobs}
            await self._name_queues(queues)
            add = additions.add_plain if all(map(additions.is_plain, jobs)) else additions.add
            answers = await add(self._session, jobs, queues, set(), False)
            await self._bells.ring_at_commit(_topics(jobs, answers), self._session)
        return answers

    async def get(self, id: str) -> Job | None:
        with self._refusals():
            return await views.get(self._session, id)

    def _expect_its_thread(self) -> None:
        if self._borrowed.blocks and _runs_a_loop():
            raise Invalid(
                "within",
                "this connection would hold up the event loop of this thread: give an async connection here, or this one to "
                "app.blocking on another thread",
            )
        if not self._borrowed.blocks and not _runs_a_loop():
            raise Invalid("within", "this connection is async: await app.enqueue with it, on its own event loop")

    async def _expect_home(self) -> None:
        if await self._borrowed.commits_by_itself():
            raise Invalid(
                "within",
                "this connection is in no transaction and commits each statement by itself: begin a transaction on it first",
            )
        row = await self._session.row("place")
        if (row["server"], row["database"]) != self._home:
            raise Invalid(
                "within",
                f"this connection is to another database than the jobs are in ({row['name']!r} on its server): connect to "
                "that of DEMORA_DATABASE_URL, or enqueue without `within` once you have committed",
            )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except self._borrowed.errors as problem:
            raise troubles.refused_within(problem) from problem


class _Connection:
    """A borrowed connection, in the form that a session asks for."""

    backend = None

    def __init__(self, borrowed: Borrowed, known: dict[str, Statement]) -> None:
        self.fetch, self._known = borrowed.fetch, known

    def transaction(self) -> "_Savepoint":
        return _Savepoint(self, self._known)


class _Savepoint:
    """The part of the caller's transaction that can be undone alone."""

    def __init__(self, connection: _Connection, known: dict[str, Statement]) -> None:
        self._connection, self._known = connection, known

    async def start(self) -> None:
        await self._connection.fetch(self._known["savepoint"].sql)

    async def commit(self) -> None:
        await self._connection.fetch(self._known["release"].sql)

    async def rollback(self) -> None:
        await self._connection.fetch(self._known["unwind"].sql)
        await self.commit()


def _topics(jobs: Sequence[NewJob], answers: Sequence[Added]) -> set[Topic]:
    """Whom to wake at the commit: also for jobs that are no head of a line now, since nobody knows who will be by then."""
    if any(answer.conflict for answer in answers):
        return set()
    new = [job for job, answer in zip(jobs, answers, strict=True) if not (answer.replayed or answer.kept)]
    expiring = any(job.expires_at is not None or job.expires_in is not None for job in new)
    return ({Topic.READY} if new else set()) | ({Topic.EXPIRY} if expiring else set())


def _runs_a_loop() -> Any:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
