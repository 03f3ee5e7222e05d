"""Metrics of a process, if the extra `metrics` is installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import MetricsNotInstalled
from ..settings import Settings
from ..system import notices
from ..system.addresses import read_address
from .listening import address_of, listen

if TYPE_CHECKING:
    from ..metrics.measured import Measured
    from ..metrics.service import ServiceMetrics


def service_metrics() -> "ServiceMetrics | None":
    """Return the metrics of a service; None if the extra is not installed."""
    try:
        from ..metrics.service import ServiceMetrics
    except ModuleNotFoundError:
        return None
    return ServiceMetrics()


@contextmanager
def worker_metrics(settings: Settings) -> "Iterator[Measured | None]":
    """Show the metrics of a worker on the port of the settings during the block; None if they name no port. Raises
    `MetricsNotInstalled`, or `CannotListen` if the port cannot be used."""
    if settings.metrics_port is None:
        yield None
        return
    try:
        from ..metrics.endpoint import Endpoint
        from ..metrics.measured import Measured
    except ModuleNotFoundError as missing:
        raise MetricsNotInstalled from missing
    address = read_address(settings.metrics_host, "metrics_host")
    choice = "--metrics-port or DEMORA_METRICS_PORT"
    with listen(address, settings.metrics_port, choice) as listener, Endpoint(listener, measured := Measured()):
        notices.metrics_shown(f"{address_of(listener)}/metrics")
        yield measured
