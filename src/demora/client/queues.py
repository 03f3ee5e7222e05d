"""What an application may ask about queues: how they stand, a pause, another order, what they keep."""

from datetime import timedelta

import msgspec

from ..core.request import check_queue, check_reason
from ..core.retention import Text, read_retention
from ..core.spans import span
from ..errors import Invalid, QueueNotFound
from ..store.jobs import Queue, QueueChange, QueueQuery, Store
from .paces import CODE

MOST_PER_PAGE = 200


class QueuePage(msgspec.Struct, frozen=True):
    """Queues found; `next` is the name to go on after, None at the end."""

    queues: list[Queue]
    next: str | None


class Queues:
    """The part of the client that is about queues."""

    store: Store

    async def queues(self) -> list[Queue]:
        """Every queue, by name. Where there may be many, `queues_page` gives them page by page."""
        return await self.store.queues()

    async def queues_page(
        self, *, after: str | None = None, limit: int = MOST_PER_PAGE, within: timedelta | None = None
    ) -> QueuePage:
        """Queues by name, page by page: give the `next` of one page as `after` for the following one. With a limit of time,
        `within`, a slow count raises `SearchTooSlow`."""
        if not 1 <= limit <= MOST_PER_PAGE:
            raise Invalid("limit", f"must be from 1 to {MOST_PER_PAGE}")
        start = None if after is None else _cursor(after)
        found = await self.store.queues(QueueQuery(after=start, limit=limit + 1, within=within))
        page = found[:limit]
        return QueuePage(page, page[-1].name if len(found) > limit else None)

    async def queue(self, queue: str) -> Queue:
        """One queue, counts included; `QueueNotFound` if nothing was ever enqueued there and nobody changed it."""
        name = check_queue(queue)
        for found in await self.store.queues(QueueQuery(name=name)):
            return found
        raise QueueNotFound(name)

    async def pause(self, queue: str, reason: str | None = None, *, by: str = CODE) -> Queue:
        """Hand out nothing from this queue until it is resumed; what runs goes on. One that is paused stays so, and takes
        another reason if there is one."""
        why = None if reason is None else check_reason(reason)
        return await self._set_queue(queue, QueueChange(paused=True, reason=why, by=by))

    async def resume(self, queue: str) -> Queue:
        """Hand out jobs of this queue again; `QueueNotFound` if there is none of this name."""
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
        """Change a queue, naming it if need be, and answer with how it stands, counts included. What is not given stays;
        what is kept of ended jobs is as in the settings again with None or `general`."""
        if webhook_url:
            self.check_webhook_url(webhook_url)
        change = QueueChange(
            step=None if step is None else span(step, "step"),
            strict=strict,
            head_start=None if head_start is None else span(head_start, "head_start"),
            retention=read_retention(keep_completed, keep_cancelled, keep_failed),
            webhook_url=webhook_url,
        )
        return await self._set_queue(queue, change)

    def check_webhook_url(self, url: str) -> None:
        """Refuse a URL that must not be called."""
        raise NotImplementedError

    async def _set_queue(self, queue: str, change: QueueChange) -> Queue:
        await self.store.set_queue(check_queue(queue), change)
        return await self.queue(queue)


def _cursor(after: str) -> str:
    try:
        return check_queue(after)
    except Invalid:
        raise Invalid("after", "must be the name of the queue that the page before ended with") from None
