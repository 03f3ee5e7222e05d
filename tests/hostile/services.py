"""A service in a process of its own, asked over plain sockets."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

DEADLINE = 60.0  # seconds


class Answer(NamedTuple):
    """The status and the head of an answer, whose body may be unread."""

    status: int
    head: bytes


class Service:
    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process, self.port = process, port

    def memory(self) -> int:
        """The bytes of memory that the process uses."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that holds little of what it does not read."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        return await asyncio.open_connection(sock=raw, limit=1024)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[Answer, bytes]:
        """The answer, read to its end."""
        reader, writer = await self.connect()
        writer.write(request(method, path, body))
        answer = await head_of(reader)
        length = int(answer.head.lower().partition(b"content-length:")[2].split()[0])
        content = await reader.readexactly(length)
        writer.close()
        return answer, content


def request(method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body) if length is None else length}\r\n\r\n".encode() + body


async def head_of(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    return Answer(int(head.split()[1]), head)


def started(folder: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "demora", "serve", "--port", "0", "--log-format", "json", *arguments]
    usual = {name: value for name, value in os.environ.items() if not name.startswith("DEMORA_")}
    with log.open("w") as errors:
        return subprocess.Popen(
            command, cwd=folder, env=usual | dict(environment), stdout=subprocess.PIPE, stderr=errors, text=True
        )


@asynccontextmanager
async def serving(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, log: Path | None = None
) -> AsyncIterator[Service]:
    """`demora serve` on a free port, with an empty database unless the environment names one."""
    with started(folder, arguments, environment or {}, log or folder / "service.log") as process:
        try:
            assert process.stdout is not None
            said = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), DEADLINE)
            yield Service(process, int(said.partition("http://127.0.0.1:")[2].partition(",")[0]))
        finally:
            process.kill()
