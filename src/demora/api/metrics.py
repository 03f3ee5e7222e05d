"""The operation that Prometheus calls."""

import msgspec

from ..errors import MetricsNotInstalled
from .operations import Ask, Reply

TEXT = "text/plain"


async def show_metrics(ask: Ask) -> Reply:
    """Write the metrics of this process and the number of jobs by queue and state, for Prometheus."""
    if ask.metrics is None:
        raise MetricsNotInstalled
    return Reply(200, msgspec.Raw(await ask.metrics.text(await ask.client())), media=ask.metrics.media)
