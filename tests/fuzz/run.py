"""Sends random requests to a service, many at once, and judges what it answers and how it fares."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.requests import Requests, Sent
from tests.hostile.services import Service, serving
from tests.servers import postgres, valkey

DATABASES = ("sqlite", "sqlite+line", "postgres", "postgres+line")
CONNECTIONS, PIPELINED = 12, 8
BROKEN = 0.03  # of all requests, each on a connection of its own
STREAM = b"\r\ncontent-type: text/event-stream"  # an answer without an end
PATIENCE = 30.0  # seconds that an answer may take
UNFRAMED_PATIENCE = 0.3  # seconds to wait for an answer to what may not be a request
WARM = 0.25  # of the requests are sent before the memory is first looked at
MOST_GROWTH = 30 * 1024 * 1024  # bytes
HEALTH_EVERY = 0.2  # seconds
LEAKS = re.compile(rb'Traceback|File \\"|sqlite3?\.|asyncpg|\.py\b|select .* from ', re.I)
MOST_TOLD = 20
BUSY = b'"type":"urn:demora:problem:too-many-searches"'  # the documented answer of a service that has no turn free in time
MOST_BUSY = 0.01  # of all requests: a machine that stalls for a second may cause some


class Answer(NamedTuple):
    status: int
    head: bytes
    body: bytes


class Result:
    """What a run came to. It is good if there are no troubles."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.troubles: list[str] = []
        self.sent = self.broken = self.ways = self.growth = self.busy = 0
        self.seconds = self.worst_health = 0.0
        self.looks = 0

    def trouble(self, what: str, request: bytes, answer: bytes = b"") -> None:
        if len(self.troubles) < MOST_TOLD:
            self.troubles.append(f"{what}\n    sent {request[:600]!r}\n    answered {answer[:600]!r}")

    def told(self) -> str:
        counts = ", ".join(f"{number:,} × {status}" for status, number in sorted(self.statuses.items()))
        return (
            f"{self.sent:,} requests in {self.seconds:.1f} s, {self.sent / self.seconds:,.0f}/s, "
            f"{self.broken:,} of them broken: {counts}; {self.ways} ways to answer; "
            f"memory grew by {self.growth / 2**20:.1f} MiB; "
            f"health answered {self.looks} times, {self.worst_health * 1000:.0f} ms at worst; {len(self.troubles)} troubles"
        )


async def fuzz(database: str, requests: int, seed: int, folder: Path) -> Result:
    """Send so many requests to a service on a new database of this kind."""
    async with served(database, folder) as service:
        result = await _Run(service, requests, seed).run()
        if result.busy > result.sent * MOST_BUSY:
            result.troubles.append(f"{result.busy} of {result.sent} requests found too many searches under way")
        if service.process.poll() is not None:
            result.troubles.append(f"the service ended with {service.process.returncode}")
    for line in (folder / "service.log").read_text().splitlines():
        level = json.loads(line)["level"] if line.startswith("{") else "error"
        if level == "error" or "Traceback" in line:
            result.troubles.append(f"the log says {line[:500]}")
    return result


@asynccontextmanager
async def served(database: str, folder: Path) -> AsyncIterator[Service]:
    """A service without a worker, on a new database of this kind."""
    with _environment(database, folder) as environment:
        async with serving(folder, "--no-worker", environment=environment) as service:
            yield service


@contextmanager
def _environment(database: str, folder: Path) -> Iterator[dict[str, str]]:
    """Where the jobs are: in a file, or on servers that last as long as the block."""
    if database == "sqlite":
        yield {}
    elif database == "sqlite+line":
        with valkey.running() as line:
            yield {"DEMORA_REDIS_URL": line.url}
    elif database == "postgres":
        with postgres.running() as server:
            yield {"DEMORA_DATABASE_URL": server.url}
    else:
        with postgres.running() as server, valkey.running() as line:
            yield {"DEMORA_DATABASE_URL": server.url, "DEMORA_REDIS_URL": line.url}


class _Run:
    def __init__(self, service: Service, requests: int, seed: int) -> None:
        self._service, self._left, self._warm = service, requests, int(requests * (1 - WARM))
        self._requests, self._result = Requests(seed), Result()
        self._before: int | None = None

    async def run(self) -> Result:
        result, began = self._result, time.monotonic()
        watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.gather(*[self._send_many() for _ in range(CONNECTIONS)])
        finally:
            watching.cancel()
        result.seconds = time.monotonic() - began
        await self._look()
        result.growth = self._service.memory() - (self._before or 0)
        result.ways = self._requests.ways
        if result.growth > MOST_GROWTH:
            result.troubles.append(f"memory grew by {result.growth:,} bytes")
        return result

    async def _send_many(self) -> None:
        connection: _Connection | None = None
        while self._left > 0:
            if self._requests.chance(BROKEN * PIPELINED):
                self._count(1)
                await self._send_broken()
            if connection is None:
                connection = await _Connection.open(self._service)
            batch = [self._requests.next() for _ in range(min(PIPELINED, self._left))]
            self._count(len(batch))
            if not await self._ask(connection, batch):
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _count(self, number: int) -> None:
        self._left -= number
        self._result.sent += number
        if self._left <= self._warm and self._before is None:
            self._before = self._service.memory()

    async def _ask(self, connection: "_Connection", batch: list[Sent]) -> bool:
        """Whether the connection can be used again. What follows a request that ends it is not answered."""
        written = [sent.written() for sent in batch]
        connection.writer.write(b"".join(written))
        for sent, text in zip(batch, written, strict=True):
            try:
                async with asyncio.timeout(PATIENCE):
                    answer = await connection.read(head=sent.method == b"HEAD")
            except TimeoutError:
                self._result.trouble(f"no answer within {PATIENCE:g} s", text)
                return False
            except (asyncio.IncompleteReadError, ConnectionError):
                return False
            self._judge(sent, text, answer)
            if b"\r\nconnection: close" in answer.head.lower() or STREAM in answer.head.lower():
                return False
        return True

    def _judge(self, sent: Sent, text: bytes, answer: Answer) -> None:
        self._result.statuses[answer.status] += 1
        if answer.status == 503 and BUSY in answer.body:
            self._result.busy += 1
        elif answer.status >= 500:
            self._result.trouble(f"{answer.status}", text, answer.body)
        if answer.status >= 400 and sent.method != b"HEAD" and b"application/problem+json" in answer.head:
            if LEAKS.search(answer.body):
                self._result.trouble("an error tells of the inside", text, answer.body)
        elif answer.status >= 400 and b"application/problem+json" not in answer.head and answer.status != 400:
            self._result.trouble("an error that is no problem+json", text, answer.body)
        is_job = answer.status == 201 and answer.body.startswith(b'{"id":"')
        if is_job and len(self._requests.ids) < 200:
            self._requests.ids.append(answer.body[7:43].decode())
        self._requests.answered(sent, answer.status, b"" if answer.status < 400 else answer.body)

    async def _send_broken(self) -> None:
        """Send what may be no request, and end the sending. It is answered with less than 500, or not at all."""
        self._result.broken += 1
        text = self._requests.broken()
        connection = await _Connection.open(self._service)
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(UNFRAMED_PATIENCE):
                connection.writer.write(text)
                connection.writer.write_eof()
                answer = await connection.reader.read(2000)
                if re.match(rb"HTTP/1.1 5", answer):
                    self._result.trouble("5xx for broken bytes", text, answer)
        connection.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_EVERY)
            await self._look()

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                answer, body = await self._service.ask("GET", "/health/ready")
            if answer.status != 200:
                self._result.trouble("health", b"", body)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as problem:
            self._result.trouble(f"health: {problem!r}", b"")
        self._result.looks += 1
        self._result.worst_health = max(self._result.worst_health, time.monotonic() - began)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, service: Service) -> "_Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", service.port, limit=2**20))

    async def read(self, *, head: bool) -> Answer:
        text = await self.reader.readuntil(b"\r\n\r\n")
        while text.startswith(b"HTTP/1.1 100"):
            text = await self.reader.readuntil(b"\r\n\r\n")
        status = int(text[9:12])
        length = re.search(rb"\r\ncontent-length: (\d+)", text, re.I)
        if head or status in (204, 304) or STREAM in text.lower():
            return Answer(status, text, b"")
        if length is None:
            return Answer(status, text, await self._read_chunks())
        return Answer(status, text, await self.reader.readexactly(int(length[1])))

    async def _read_chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return body

    def close(self) -> None:
        self.writer.transport.abort()
