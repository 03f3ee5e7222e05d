"""A demora service in a process of its own, on the event loop of `demora serve`, with limits of a test's choice."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 30.0  # seconds for the service to start, to answer and to end
_PROGRAM = """
import asyncio, contextlib, json, logging, os, resource, sys
from datetime import timedelta
import uvloop
from demora import Demora
from demora.runtime.service import serve
from demora.settings import Settings

given = json.loads(sys.argv[1])
logging.basicConfig(level=logging.WARNING)
options = {}
if given["limits"]:
    from demora.api.http_server.connection import Limits
    options["limits"] = Limits(**given["limits"])
app = Demora(given["url"])
settings = Settings(database_url=given["url"], port=0, grace=timedelta(seconds=given["grace"]))

def started(at, _):
    if given["files_left"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        with contextlib.suppress(OSError):
            while True:
                last = os.open(os.devnull, os.O_RDONLY)
        os.closerange(last - given["files_left"] + 1, last + 1)
    print(at, flush=True)

loop = uvloop.new_event_loop if given["uvloop"] else asyncio.new_event_loop
with asyncio.Runner(loop_factory=loop) as runner:
    sys.exit(runner.run(serve(app, settings, with_worker=False, started=started, **options)))
"""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Line:
    """A connection on which a test says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, to_head: bool = False) -> Answer:
        """The next answer; raises IncompleteReadError if the other side closes first."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = 0 if to_head else int(headers.get("content-length", 0))
        return Answer(int(first.split()[1]), headers, await self.reader.readexactly(size))

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer()

    async def closed(self) -> bytes:
        """All that is still said until the other side closes or resets the connection."""
        rest = b""
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(65536):
                rest += data
        return rest

    def close(self) -> None:
        self.writer.transport.abort()


class Service:
    """A running service."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, database: Path) -> None:
        self.process, self.port, self.database = process, port, database

    @asynccontextmanager
    async def line(self, port: int | None = None, *, receive_buffer: int | None = None) -> AsyncIterator[Line]:
        """A connection to the service, or to a proxy before it."""
        ours = socket.socket()
        if receive_buffer is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        ours.setblocking(False)
        await asyncio.get_running_loop().sock_connect(ours, ("127.0.0.1", port or self.port))
        line = Line(*await asyncio.open_connection(sock=ours, limit=64 * 1024))
        try:
            yield line
        finally:
            line.close()

    async def ask(self, data: bytes, port: int | None = None) -> Answer:
        """The answer to this request on a connection of its own."""
        async with self.line(port) as line:
            return await line.ask(data)

    @property
    def memory(self) -> int:
        """Bytes that are resident now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])

    @property
    def cpu_seconds(self) -> float:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    @property
    def connections(self) -> int:
        """How many TCP sockets the service has open, the listening one included. Other files come and go by themselves."""
        proc = Path(f"/proc/{self.process.pid}")
        tables = [table.read_text().splitlines()[1:] for table in (proc / "net/tcp", proc / "net/tcp6") if table.exists()]
        tcp = {f"socket:[{line.split()[9]}]" for table in tables for line in table}
        opened = []
        for file in (proc / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                opened.append(str(file.readlink()))
        return sum(link in tcp for link in opened)

    def kill(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE)


@asynccontextmanager
async def running(
    database: Path, *, limits: dict[str, float] | None = None, files_left: int = 0, grace: float = 8, uvloop: bool = True
) -> AsyncIterator[Service]:
    given = {"url": f"sqlite:///{database}", "limits": limits, "files_left": files_left, "grace": grace, "uvloop": uvloop}
    command = [sys.executable, "-c", _PROGRAM, json.dumps(given)]
    with _start(command) as process:
        try:
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE):
                address = await asyncio.to_thread(process.stdout.readline)
            async with asyncio.timeout(2 * PATIENCE):
                yield Service(process, int(address.rpartition(":")[2]), database)
        finally:
            process.kill()


def _start(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
