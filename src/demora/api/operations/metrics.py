"""The operations that Prometheus and dashboards call."""

import asyncio
from datetime import datetime
from typing import Any

import msgspec

from ...core.spans import timestamp
from ...errors import MetricsNotInstalled
from ...wire.requests import MetricsQuery, NamedMetricsQuery
from .operation import ApiCall, Reply

TEXT = "text/plain"


async def show_metrics(call: ApiCall) -> Reply:
    """Write the metrics of this process and the number of jobs by queue and state, for Prometheus."""
    if call.metrics is None:
        raise MetricsNotInstalled
    return Reply(200, await call.metrics.text(await call.client()), media=call.metrics.media, compressible=True)


async def show_overview(call: ApiCall) -> Reply:
    """Show the jobs, the workers and the database now, and the outcomes of runs in the last hour, day or week."""
    query: MetricsQuery = call.query
    return await _shown(await (await call.client()).metrics_overview(query.span))


async def show_queue_metrics(call: ApiCall) -> Reply:
    """Show the outcomes of runs by queue, the busiest queues first."""
    query: NamedMetricsQuery = call.query
    return await _shown(await (await call.client()).metrics_queues(query.span, name=query.name, limit=query.limit))


async def show_type_metrics(call: ApiCall) -> Reply:
    """Show the outcomes of runs by job type, the busiest types first."""
    query: NamedMetricsQuery = call.query
    return await _shown(await (await call.client()).metrics_types(query.span, name=query.name, limit=query.limit))


async def show_worker_metrics(call: ApiCall) -> Reply:
    """Show the live workers, and how many of their slots run a job."""
    return await _shown(await (await call.client()).metrics_workers())


async def _shown(metrics: msgspec.Struct) -> Reply:
    """Answer with metrics, on a thread: a hundred series have many points."""
    return Reply(200, msgspec.Raw(await asyncio.to_thread(_encoded, metrics)), compressible=True)


def _encoded(metrics: msgspec.Struct) -> bytes:
    return msgspec.json.encode(_spelled(msgspec.to_builtins(metrics, builtin_types=(datetime,))))


def _spelled(value: Any) -> Any:
    """Spell times as in jobs, with milliseconds."""
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, dict):
        return {name: _spelled(one) for name, one in value.items()}
    return [_spelled(one) for one in value] if isinstance(value, list) else value
