"""The verbs on many jobs: retry, delete, cancel and purge all jobs that match a filter.

Each verb finds the jobs page by page and writes each page in a transaction of its own, so that no other writer waits long
for the database. A verb that is interrupted has done its last whole page; calling it again continues from there.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypedDict

import msgspec

from ..core.action import OWN_QUEUES, Action, ActionProgress, means_own
from ..core.filters import NO_FILTER, JobFilter, Sort, parse_filter, sort_of
from ..core.job import Job, expires_before
from ..core.request import check_cursor, check_status, check_tag
from ..core.spans import MILLISECOND, span
from ..core.states import Status
from ..errors import Invalid
from ..store.jobs import Answer, Change, Page, Query
from ..store.store import Store

FIELDS = ("payload", "result")  # the fields of a found job that a caller can leave out
BATCH = 100  # jobs per transaction; about so many hold the lock of a database for milliseconds
USUAL_PAGE = 50  # jobs on a page that a caller asks for
PICKED = 10  # jobs per page if the caller names them: a person watches the progress


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
Alteration = Callable[[int], Change]  # what an action changes in the nth job that matches
Numbered = Sequence[tuple[int, Job]]
Act = Callable[[Numbered], Awaitable[list[Answer]]]
Pages = Callable[[str | None], Awaitable[Page]]  # from the cursor of a page to the page
Save = Callable[[ActionProgress], Awaitable[None]]


class Bulk:
    """The verbs on many jobs of one store.

    Filters are those of `Client.find`: `status`, `queue`, `type`, `tag` and `older_than`. With `dry_run` a verb counts the
    jobs that match and writes nothing. `on_progress` is called with the result so far after each batch. Jobs of demora's
    own, such as webhook deliveries, are left alone unless a filter names their queue or type.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._verbs: dict[Action, Verb] = {
            Action.CANCEL: store.cancel,
            Action.RETRY: store.retry,
            Action.DELETE: store.remove,
        }

    async def retry_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, on_progress: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Retry all dead letters that match, or CANCELLED jobs if `status` says so. With `dry_run` only count them."""
        query = _query_for(Action.RETRY, **filters)
        return await self._on_each(query, _unless(dry_run, self._store.retry), limit=limit, on_progress=on_progress)

    async def delete_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, on_progress: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Delete all dead letters that match, or other ended jobs if `status` says so. With `dry_run` only count them."""
        query = _query_for(Action.DELETE, **filters)
        return await self._on_each(query, _unless(dry_run, self._store.remove), limit=limit, on_progress=on_progress)

    async def cancel_many(
        self, /, *, limit: int | None = None, dry_run: bool = False, on_progress: OnProgress | None = None, **filters: Any
    ) -> BulkResult:
        """Cancel all waiting jobs that match. With `dry_run` only count them.

        If a worker claims one of them in the meantime, the request to cancel it is recorded, as `Client.cancel` does.
        """
        query = _query_for(Action.CANCEL, **filters)
        return await self._on_each(query, _unless(dry_run, self._store.cancel), limit=limit, on_progress=on_progress)

    async def act(
        self,
        action: Action,
        filter: JobFilter,
        alteration: Alteration | None,
        *,
        ids: Sequence[str] = (),
        save: Save,
        since: ActionProgress,
        asked_at: datetime,
        dry_run: bool = False,
    ) -> ActionProgress:
        """Apply the action to every matching job in a state that it accepts; with `dry_run` only count them. An `alteration`
        says what an action that changes jobs changes, and when retried jobs are due. With `ids` it takes only these jobs.

        `save` stores the progress before each page. A run that was interrupted continues from its progress, `since`, and
        takes no job a second time. On the page that was under way, it leaves alone the jobs that show the change or have run
        since the action was asked for.
        """
        read = self._pages(action, filter, ids)
        progress, act = since, self._acting(action, alteration, dry_run=dry_run)
        if progress.trying:
            page = await read(progress.after)
            under_way = [(n, job) for job in page.jobs if (n := progress.number_of(job.id)) is not None]
            left, done = _judged(action, alteration, under_way, progress.size, asked_at)
            progress = _went_on(progress, await act(left), done=0 if dry_run else done)
        while not progress.ended:
            page = await read(progress.after)
            progress = progress.with_page([job.id for job in page.jobs], page.next)
            if page.jobs:
                await save(progress)
            progress = _went_on(progress, await act([*enumerate(page.jobs, progress.matched)]))
        return progress

    async def count(self, action: Action, filter: JobFilter, ids: Sequence[str] = ()) -> int:
        """Return how many jobs an action would take."""
        read, counted, page = self._pages(action, filter, ids), 0, Page([], None)
        while True:
            page = await read(page.next)
            counted += len(page.jobs)
            if page.next is None:
                return counted

    def _pages(self, action: Action, filter: JobFilter, ids: Sequence[str]) -> Pages:
        """Return what reads the jobs that an action takes, newest first: those that match, or of these ids."""
        filter = action.checked(filter)
        return partial(self._picked, sorted(ids, reverse=True), filter) if ids else partial(self._matching, filter)

    async def _matching(self, filter: JobFilter, after: str | None) -> Page:
        page = await self._store.find(Query(filter=filter, payload=False, result=False, limit=BATCH, after=after))
        return msgspec.structs.replace(page, jobs=list(_meant(page.jobs, filter)))

    async def _picked(self, ids: Sequence[str], filter: JobFilter, after: str | None) -> Page:
        """Return the jobs of the next few ids whose state the filter takes. A job that ended too late does not count: a run
        that begins again would retry it a second time."""
        begin = int(after or 0)
        found = [await self._store.get(id) for id in ids[begin : begin + PICKED]]
        until, end = filter.ended.until, begin + PICKED
        jobs = [
            job
            for job in found
            if job is not None
            and job.status in filter.statuses
            and (until is None or job.completed_at is None or job.completed_at < until)
        ]
        return Page(jobs, str(end) if end < len(ids) else None)

    def _acting(self, action: Action, alteration: Alteration | None, *, dry_run: bool) -> Act:
        """Return what an action does to the jobs of a page."""

        async def act(jobs: Numbered) -> list[Answer]:
            if dry_run or not jobs:
                return []
            if alteration is None:
                return await self._verbs[action]([job.id for _, job in jobs])
            alter = self._retry if action is Action.RETRY else self._alter
            return [await alter(job.id, alteration(n)) for n, job in jobs]

        return act

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
        query = _query_for(Action.DELETE, status=[status], older_than=older_than, queue=queue)
        if dry_run:
            return await self._on_each(query, None, on_progress=on_progress)
        [ended], done, result = query.filter.statuses, BATCH, BulkResult()
        age = span(older_than, "olderThan")
        while done == BATCH:
            done = await self._store.purge(ended, older_than=age, limit=BATCH, queue=query.filter.queue)
            result = BulkResult(result.matched + done, result.done + done)
            if on_progress is not None:
                on_progress(result)
        return result

    async def _alter(self, id: str, change: Change) -> Answer:
        job = await self._store.get(id) if change.at is not None else None
        if job is not None and change.at is not None and expires_before(job, change.at):
            return Answer(False, job.status)
        return await self._store.change(id, change)

    async def _retry(self, id: str, change: Change) -> Answer:
        [answer] = await self._store.retry([id], at=change.at)
        return answer

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
            jobs = _meant(page.jobs, query.filter)
            answers = await verb([job.id for job in jobs]) if verb and jobs else []
            result = _counted(result, len(jobs), answers)
            finished = page.next is None or result.matched == limit
            if finished:
                result = msgspec.structs.replace(result, more=page.next is not None)
            if on_progress is not None:
                on_progress(result)
            if finished:
                return result
            after = page.next


class FindOptions(TypedDict, total=False):
    """The arguments of `Client.find` besides its filter: parts of a filter, the order, the place and the size of a page."""

    status: Iterable[Status | str] | Status | str
    queue: str | None
    type: str | None
    tag: str | None
    older_than: timedelta | str | None
    sort: Sort | str | None
    after: str | None
    limit: int
    fields: Iterable[str]
    most_bytes: int | None
    within: timedelta | None


def page_query(filter: JobFilter | str | None, options: FindOptions) -> Query:
    """Return the query for a page of jobs. Without a `sort`, the states of the jobs decide the order; see `sort_of`."""
    options.setdefault("sort", None)
    options.setdefault("limit", USUAL_PAGE)
    return check_query(filter, **options)


def check_query(
    filter: JobFilter | str | None = None,
    *,
    status: Iterable[Status | str] | Status | str = (),
    queue: str | None = None,
    type: str | None = None,
    tag: str | None = None,
    older_than: timedelta | str | None = None,
    sort: Sort | str | None = Sort.CREATED,
    after: str | None = None,
    limit: int = BATCH,
    fields: Iterable[str] = FIELDS,
    most_bytes: int | None = None,
    within: timedelta | None = None,
) -> Query:
    """Return the query for a filter, or the text of a search, and these parts of one. `Invalid` names the first part that is
    malformed, or that is given twice. Without a `sort`, the states decide the order; see
    `sort_of`."""
    wanted = _check_fields(fields)
    parts = {
        "statuses": frozenset(check_status(one) for one in ((status,) if isinstance(status, Status | str) else status)),
        "queue": queue,
        "type": type,
        "tags": () if tag is None else (check_tag(tag),),
    }
    meant, order = sort_of(_joined(filter, {name: part for name, part in parts.items() if part}), sort)
    return Query(
        filter=meant,
        sort=order,
        older_than=None if older_than is None else span(older_than, "older_than"),
        after=None if after is None else check_cursor(after),
        limit=limit,
        payload="payload" in wanted,
        result="result" in wanted,
        bytes=most_bytes,
        within=within,
    )


def _joined(filter: JobFilter | str | None, parts: dict[str, Any]) -> JobFilter:
    """A filter with more parts, none of which it has already."""
    if isinstance(filter, str):
        filter = parse_filter(filter, datetime.now(UTC))
    filter = filter or NO_FILTER
    for name in parts:
        if getattr(filter, name):
            raise Invalid(name, "is given twice: by itself and in the search")
    return msgspec.structs.replace(filter, **parts).checked()


def _check_fields(fields: Iterable[str]) -> frozenset[str]:
    wanted = frozenset((fields,) if isinstance(fields, str) else fields)
    if unknown := sorted(wanted - set(FIELDS)):
        raise Invalid("fields", f"{unknown[0][:100]!r} is not one of {' and '.join(FIELDS)}")
    return wanted


def _query_for(action: Action, **filters: Any) -> Query:
    """Return the query for the jobs that an action takes."""
    query = check_query(**filters)
    return msgspec.structs.replace(query, filter=action.checked(query.filter))


def _unless(dry_run: bool, verb: Verb) -> Verb | None:
    return None if dry_run else verb


def _meant(jobs: Sequence[Job], filter: JobFilter) -> Sequence[Job]:
    return jobs if means_own(filter) else [job for job in jobs if job.queue not in OWN_QUEUES]


def _judged(
    action: Action, alteration: Alteration | None, jobs: Numbered, size: int, asked_at: datetime
) -> tuple[Numbered, int]:
    """Return which jobs of the page that was under way are still to be done, and how many were done. `jobs` are those of the
    page, which had this size, that match now: a job that was retried does not."""
    if alteration is not None and action is not Action.RETRY:
        shown = {n for n, job in jobs if _shows(job, alteration(n))}
        ran = {n for n, job in jobs if job.started_at is not None and job.started_at >= asked_at}
        return [(n, job) for n, job in jobs if n not in shown | ran], len(shown)
    if action is Action.CANCEL and 2 * len(jobs) < size:
        return [], size - len(jobs)  # a page is cancelled as a whole: these were retried since
    return jobs, size - len(jobs)


def _shows(job: Job, change: Change) -> bool:
    timely = change.at is None or abs(job.due_at - change.at) <= MILLISECOND  # times are stored in milliseconds
    return timely and change.priority in (None, job.priority)


def _went_on(progress: ActionProgress, answers: Sequence[Answer], *, done: int | None = None) -> ActionProgress:
    """Return the progress after a page. With `done`, so many of its jobs were done by the run before."""
    did = sum(answer.did for answer in answers) + (done or 0)
    answered = progress.size if done is not None else len(answers)
    return ActionProgress(
        matched=progress.matched + progress.size,
        done=progress.done + did,
        skipped=progress.skipped + answered - did,
        after=progress.next,
        total=progress.total,
        ended=progress.next is None,
    )


def _counted(result: BulkResult, found: int, answers: Sequence[Answer]) -> BulkResult:
    done = sum(answer.did for answer in answers)
    return BulkResult(result.matched + found, result.done + done, result.skipped + len(answers) - done)
