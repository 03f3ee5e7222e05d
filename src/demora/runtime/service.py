"""The service: HTTP and a worker in one process, from the first request to the last job."""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address

from ..api import make_api
from ..api.connection import Limits
from ..api.server import BACKLOG, Server
from ..app import Demora
from ..errors import CannotListen
from ..scheduler.housekeeping import Scheduler
from ..settings import Settings
from ..system import forks, notices
from ..system.addresses import Address, cannot_listen, in_url, read_address
from ..system.stop_signals import stopping_on_signals
from ..worker import Worker
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
    """Answer HTTP, and run jobs unless told otherwise, until a signal; answers with the exit code of the worker.

    `started` is called once requests are answered. An address that others can reach is refused while there is no API key in
    force. SIGTERM and SIGINT stop both: requests under way are
    answered, jobs get the grace. A second signal ends the process at once. A worker that stops by itself stops the service.
    `limits` are those of the settings unless they are given.
    """
    address = read_address(settings.host)
    async with opened_when_there(app):
        with_key = await _asks_for_keys(app, settings)
        with listen(address, settings.port) as listener:
            limits = limits or _limits(settings)
            service = _Service(app, settings, listener, limits, lambda at: started and started(at, with_key))
            worker = _worker(app, settings, concurrency) if with_worker else None
            return await service.run(worker)


def listen(address: Address, port: int) -> socket.socket:
    """A listening socket, or `CannotListen` that says why there is none."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        return socket.create_server((str(address), port), family=family, backlog=BACKLOG)
    except OSError as problem:
        raise cannot_listen(problem, str(address), port, "--port or DEMORA_PORT") from problem


def address_of(listener: socket.socket) -> str:
    """Where to reach it from this machine: `http://127.0.0.1:8080`."""
    host, port = listener.getsockname()[:2]
    return f"http://{in_url(ip_address(host))}:{port}"


class _Service:
    """A server and perhaps a worker that stop together."""

    def __init__(
        self, app: Demora, settings: Settings, listener: socket.socket, limits: Limits, started: Callable[[str], None]
    ) -> None:
        self._app, self._api = app, make_api(app, settings)
        self._listener, self._database = listener, settings.database_url.partition(":")[0]
        self._started = started
        self._server = Server(self._api, grace=settings.grace, limits=limits, announce=self._announce)
        self._worker: Worker | None = None
        forks.release_in_child(self, _Service.descriptors)

    def descriptors(self) -> list[int]:
        """The listening socket and the connections of callers."""
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
        """What a worker would do besides running jobs."""
        await self._app.apply_paces()
        tidying = asyncio.ensure_future(Scheduler((await self._app.open()).store, self._app.settings.retention).run())
        try:
            await self._server.stopped()
        finally:
            tidying.cancel()

    def stop(self) -> None:
        self._api.stop()
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


def _worker(app: Demora, settings: Settings, concurrency: int | None) -> Worker:
    slots = settings.concurrency if concurrency is None else concurrency
    return Worker(app, concurrency=slots, lease=settings.lease, grace=settings.grace)


async def _asks_for_keys(app: Demora, settings: Settings) -> bool:
    """Whether callers need a key. Refuses an address that others can reach while nobody has one."""
    keys, address = (await app.open()).keys, read_address(settings.host)
    if address.is_loopback:
        return (await keys.find("")).any
    if not await keys.any_in_force():
        raise CannotListen(
            "host",
            f"others can reach {settings.host}, and there is no API key in force; make one first: "
            "demora keys create NAME --scope admin (or submit, read, operate), or listen on 127.0.0.1",
        )
    names = (*settings.allowed_hosts, *(() if address.is_unspecified else (in_url(address),)))
    notices.service_reachable(settings.host, ", ".join(names) or "(none: set DEMORA_ALLOWED_HOSTS)")
    return True
