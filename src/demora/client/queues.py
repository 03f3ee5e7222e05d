"""The settings of queues: pause, order, retention and webhook; and their counts."""

from collections.abc import Callable
from datetime import timedelta

import msgspec

from ..core.request import check_queue, check_reason
from ..core.retention import Text, read_retention
from ..core.spans import span
from ..errors import Invalid, QueueNotFound
from ..store.jobs import Queue, QueueChange, QueueQuery
from ..store.store import Store
from .paces import CODE

MOST_PER_PAGE = 200


class QueuePage(msgspec.Struct, frozen=True):
    """A page of queues. `next` is the name to pass as `after` for the following page, None on the last page."""

    queues: list[Queue]
    next: str | None


class Queues:
    """The queues of one store. `check_webhook_url` refuses a URL that demora must not call."""

    def __init__(self, store: Store, check_webhook_url: Callable[[str], None]) -> None:
        self._store, self._check_webhook_url = store, check_webhook_url

    async def queues(self) -> list[Queue]:
        """Return all queues, by name. Where there may be many, use `queues_page`."""
        return await self._store.queues()

    async def queues_page(
        self, *, after: str | None = None, limit: int = MOST_PER_PAGE, within: timedelta | None = None
    ) -> QueuePage:
        """Return a page of queues, by name. Pass the `next` of a page as `after` to get the following one.

        With a time limit, `within`, a slow count raises `SearchTooSlow`.
        """
        if not 1 <= limit <= MOST_PER_PAGE:
            raise Invalid("limit", f"must be from 1 to {MOST_PER_PAGE}")
        start = None if after is None else _cursor(after)
        found = await self._store.queues(QueueQuery(after=start, limit=limit + 1, within=within))
        page = found[:limit]
        return QueuePage(page, page[-1].name if len(found) > limit else None)

    async def queue(self, queue: str) -> Queue:
        """Return one queue with its counts. `QueueNotFound` if no job was ever enqueued there and it was never changed."""
        name = check_queue(queue)
        for found in await self._store.queues(QueueQuery(name=name)):
            return found
        raise QueueNotFound(name)

    async def pause(self, queue: str, reason: str | None = None, *, by: str = CODE) -> Queue:
        """Hand out no jobs of this queue until it is resumed. Running jobs continue.

        A queue that is paused already stays paused, and takes the new reason if one is given.
        """
        why = None if reason is None else check_reason(reason)
        return await self._set_queue(queue, QueueChange(paused=True, reason=why, by=by))

    async def resume(self, queue: str) -> Queue:
        """Hand out jobs of this queue again. `QueueNotFound` if no queue has this name."""
        await self.queue(queue)
        return await self._set_queue(queue, QueueChange(paused=False))

    async def set_queue(
        self,
        queue: str,
        *,
        step: timedelta | str | None = None,
        strict: bool | None = None,
        head_start: timedelta | str | None = None,
        keep_completed: Text = msgspec.UNSET,
        keep_cancelled: Text = msgspec.UNSET,
        keep_failed: Text = msgspec.UNSET,
        webhook_url: str | None = None,
    ) -> Queue:
        """Change a queue, or create it, and return it with its counts. Arguments that are left out change nothing.

        None or `general` for a `keep_…` argument returns the queue to the retention of the settings.
        """
        if webhook_url:
            self._check_webhook_url(webhook_url)
        change = QueueChange(
            step=None if step is None else span(step, "step"),
            strict=strict,
            head_start=None if head_start is None else span(head_start, "head_start"),
            retention=read_retention(keep_completed, keep_cancelled, keep_failed),
            webhook_url=webhook_url,
        )
        return await self._set_queue(queue, change)

    async def _set_queue(self, queue: str, change: QueueChange) -> Queue:
        await self._store.set_queue(check_queue(queue), change)
        return await self.queue(queue)


def _cursor(after: str) -> str:
    try:
        return check_queue(after)
    except Invalid:
        raise Invalid("after", "must be the name of the queue that the page before ended with") from None
