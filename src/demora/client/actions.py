"""Actions: verbs on all jobs that match a filter, which a worker carries out while the caller follows their progress."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..core.action import (
    QUEUE,
    RETRIES,
    RETRY_DELAY,
    TYPE,
    Action,
    ActionOrder,
    ActionProgress,
    action_job,
    check_action,
    search_for,
)
from ..core.filters import JobFilter, parse_filter
from ..core.job import Job, Priority
from ..core.request import check_at, check_priority
from ..core.spans import ZERO, span, span_ms
from ..core.states import Status
from ..errors import Invalid, JobNotFound
from ..handlers.context import Context
from ..handlers.control import Snooze
from ..handlers.registry import Defaults, Handler
from ..store.jobs import Change, Lease, Report
from ..store.store import Store
from .bulk import Alteration, Bulk, BulkResult, Save
from .paces import CODE

TIMEOUT = timedelta(hours=24)  # of a run; the next one continues where it stopped
MOST_AT_ONCE = 2  # actions that a worker carries out at the same time
LATER = timedelta(seconds=5)  # until an action beyond these is tried again
LEASE = timedelta(seconds=60)  # renewed before each page of jobs


class ActionState(msgspec.Struct, frozen=True):
    """An action, the job that carries it out, and how far it has got."""

    order: ActionOrder
    job: Job
    result: BulkResult


class Actions:
    """The actions of one store."""

    def __init__(self, store: Store, bulk: Bulk, new_id: Callable[[], str]) -> None:
        self._store, self._bulk, self._new_id = store, bulk, new_id

    async def start(
        self,
        action: Action | str,
        filter: JobFilter | str,
        *,
        at: datetime | None = None,
        priority: Priority | str | None = None,
        over: timedelta | str | None = None,
        ids: Iterable[str] = (),
        dry_run: bool = False,
        by: str = CODE,
    ) -> ActionState:
        """Have a worker act on all jobs that match a filter or a search, or only count them: cancel, retry or delete them,
        reschedule them to the time `at`, give them another `priority`, or spread them evenly `over` a span from `at` or now
        on, the oldest one first. Retried jobs can be spread in the same way, so that they do not all run at once. With `ids`
        it takes only these jobs, and of the filter only the states count.

        It takes no job that is added later, and each at most once. If its worker dies, another one continues where that one
        stopped.
        """
        now = datetime.now(UTC)
        meant = parse_filter(filter, now) if isinstance(filter, str) else filter.checked()
        what = check_action(action)
        order = ActionOrder(
            *(what, search_for(what, meant, now), dry_run, by),
            at=None if at is None else check_at(at, now),
            priority=None if priority is None else check_priority(priority).name,
            over=None if over is None else span_ms(_window(over)),
            ids=tuple(ids),
        )
        job = action_job(self._new_id(), order)
        await self._store.add([job])
        return await self.get(job.id)

    async def get(self, id: str) -> ActionState:
        """Return an action and how far it has got; `JobNotFound` if no action has this id."""
        job = await self._store.get(id)
        if job is None or job.type != TYPE:
            raise JobNotFound(id)
        return ActionState(msgspec.json.decode(job.payload_json, type=ActionOrder), job, _result_of(job))

    async def carry_out(self, id: str, save: Save) -> BulkResult:
        """Do what an action asks for, to the jobs that match and were there when it was asked for. `save` stores the
        progress; a later call continues from there."""
        asked = await self.get(id)
        action, created_at = asked.order.action, asked.job.created_at
        filter = action.narrowed(parse_filter(asked.order.filter, created_at), created_at)
        since, ids = _progress_of(asked.job), asked.order.ids
        if asked.order.over is not None and since.total is None:
            since = ActionProgress(total=await self._bulk.count(action, filter, ids))
        alteration = _alteration(asked.order, created_at, since.total or 0)
        done = await self._bulk.act(
            *(action, filter, alteration), ids=ids, save=save, since=since, asked_at=created_at, dry_run=asked.order.dry_run
        )
        return BulkResult(done.matched, done.done, done.skipped)

    async def keep(self, lease: Lease, ran: timedelta, progress: ActionProgress) -> None:
        """Store the progress of a run while its lease holds. Otherwise another worker continues from what was stored, and
        this run must end: `RunLost`."""
        held = await self._store.renew([Report(lease, ran, 0.0, encoded(progress))], lease=LEASE)
        if held.lost:
            raise RunLost


class RunLost(Exception):
    """The run of an action lost its lease."""


class ActionHandler:
    """The handler of `demora.action`."""

    def __init__(self, actions: Callable[[], Awaitable[Actions]]) -> None:
        self._actions, self._running = actions, 0

    def handler(self) -> Handler:
        usual = Defaults(queue=QUEUE, max_retries=RETRIES, retry_delay=RETRY_DELAY, timeout=TIMEOUT)
        return Handler(TYPE, self.run, usual)

    async def run(self, ctx: Context, **order: Any) -> dict[str, Any]:
        """Carry out the action. The message of its progress, and then the result of the job, have the counts. If the worker
        already carries out as many actions as it may, the run snoozes, so that the other slots stay free for other jobs."""
        if self._running >= MOST_AT_ONCE:
            raise Snooze(LATER)
        self._running += 1
        try:
            return await self._carry_out(ctx)
        finally:
            self._running -= 1

    async def _carry_out(self, ctx: Context) -> dict[str, Any]:
        actions = await self._actions()

        async def save(progress: ActionProgress) -> None:
            await actions.keep(ctx.job.lease, ctx.ran(), progress)

        return msgspec.structs.asdict(await actions.carry_out(ctx.id, save))


def _window(over: timedelta | str) -> timedelta:
    window = span(over, "over")
    if window == ZERO:
        raise Invalid("over", "must be greater than zero")
    return window


def encoded(progress: ActionProgress) -> str:
    """Return the progress as it is stored, in the message of the job's progress."""
    return msgspec.json.encode(progress).decode()


def _progress_of(job: Job) -> ActionProgress:
    """Return how far the last run got."""
    text = job.progress_message
    return ActionProgress() if text is None else msgspec.json.decode(text, type=ActionProgress)


def _result_of(job: Job) -> BulkResult:
    if job.status is Status.COMPLETED:
        return msgspec.convert(job.result, BulkResult)
    progress = _progress_of(job)
    return BulkResult(progress.matched, progress.done, progress.skipped)


def _alteration(order: ActionOrder, asked_at: datetime, total: int) -> Alteration | None:
    """Return what changes in the nth job, counted from the newest; None if the action changes no field."""
    if order.over is not None:
        begin, step = order.at or asked_at, timedelta(milliseconds=order.over) / max(total, 1)
        return lambda n: Change(at=begin + max(total - 1 - n, 0) * step)
    if order.at is None and order.priority is None:
        return None
    same = Change(priority=None if order.priority is None else check_priority(order.priority), at=order.at)
    return lambda n: same
