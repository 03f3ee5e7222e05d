"""The service: HTTP and a worker in one process, from the first request to the last job."""

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import uvicorn

from . import notices
from .addresses import Address, cannot_listen, in_url, read_address
from .api import make_api
from .app import Demora
from .errors import CannotListen
from .patience import opened_when_there
from .scheduler import Scheduler
from .settings import Settings
from .stopping import stopping_on_signals
from .worker import Worker

Started = Callable[[str, bool], None]  # the address, and whether callers need an API key
DATE_LOOK = 1.0  # seconds between looks at the clock for the Date header
BACKLOG = 2048


async def serve(
    app: Demora,
    settings: Settings,
    *,
    with_worker: bool = True,
    concurrency: int | None = None,
    started: Started | None = None,
) -> int:
    """Answer HTTP, and run jobs unless told otherwise, until a signal; answers with the exit code of the worker.

    `started` is called once requests are answered. An address that others can reach is refused while there is no API key in
    force. SIGTERM and SIGINT stop both: requests under way are
    answered, jobs get the grace. A second signal ends the process at once. A worker that stops by itself stops the service.
    """
    address = read_address(settings.host)
    async with opened_when_there(app):
        with_key = await _asks_for_keys(app, settings)
        with listen(address, settings.port) as listener:
            service = _Service(app, settings, listener, lambda at: started and started(at, with_key))
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

    def __init__(self, app: Demora, settings: Settings, listener: socket.socket, started: Callable[[str], None]) -> None:
        self._app, self._api = app, make_api(app, settings)
        self._listener, self._database = listener, settings.database_url.partition(":")[0]
        self._started = started
        self._server = _Server(_config(self._api, settings), self._announce)
        self._worker: Worker | None = None

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


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to us, sleeps while nothing happens, and says when it answers."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stop.set()

    async def stopped(self) -> None:
        await self._stop.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self.on_tick(0)  # makes the headers that every answer carries
        self._announce()

    async def main_loop(self) -> None:
        while not self.should_exit:
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), DATE_LOOK)


def _config(api: object, settings: Settings) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # our own notices say when it starts and stops
    logging.getLogger("uvicorn.error").addFilter(_tells_of_more_than_a_caller_gone)
    return uvicorn.Config(
        api,  # type: ignore[arg-type]
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, math.ceil(settings.grace.total_seconds())),
    )


def _tells_of_more_than_a_caller_gone(record: logging.LogRecord) -> bool:
    """Not that a request was left unanswered: that happens only where the connection is closed already."""
    return "without completing response" not in record.getMessage()


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
