"""The verbs on many jobs: retry, delete, cancel and purge all jobs that match a filter.

Each verb finds the jobs page by page and writes each page in a transaction of its own, so that no other writer waits long
for the database. A verb that is interrupted has done its last whole page; calling it again continues from there.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ..core.request import check_cursor, check_queue, check_status, check_tag, check_type
from ..core.spans import span
from ..core.states import ENDED, RETRYABLE, WAITING, Status
from ..errors import Invalid
from ..store.jobs import Answer, Query
from ..store.store import Store

FIELDS = ("payload", "result")  # the fields of a found job that a caller can leave out
BATCH = 100  # jobs per transaction; about so many hold the lock of a database for milliseconds
_DEAD = frozenset({Status.FAILED})


class BulkResult(msgspec.Struct, frozen=True):
    """The progress of a verb on many jobs.

    `matched` jobs were found, `done` is how many the verb changed, and `skipped` is how many had changed their state before
    the verb reached them. `more` is True if the limit ended the verb while further jobs matched.
    """

    matched: int = 0
    done: int = 0
    skipped: int = 0
    more: bool = False


OnProgress = Callable[[BulkResult], None]
Verb = Callable[[Sequence[str]], Awaitable[list[Answer]]]


class Bulk:
    """The verbs on many jobs of one store.

    Filters are those of `Client.find`: `status`, `queue`, `type`, `tag` and `older_than`. With `dry_run` a verb counts the
    jobs that match and writes nothing. `on_progress` is called with the result so far after each batch.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def retry_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, on_progress: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Retry all dead letters that match, or CANCELLED jobs if `status` says so. With `dry_run` only count them."""
        query = _query_for("retry", RETRYABLE, _DEAD, **filters)
        return await self._on_each(query, _unless(dry_run, self._store.retry), limit=limit, on_progress=on_progress)

    async def delete_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, on_progress: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Delete all dead letters that match, or other ended jobs if `status` says so. With `dry_run` only count them."""
        query = _query_for("delete", ENDED, _DEAD, **filters)
        return await self._on_each(query, _unless(dry_run, self._store.remove), limit=limit, on_progress=on_progress)

    async def cancel_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, on_progress: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Cancel all waiting jobs that match. With `dry_run` only count them.

        If a worker claims one of them in the meantime, the request to cancel it is recorded, as `Client.cancel` does.
        """
        query = _query_for("cancel", WAITING, WAITING, **filters)
        return await self._on_each(query, _unless(dry_run, self._store.cancel), limit=limit, on_progress=on_progress)

    async def purge(
        self,
        status: Status | str,
        *,
        older_than: timedelta | str,
        queue: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> BulkResult:
        """Delete all jobs that ended with this status at least so long ago, and all idempotency keys that have expired."""
        query = _query_for("purge", ENDED, ENDED, status=[status], older_than=older_than, queue=queue)
        if dry_run:
            return await self._on_each(query, None, on_progress=on_progress)
        [ended], done, result = query.statuses, BATCH, BulkResult()
        age = span(older_than, "olderThan")
        while done == BATCH:
            done = await self._store.purge(ended, older_than=age, limit=BATCH, queue=query.queue)
            result = BulkResult(result.matched + done, result.done + done)
            if on_progress is not None:
                on_progress(result)
        return result

    async def _on_each(
        self, query: Query, verb: Verb | None, *, limit: int | None = None, on_progress: OnProgress | None = None
    ) -> BulkResult:
        """Apply `verb` to the jobs that match, newest first and each at most once, and count. Without a verb only count.

        A job is left alone if it comes to match after its page was read.
        """
        if limit is not None and limit < 1:
            raise Invalid("limit", "must be at least 1")
        result, after = BulkResult(), query.after
        query = msgspec.structs.replace(query, payload=False, result=False)
        while True:
            size = BATCH if limit is None else min(BATCH, limit - result.matched)
            page = await self._store.find(msgspec.structs.replace(query, after=after, limit=size))
            answers = await verb([job.id for job in page.jobs]) if verb and page.jobs else []
            result = _counted(result, len(page.jobs), answers)
            finished = page.next is None or result.matched == limit
            if finished:
                result = msgspec.structs.replace(result, more=page.next is not None)
            if on_progress is not None:
                on_progress(result)
            if finished:
                return result
            after = page.next


def check_query(
    *,
    status: Iterable[Status | str] | Status | str = (),
    queue: str | None = None,
    type: str | None = None,
    tag: str | None = None,
    older_than: timedelta | str | None = None,
    after: str | None = None,
    limit: int = BATCH,
    fields: Iterable[str] = FIELDS,
    most_bytes: int | None = None,
    within: timedelta | None = None,
) -> Query:
    """Return the query for these filters. `Invalid` names the first filter that is malformed."""
    wanted = _check_fields(fields)
    return Query(
        statuses=frozenset(check_status(one) for one in ((status,) if isinstance(status, Status | str) else status)),
        queue=None if queue is None else check_queue(queue),
        type=None if type is None else check_type(type),
        tag=None if tag is None else check_tag(tag),
        older_than=None if older_than is None else span(older_than, "older_than"),
        after=None if after is None else check_cursor(after),
        limit=limit,
        payload="payload" in wanted,
        result="result" in wanted,
        bytes=most_bytes,
        within=within,
    )


def _check_fields(fields: Iterable[str]) -> frozenset[str]:
    wanted = frozenset((fields,) if isinstance(fields, str) else fields)
    if unknown := sorted(wanted - set(FIELDS)):
        raise Invalid("fields", f"{unknown[0][:100]!r} is not one of {' and '.join(FIELDS)}")
    return wanted


def _query_for(verb: str, allowed: frozenset[Status], default: frozenset[Status], **filters: Any) -> Query:
    """Return the query of a verb that takes jobs in the `allowed` states. Without a status filter it takes the `default`."""
    query = check_query(**filters)
    if not query.statuses <= allowed:
        raise Invalid("status", f"{verb} takes jobs that are {' or '.join(status.name for status in sorted(allowed))}")
    return query if query.statuses else msgspec.structs.replace(query, statuses=default)


def _unless(dry_run: bool, verb: Verb) -> Verb | None:
    return None if dry_run else verb


def _counted(result: BulkResult, found: int, answers: Sequence[Answer]) -> BulkResult:
    done = sum(answer.did for answer in answers)
    return BulkResult(result.matched + found, result.done + done, result.skipped + len(answers) - done)
