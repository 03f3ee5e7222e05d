"""The HTTP server: accepts connections up to a cap, turns the rest away at once, and looks after the deadlines of all.

It is uvicorn's server with `Connection` for its protocol and with an accept loop of its own: a caller over a cap gets a 503
instead of a place in the backlog, and a process without file descriptors left goes on accepting.
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

from ..system import notices
from .connection import Connection, Limits, refusal
from .http1 import FULL

BACKLOG = 2048
DATE_LOOK = 1.0  # seconds between looks at the clock for the Date header
_SPARE_FILES = 128  # file descriptors that connections leave to the database, the line and outbound calls
_FEWEST = 16  # connections, however few file descriptors there are
_AT_A_TIME = 64  # connections that are accepted before others get their turn
_TURNED_AWAY = 64  # refused connections that are kept open for a moment, so that the caller can read why
_MOMENT = 1.0  # seconds
_OUT_OF_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NOT_NOW = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.ECONNABORTED}


class Place:
    """One of the connections that are allowed. `counted_by` is the address that it counts for, None if for none."""

    def __init__(self, counted_by: str | None) -> None:
        self.counted_by, self.taken = counted_by, True


class Connections:
    """All connections of a server: how many there are, which have no request under way, and when each is too late.

    At the cap the connection that has waited longest without a complete request makes room for a new one, so that
    unfinished requests lock no caller out. Where every connection has a request under way, the new one is refused.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._most = limits, _affordable(limits.connections)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Connection, None] = {}  # the one that has waited longest comes first
        self._places: dict[Connection, Place] = {}
        self._count, self._by_address = 0, Counter[str]()
        self._sweep: asyncio.TimerHandle | None = None
        self._told_at = -math.inf
        spans = (limits.head, limits.body, limits.answer, limits.keep_alive, limits.linger)
        self._interval = min(1.0, min(spans) / 4)

    def admit(self, host: str) -> Place | None:
        """A place for a connection from this address; None if there is none."""
        address = _counted(host, self._limits)
        if address is not None and self._by_address[address] >= self._limits.per_address:
            self.tell_full(f"{self._limits.per_address} from one address")
            return None
        if self._count >= self._most and not self.make_room():
            self.tell_full(f"{self._most} in all")
            return None
        self._count += 1
        if address is not None:
            self._by_address[address] += 1
        return Place(address)

    def release(self, place: Place) -> None:
        if place.taken:
            place.taken = False
            self._count -= 1
            if place.counted_by is not None:
                self._by_address[place.counted_by] -= 1
                if not self._by_address[place.counted_by]:
                    del self._by_address[place.counted_by]

    def make_room(self) -> bool:
        """End the connection that has waited longest without a complete request; False if there is none."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        del self._waiting[oldest]
        self.release(self._places[oldest])
        oldest.give_way()
        return True

    def join(self, connection: Connection, place: Place) -> None:
        self._places[connection] = place
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._interval, self._check_all)

    def leave(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        place = self._places.pop(connection, None)
        if place is not None:
            self.release(place)

    def busy(self, connection: Connection) -> None:
        """A request is under way on this connection."""
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """No request is under way on this connection from now on."""
        self._waiting.pop(connection, None)
        if connection in self._places and self._places[connection].taken:
            self._waiting[connection] = None

    def tell_full(self, limit: str) -> None:
        """Write it to the log, but not once for each caller."""
        now = self._loop.time()
        if now - self._told_at >= notices.AGAIN:
            self._told_at = now
            notices.connections_full(limit)

    def _check_all(self) -> None:
        now = self._loop.time()
        for connection in list(self._places):
            connection.check_deadlines(now)
        self._sweep = self._loop.call_later(self._interval, self._check_all) if self._places else None


class Listener:
    """Accepts connections on a socket, until it is closed. Stands in for asyncio's server in uvicorn's list of them."""

    def __init__(self, listener: socket.socket, connections: Connections, make: Callable[[Place], Connection]) -> None:
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
                self._let_go(caller)
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
            place = self._connections.admit(address[0])
            if place is None:
                self._turn_away(caller)
            else:
                self._serve(caller, place)

    def _serve(self, caller: socket.socket, place: Place) -> None:
        caller.setblocking(False)
        with contextlib.suppress(OSError):
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._connect(caller, place))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)

    async def _connect(self, caller: socket.socket, place: Place) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._make(place), caller)
        except OSError:
            caller.close()
            self._connections.release(place)

    def _turn_away(self, caller: socket.socket) -> None:
        """Say that there is no room, and close; a moment later if there are not too many to keep for that."""
        _say_full(caller)
        if len(self._turned_away) < _TURNED_AWAY:
            self._turned_away.add(caller)
            self._loop.call_later(_MOMENT, self._let_go, caller)
        else:
            caller.close()

    def _let_go(self, caller: socket.socket) -> None:
        if caller in self._turned_away:
            self._turned_away.discard(caller)
            caller.close()

    def _out_of_files(self) -> None:
        """Turn one caller away with the file descriptor kept for that, and let an idle connection go for the next one."""
        self._connections.tell_full("the process has no file descriptor left")
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
        """Accept no connection for a moment: the listener stays readable, and looking again at once would take a core."""
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(_MOMENT, self._wake)

    def _wake(self) -> None:
        self._spare = _spare_file() if self._spare is None and not self._closed else self._spare
        self._listen()


class Server(uvicorn.Server):
    """uvicorn that leaves signals to the caller, sleeps while nothing happens, and calls `announce` once it answers."""

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

        def make(place: Place) -> Connection:
            return Connection(self.config, self.server_state, connections, place, self._limits)

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


def _affordable(wanted: int) -> int:
    """How many connections there can be with the file descriptors that this process may have."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or wanted <= files - _SPARE_FILES:
        return wanted
    most = max(_FEWEST, files - _SPARE_FILES)
    notices.connections_lowered(wanted, most, files)
    return most


def _counted(host: str, limits: Limits) -> str | None:
    """What a caller's address counts for: an IPv4 address, the /64 of an IPv6 address; None if it is not counted."""
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
    """Answer 503 as far as that goes without waiting, and read what has come, so that the close resets nothing."""
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
