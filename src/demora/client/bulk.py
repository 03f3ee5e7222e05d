"""One verb on many jobs: found by a query, page by page, a small batch to a transaction, so that nobody waits long."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

import msgspec

from ..core.request import check_cursor, check_queue, check_status, check_tag, check_type
from ..core.spans import span
from ..core.states import Status
from ..errors import Invalid
from ..store.jobs import Answer, Query, Store

FIELDS = ("payload", "result")  # that can be left out of found jobs
BATCH = 100  # jobs; a transaction about so many holds the lock of a database for milliseconds


class BulkResult(msgspec.Struct, frozen=True):
    """How far a verb has come: jobs that matched, those it was done to, and those that had moved on before it came to them.

    `more` says that a limit ended it.
    """

    matched: int = 0
    done: int = 0
    skipped: int = 0
    more: bool = False


OnProgress = Callable[[BulkResult], None]
Verb = Callable[[Sequence[str]], Awaitable[list[Answer]]]


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
    """The query that these filters mean; `Invalid` names the one that means nothing."""
    wanted = check_fields(fields)
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


def check_fields(fields: Iterable[str]) -> frozenset[str]:
    """The fields to read besides those that every found job has."""
    wanted = frozenset((fields,) if isinstance(fields, str) else fields)
    if unknown := sorted(wanted - set(FIELDS)):
        raise Invalid("fields", f"{unknown[0][:100]!r} is not one of {' and '.join(FIELDS)}")
    return wanted


async def on_each(
    store: Store, query: Query, *, verb: Verb | None, limit: int | None = None, told: OnProgress | None = None
) -> BulkResult:
    """Do `verb` to the jobs that match, newest first and each at most once, and count; without a verb only count.

    Jobs that come to match later than the page they would stand on was read are left alone. `told` hears after each batch.
    """
    if limit is not None and limit < 1:
        raise Invalid("limit", "must be at least 1")
    tally, after = BulkResult(), query.after
    query = msgspec.structs.replace(query, payload=False, result=False)
    while True:
        size = BATCH if limit is None else min(BATCH, limit - tally.matched)
        page = await store.find(msgspec.structs.replace(query, after=after, limit=size))
        tally = _counted(tally, len(page.jobs), await verb([job.id for job in page.jobs]) if verb and page.jobs else None)
        ended = page.next is None or tally.matched == limit
        if ended:
            tally = msgspec.structs.replace(tally, more=page.next is not None)
        if told is not None:
            told(tally)
        if ended:
            return tally
        after = page.next


def _counted(tally: BulkResult, found: int, answers: Sequence[Answer] | None) -> BulkResult:
    done = 0 if answers is None else sum(answer.did for answer in answers)
    skipped = 0 if answers is None else len(answers) - done
    return BulkResult(tally.matched + found, tally.done + done, tally.skipped + skipped)
