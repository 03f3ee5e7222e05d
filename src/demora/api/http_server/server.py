"""The HTTP server: accepts connections up to a limit, refuses the rest at once, and checks the deadlines of all.

It is uvicorn's server with `Connection` as its protocol and an accept loop of its own: a caller over the limit gets a 503
instead of a place in the backlog, and a process without free file descriptors still answers.
"""

import asyncio
import contextlib
import errno
import logging
import math
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import uvicorn

from ...system import notices
from .connection import Connection, Limits, refusal
from .http1 import FULL

BACKLOG = 2048
DATE_LOOK = 1.0  # seconds between updates of the Date header
_SPARE_FILES = 128  # file descriptors that are left for the database, the line and outbound calls
_FEWEST = 16  # connections, even with too few file descriptors
_AT_A_TIME = 64  # connections that are accepted in one turn of the event loop
_TURNED_AWAY = 64  # refused connections that are kept open for a moment, so that the caller can read why
_MOMENT = 1.0  # seconds
_OUT_OF_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NOT_NOW = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.ECONNABORTED}


class Admission:
    """One of the allowed connections. `counted_by` is the address whose limit it counts towards, if any."""

    def __init__(self, counted_by: str | None) -> None:
        self.counted_by, self.taken = counted_by, True


class Connections:
    """All connections of a server: their number, which of them are idle, and their deadlines.

    At the limit, the connection that has waited longest without a complete request is closed for a new one, so that
    unfinished requests cannot lock callers out. If every connection has a current request, the new one is refused.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._most = limits, affordable(limits.connections)
        if self._most < limits.connections:
            notices.connections_lowered(limits.connections, self._most, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Connection, None] = {}  # the one that has waited longest comes first
        self._admissions: dict[Connection, Admission] = {}
        self._count, self._by_address = 0, Counter[str]()
        self._sweep: asyncio.TimerHandle | None = None
        self._logged_at = -math.inf
        spans = (limits.head, limits.body, limits.answer, limits.keep_alive, limits.linger)
        self._interval = min(1.0, min(spans) / 4)

    def admit(self, host: str) -> Admission | None:
        """Count a connection from this address and return its admission; None if there are too many."""
        address = _counted(host, self._limits)
        if address is not None and self._by_address[address] >= self._limits.per_address:
            self.log_full(f"{self._limits.per_address} from one address")
            return None
        if self._count >= self._most and not self.make_room():
            self.log_full(f"{self._most} in all")
            return None
        self._count += 1
        if address is not None:
            self._by_address[address] += 1
        return Admission(address)

    def free(self, admission: Admission) -> None:
        if admission.taken:
            admission.taken = False
            self._count -= 1
            if admission.counted_by is not None:
                self._by_address[admission.counted_by] -= 1
                if not self._by_address[admission.counted_by]:
                    del self._by_address[admission.counted_by]

    def make_room(self) -> bool:
        """Close the connection that has waited longest without a complete request; return False if there is none."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        del self._waiting[oldest]
        self.free(self._admissions[oldest])
        oldest.give_way()
        return True

    def join(self, connection: Connection, admission: Admission) -> None:
        self._admissions[connection] = admission
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._interval, self._check_all)

    def leave(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        admission = self._admissions.pop(connection, None)
        if admission is not None:
            self.free(admission)

    def busy(self, connection: Connection) -> None:
        """Note that this connection has a current request."""
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """Note that this connection has no current request any more."""
        self._waiting.pop(connection, None)
        if connection in self._admissions and self._admissions[connection].taken:
            self._waiting[connection] = None

    def log_full(self, limit: str) -> None:
        """Log that a limit is reached, at most once in a while."""
        now = self._loop.time()
        if now - self._logged_at >= notices.AGAIN:
            self._logged_at = now
            notices.connections_full(limit)

    def _check_all(self) -> None:
        now = self._loop.time()
        for connection in list(self._admissions):
            connection.check_deadlines(now)
        self._sweep = self._loop.call_later(self._interval, self._check_all) if self._admissions else None


class Listener:
    """Accepts connections on a socket until it is closed. Replaces asyncio's server in uvicorn's list of servers."""

    def __init__(self, listener: socket.socket, connections: Connections, make: Callable[[Admission], Connection]) -> None:
        self._listener, self._connections, self._make = listener, connections, make
        self._loop = asyncio.get_running_loop()
        self._accepted: set[asyncio.Task[None]] = set()
        self._turned_away: set[socket.socket] = set()
        self._spare = _spare_file()
        self._closed = False
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
            for caller in list(self._turned_away):
                self._drop(caller)
            if self._spare is not None:
                os.close(self._spare)

    async def wait_closed(self) -> None:
        for task in list(self._accepted):
            await asyncio.wait([task])

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_A_TIME):
            try:
                caller, address = self._listener.accept()
            except OSError as problem:
                if problem.errno in _OUT_OF_FILES:
                    self._out_of_files()
                elif problem.errno not in _NOT_NOW:
                    self._rest()
                return
            admission = self._connections.admit(address[0])
            if admission is None:
                self._turn_away(caller)
            else:
                self._serve(caller, admission)

    def _serve(self, caller: socket.socket, admission: Admission) -> None:
        caller.setblocking(False)
        with contextlib.suppress(OSError):
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._connect(caller, admission))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)

    async def _connect(self, caller: socket.socket, admission: Admission) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(admission), caller)
        except OSError:
            caller.close()
            self._connections.free(admission)

    def _turn_away(self, caller: socket.socket) -> None:
        """Answer 503 and close: a moment later, unless too many refused connections are open already."""
        _say_full(caller)
        if len(self._turned_away) < _TURNED_AWAY:
            self._turned_away.add(caller)
            self._loop.call_later(_MOMENT, self._drop, caller)
        else:
            caller.close()

    def _drop(self, caller: socket.socket) -> None:
        if caller in self._turned_away:
            self._turned_away.discard(caller)
            caller.close()

    def _out_of_files(self) -> None:
        """Refuse one caller, with the file descriptor that is kept for this, and close an idle connection for the next."""
        self._connections.log_full("the process has no file descriptor left")
        self._connections.make_room()
        if self._spare is None:
            return self._rest()
        os.close(self._spare)
        with contextlib.suppress(OSError):
            caller, _ = self._listener.accept()
            _say_full(caller)
            caller.close()
        self._spare = _spare_file()
        return None

    def _rest(self) -> None:
        """Stop accepting for a moment: the listener stays readable, so a retry at once would be a busy loop."""
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_MOMENT, self._wake)

    def _wake(self) -> None:
        self._spare = _spare_file() if self._spare is None and not self._closed else self._spare
        self._listen()


class Server(uvicorn.Server):
    """uvicorn without signal handling and without polling. It calls `announce` once it accepts connections."""

    def __init__(
        self, api: Any, *, grace: timedelta, limits: Limits | None = None, announce: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(_config(api, grace))
        self._limits, self._announce = limits or Limits(), announce
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
        connections = Connections(self._limits)

        def make(admission: Admission) -> Connection:
            return Connection(self.config, self.server_state, connections, admission, self._limits)

        await self.on_tick(0)  # makes the headers that every answer carries
        self.servers = [Listener(listener, connections, make) for listener in sockets or []]  # type: ignore[misc]
        self.started = True
        self._announce()

    async def main_loop(self) -> None:
        while not self.should_exit:
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), DATE_LOOK)


def _config(api: Any, grace: timedelta) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # our own notices say when it starts and stops
    return uvicorn.Config(
        api,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, math.ceil(grace.total_seconds())),
    )


def affordable(wanted: int) -> int:
    """Return how many connections the file descriptor limit of this process allows, at most `wanted`."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or wanted <= files - _SPARE_FILES:
        return wanted
    return max(_FEWEST, files - _SPARE_FILES)


def _counted(host: str, limits: Limits) -> str | None:
    """Return what a caller counts as: its IPv4 address, or the /64 of its IPv6 address; None if it is not limited."""
    try:
        address: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback or any(address in network for network in limits.trusted):
        return None
    return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)


def _spare_file() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _say_full(caller: socket.socket) -> None:
    """Answer 503 if that is possible without waiting, and read the received bytes, so that the close sends no reset."""
    problem = {
        "type": FULL.type,
        "title": FULL.title,
        "status": FULL.status,
        "detail": "there are too many connections; try again",
    }
    with contextlib.suppress(OSError):
        caller.setblocking(False)
        caller.send(refusal(problem, [], FULL.retry_after))
        caller.shutdown(socket.SHUT_WR)
        caller.recv(64 * 1024)
