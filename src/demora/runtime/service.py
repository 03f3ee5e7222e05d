"""The service: an HTTP server and a worker in one process, which start and stop together."""

import asyncio
import socket
from collections.abc import Callable

from ..api import make_api
from ..api.http_server.connection import Limits
from ..api.http_server.server import Server
from ..app import Demora
from ..dashboard.asgi import service_dashboard
from ..errors import CannotListen
from ..settings import Settings
from ..system import forks, notices
from ..system.addresses import in_url, read_address
from ..system.seams import Seams
from ..system.stop_signals import stopping_on_signals
from ..worker import Worker
from ..worker.measures import Measures
from ..worker.switching import keep_switching
from .front import Front
from .listening import address_of, listen
from .measuring import service_metrics
from .scheduling import scheduler_of
from .startup import opened_when_there

Started = Callable[[str, bool], None]  # the address, and whether callers need an API key


async def serve(
    app: Demora,
    settings: Settings,
    *,
    with_worker: bool = True,
    concurrency: int | None = None,
    started: Started | None = None,
    limits: Limits | None = None,
) -> int:
    """Serve HTTP, and run jobs unless `with_worker` is False, until a signal. Returns the exit code of the worker.

    Calls `started` once the service accepts requests. Refuses an address that other machines can reach while no API key is
    in force. SIGTERM and SIGINT stop server and worker: current requests are answered, running jobs get the grace period.
    A second signal ends the process at once. A worker that stops by itself stops the service. `limits` override the
    settings.
    """
    address = read_address(settings.host)
    async with opened_when_there(app):
        with_key = await _asks_for_keys(app, settings)
        with listen(address, settings.port) as listener:
            limits = limits or _limits(settings)
            metrics = service_metrics()
            measured = None if metrics is None else metrics.measured
            api = make_api(app, settings, metrics)
            dashboard = service_dashboard(app, settings, api.waits) if settings.dashboard == "on" else None
            front = Front(api, dashboard, root_path=settings.root_path)
            service = _Service(app, settings, listener, limits, lambda at: started and started(at, with_key), front)
            worker = _worker(app, settings, concurrency, measured) if with_worker else None
            return await service.run(worker)


class _Service:
    """A server and, optionally, a worker that stop together."""

    def __init__(
        self,
        app: Demora,
        settings: Settings,
        listener: socket.socket,
        limits: Limits,
        started: Callable[[str], None],
        front: Front,
    ) -> None:
        self._app, self._front = app, front
        self._listener, self._database = listener, settings.database_url.partition(":")[0]
        self._started = started
        self._server = Server(self._front, grace=settings.grace, limits=limits, announce=self._announce)
        self._worker: Worker | None = None
        forks.release_in_child(self, _Service.descriptors)

    def descriptors(self) -> list[int]:
        """Return the file descriptors of the listener and of all connections, which a forked child must close."""
        transports = [getattr(protocol, "transport", None) for protocol in self._server.server_state.connections]
        return [self._listener.fileno(), *(fd for transport in transports for fd in forks.descriptors_of(transport))]

    async def run(self, worker: Worker | None) -> int:
        self._worker = worker
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))
        working = asyncio.ensure_future(worker.run() if worker else self._housekeep())
        both = {serving, working}
        try:
            with stopping_on_signals(self.stop):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                self.stop()
                await asyncio.wait(both)
            serving.result()
            return working.result() or 0
        finally:
            for task in both:
                task.cancel()

    async def _housekeep(self) -> None:
        """Do what a worker would do besides running jobs: apply the paces, define the schedules, run the scheduler, and
        switch off built-in handlers."""
        await self._app.switch_builtins()
        async with scheduler_of(self._app, Seams().name()) as scheduler:
            tasks = [asyncio.ensure_future(task) for task in (scheduler.run(), keep_switching(self._app))]
            try:
                await self._server.stopped()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def stop(self) -> None:
        self._front.stop()
        self._server.stop()
        if self._worker is not None:
            self._worker.stop()

    def _announce(self) -> None:
        address = address_of(self._listener)
        notices.service_started(address, self._database)
        self._started(address)


def _limits(settings: Settings) -> Limits:
    most = settings.http_connections
    per_address = most // 4 if settings.http_connections_per_address is None else settings.http_connections_per_address
    return Limits(connections=most, per_address=max(1, per_address), trusted=settings.proxies)


def _worker(app: Demora, settings: Settings, concurrency: int | None, measures: Measures | None) -> Worker:
    slots = settings.concurrency if concurrency is None else concurrency
    return Worker(app, concurrency=slots, lease=settings.lease, grace=settings.grace, measures=measures)


async def _asks_for_keys(app: Demora, settings: Settings) -> bool:
    """Return whether callers need a key. Refuses an address that other machines can reach while no key is in force."""
    keys, address = (await app.open()).keys, read_address(settings.host)
    if address.is_loopback:
        return (await keys.find("")).any
    if not await keys.any_in_force():
        raise CannotListen(
            "host",
            f"other machines can reach {settings.host}, and no API key is in force; create one first: "
            "demora keys create NAME --scope admin (or submit, read, operate, work), or listen on 127.0.0.1",
        )
    names = (*settings.allowed_hosts, *(() if address.is_unspecified else (in_url(address),)))
    notices.service_reachable(settings.host, ", ".join(names) or "(none: set DEMORA_ALLOWED_HOSTS)")
    return True
