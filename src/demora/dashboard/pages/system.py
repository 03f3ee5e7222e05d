"""The system: workers, webhooks and the hosts that refuse them, the Redis line, the database and the API keys."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from ...api.operations.operation import SEARCH_LIMIT
from ...core.access import Scope
from ...core.dsn import without_secrets
from ...core.job import Job
from ...core.outbound.webhook import QUEUE as WEBHOOKS
from ...core.spans import plural
from ...core.states import Status
from ...errors import DemoraError, SearchTooSlow, TooManySearches
from ...store.diagnostics import Size
from ...system import notices
from ..reading import is_live, read_activity, read_running, read_workers
from ..visit import Acted, Route, View, Visit

MOST_DELIVERIES = 200  # failed deliveries that are grouped by host, the last ones
DELIVERIES_READ_EVERY = 10.0  # seconds; an action reads them anew
MOST_SIZES = 6  # parts of the database that are named


class FailingHost(msgspec.Struct, frozen=True):
    """A host that refuses deliveries: how many failed for good, how many are tried again, and what went wrong last."""

    host: str
    failed: tuple[str, ...]
    retrying: int
    error: str
    last_at: datetime | None


async def show_system(visit: Visit) -> View:
    client, settings = visit.client, visit.app.settings
    activity, workers = await read_activity(visit), await read_workers(visit)
    keys = await visit.shared.get("keys", 1.0, client.keys.list)
    running = await read_running(visit) if any(activity.running.values()) else []
    values = {
        "page": "system",
        "workers": workers,
        "live": [worker.id for worker in workers if is_live(worker)],
        "running": activity.running,
        "jobs_of": {worker.id: [job for job in running if job.worker_id == worker.id][:4] for worker in workers},
        "webhooks": next((queue for queue in activity.queues if queue.name == WEBHOOKS), None),
        "webhooks_queue": WEBHOOKS,
        "failing": await _failing_hosts(visit),
        "disabled": await visit.shared.get("disabled", 1.0, client.webhooks.disabled),
        "host_of": _host_of,
        "line": client.line_used(),
        "line_horizon": settings.line_horizon,
        "notes": client.notes(),
        "database": without_secrets(settings.database_url),
        "schema": await visit.shared.get("schema", 60.0, visit.app.schema_version),
        "sizes": await _sizes(visit),
        "retention": settings.retention,
        "keys": keys.keys if visit.may("admin") else None,
        "keys_now": keys.now,
    }
    return View("system.html", values)


async def _sizes(visit: Visit) -> list[Size]:
    """Return the size of the database and of its largest parts, the whole first."""
    parts = await visit.shared.get("sizes", 30.0, visit.client.sizes)
    named = [part for part in parts if part.bytes]
    whole = Size("in all", sum(part.bytes for part in named))
    return [whole, *named[:MOST_SIZES]] if len(named) > 1 else [whole]


async def _failing_hosts(visit: Visit) -> list[FailingHost]:
    try:
        found = await visit.shared.get("failing hosts", DELIVERIES_READ_EVERY, lambda: _failed_deliveries(visit))
    except (SearchTooSlow, TooManySearches):
        return []
    return group_by_host(found)


async def _failed_deliveries(visit: Visit) -> list[Job]:
    jobs = list[Job]()
    for status in (Status.FAILED, Status.RETRYING):
        page = await visit.client.find(
            queue=WEBHOOKS, status=status, limit=MOST_DELIVERIES, fields=("payload",), within=SEARCH_LIMIT
        )
        jobs += page.jobs
    return jobs


def group_by_host(deliveries: Sequence[Job]) -> list[FailingHost]:
    """Return the hosts of deliveries that failed or are tried again, those with the most failures first."""
    by_host = dict[str, list[Job]]()
    for one in deliveries:
        by_host.setdefault(_host_of(str(one.payload.get("url", ""))), []).append(one)
    hosts = [
        FailingHost(
            host=host,
            failed=tuple(one.id for one in jobs if one.status is Status.FAILED),
            retrying=sum(one.status is Status.RETRYING for one in jobs),
            error=next((one.error for one in jobs if one.error), "") or "",
            last_at=max((one.completed_at or one.started_at or one.created_at for one in jobs), default=None),
        )
        for host, jobs in by_host.items()
    ]
    return sorted(hosts, key=lambda one: (-len(one.failed), -one.retrying, one.host))


def _host_of(url: str) -> str:
    """Return the host of a URL: its path and query may hold secrets."""
    try:
        return urlsplit(url).hostname or "–"
    except ValueError:
        return "–"


async def enable(visit: Visit) -> Acted:
    url = visit.form.get("url", "")
    await visit.client.webhooks.enable(url)
    notices.acted(visit.by, "enable webhook", _host_of(url))
    return Acted(f"Deliveries to {_host_of(url)} are tried again.")


async def redeliver(visit: Visit) -> Acted:
    """Retry the failed deliveries to a host, under the same message ids; those that changed meanwhile are left alone."""
    host, done = visit.form.get("host", ""), 0
    for one in group_by_host(await _failed_deliveries(visit)):
        for id in one.failed if one.host == host else ():
            try:
                await visit.client.retry(id)
                done += 1
            except DemoraError:
                continue
    notices.acted(visit.by, "redeliver", f"{plural(done, 'delivery', 'deliveries')} to {host}")
    return Acted(f"{plural(done, 'delivery', 'deliveries')} to {host} tried again.")


async def recover(visit: Visit) -> Acted:
    try:
        found = await visit.client.recover()
    except DemoraError as problem:
        return Acted(str(problem))
    notices.acted(visit.by, "recover", f"{len(found)} jobs")
    return Acted(f"{plural(len(found), 'job')} of dead workers taken over.")


async def compare_line(visit: Visit) -> Acted:
    """Compare the Redis line with the database, and say what differs. Changes nothing."""
    found = await visit.client.compare_line()
    if found is None:
        return Acted("There is no Redis line.")
    if found.away:
        return Acted(f"The line cannot be compared now: {found.away}")
    if found.agrees:
        return Acted(f"The line agrees with the database: {plural(found.waiting, 'job')} in it.")
    differs = f"{len(found.missing)} missing, {len(found.surplus)} surplus, {len(found.misplaced)} misplaced"
    return Acted(f"The line differs from the database: {differs}. It repairs itself; demora doctor --repair does it now.")


ROUTES = (
    Route("GET", "/system", Scope.READ, show_system),
    Route("POST", "/system/enable", Scope.OPERATE, enable),
    Route("POST", "/system/redeliver", Scope.OPERATE, redeliver),
    Route("POST", "/system/recover", Scope.OPERATE, recover),
    Route("POST", "/system/line/compare", Scope.OPERATE, compare_line),
)
