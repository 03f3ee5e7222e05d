"""The service as a process: a real socket, a worker beside it, and signals."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from demora import Demora, Status
from demora.engines.sqlite import SqliteStore
from demora.errors import BadSetting
from demora.runtime.service import address_of, listen, serve
from demora.settings import Settings
from demora.system.addresses import read_address
from tests.api.asking import JOBS
from tests.facts import eventually

PROGRAM = """
import asyncio, logging, sys, time
from datetime import timedelta
from demora import Demora
from demora.runtime.service import serve
from demora.settings import Settings

logging.basicConfig(level=logging.INFO)
url, grace, with_worker = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "True"
app = Demora(url)

@app.job("block")
def block() -> None:
    time.sleep(60)

settings = Settings(database_url=url, port=0, grace=timedelta(seconds=grace))
sys.exit(asyncio.run(serve(app, settings, with_worker=with_worker, started=lambda at, _: print(at, flush=True))))
"""
DEADLINE = 20  # seconds


HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
JOB = b'{"type":"demo.echo"}'
BROKEN = [
    HEAD + b"idempotency-key: a\0b\r\ncontent-length: 20\r\n\r\n" + JOB,
    HEAD + b"content-length: -1\r\n\r\n" + JOB,
    HEAD + b"content-length: 20\r\ntransfer-encoding: chunked\r\n\r\n" + JOB,
    HEAD + b"content-length: 19\r\n\r\n" + JOB,
    b"\0\0\0\0\r\n\r\n",
]


class Service:
    """A service in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, http: httpx.AsyncClient) -> None:
        self.process, self.address, self.http = process, address, http

    async def add(self, type: str, **asked: Any) -> str:
        """The path of a new job."""
        answer = await self.http.post(JOBS, json={"type": type, **asked})
        assert answer.status_code == 201
        return answer.headers["location"]

    async def started(self, job: str) -> None:
        """Return once the job is running."""
        await eventually(lambda: self.http.get(job), lambda answer: answer.json()["status"] == "PROCESSING")

    async def said(self, words: str) -> None:
        """Return once the log says this."""
        assert self.process.stderr is not None
        assert await asyncio.to_thread(lambda lines: any(words in line for line in lines), self.process.stderr)

    async def call(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send these bytes on a line of their own."""
        host, port = self.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        await writer.drain()
        return reader, writer

    async def answer(self, request: bytes) -> bytes:
        """All that is answered to these bytes."""
        reader, writer = await self.call(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    def kill(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self.process.wait, DEADLINE)


def start(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@asynccontextmanager
async def running(database: Path, *, grace: float = 8, with_worker: bool = True) -> AsyncIterator[Service]:
    with start(f"sqlite:///{database}", str(grace), str(with_worker)) as process:
        try:
            assert process.stdout is not None
            address = (await asyncio.to_thread(process.stdout.readline)).strip()
            async with asyncio.timeout(2 * DEADLINE), httpx.AsyncClient(base_url=address, timeout=DEADLINE) as http:
                yield Service(process, address, http)
        finally:
            process.kill()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_job_runs_from_end_to_end_and_a_signal_ends_the_service(database: Path, number: int) -> None:
    async with running(database) as service:
        job = await service.add("demo.echo", payload={"hi": 1}, delay=50)
        done = (await service.http.get(f"{job}/wait")).json()
        assert (done["status"], done["result"]) == ("COMPLETED", {"hi": 1})
        assert done["startedAt"] >= done["scheduledAt"]
        assert (await service.http.get("/health/ready")).json()["status"] == "healthy"
        service.kill(number)
        assert await service.exit_code() == 0


@pytest.mark.slow
async def test_a_signal_gives_jobs_the_grace_and_then_hands_them_back(database: Path) -> None:
    async with running(database, grace=0.2) as service:
        job = await service.add("demo.sleep", payload={"seconds": 60})
        await service.started(job)
        service.kill()
        assert await service.exit_code() == 0
    async with Demora(f"sqlite:///{database}") as app:
        left = await app.get(job.rpartition("/")[2])
        assert (left.status, left.attempt, left.attempts) == (Status.QUEUED, 0, ())


@pytest.mark.slow
async def test_a_second_signal_ends_the_service_at_once(database: Path) -> None:
    async with running(database, grace=60) as service:
        await service.started(await service.add("block"))
        service.kill()
        await service.said("is stopping: 1 running")
        service.kill()
        assert await service.exit_code() == 128 + signal.SIGTERM


@pytest.mark.slow
async def test_a_signal_answers_those_who_wait(database: Path) -> None:
    async with running(database, with_worker=False) as service:
        job = await service.add("demo.echo")
        reader, writer = await service.call(f"GET {job}/wait HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        await service.answer(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")  # a later line: the first is being served
        service.kill()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert await service.exit_code() == 0


@pytest.mark.slow
async def test_without_a_worker_it_only_answers(database: Path) -> None:
    async with running(database, with_worker=False) as service:
        assert (await service.http.get("/health/ready")).json()["status"] == "degraded"
        service.kill()
        assert await service.exit_code() == 0


@pytest.mark.slow
async def test_a_broken_request_on_the_socket_is_a_400_and_stores_nothing(database: Path) -> None:
    async with running(database, with_worker=False) as service:
        for broken in BROKEN:
            assert (await service.answer(broken)).startswith(b"HTTP/1.1 400 ")
        _, writer = await service.call(HEAD + b"content-length: 900\r\n\r\n" + JOB)
        writer.close()
        assert (await service.http.get(JOBS)).json()["jobs"] == []


@pytest.mark.slow
async def test_an_answer_names_no_server_software(database: Path) -> None:
    async with running(database, with_worker=False) as service:
        headers = (await service.http.get("/")).headers
        assert ("server" in headers, "date" in headers) == (False, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "::ffff:192.168.1.5"])
async def test_an_address_that_others_can_reach_is_refused_without_a_key_in_force(host: str) -> None:
    store = SqliteStore()
    async with Demora(store=store) as app:
        client = await app.open()
        for made in [await client.keys.create("gone", ["admin"]) for _ in range(2)]:
            await client.keys.revoke(made.key.id)
        with pytest.raises(BadSetting, match=f"other machines can reach {host}.*: demora keys create NAME --scope"):
            await serve(app, Settings(host=host, port=0))


@pytest.mark.parametrize("host", ["", "example.com", "127.0.0.1.nip.io", "*", "127.1"])
async def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(BadSetting, match="is not an IP address; write"):
        await serve(Demora("sqlite://"), Settings(host=host, port=0))


async def test_an_address_of_another_machine_is_refused() -> None:
    async with Demora("sqlite://") as app:
        await (await app.open()).keys.create("ci", ["read"])
        with pytest.raises(BadSetting, match=r"host: 192\.0\.2\.1 is not an address of this machine"):
            await serve(app, Settings(host="192.0.2.1", port=0))


@pytest.mark.parametrize(
    ("host", "address"),
    [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("127.0.0.9", "127.0.0.9"), ("0.0.0.0", "127.0.0.1")],
)
def test_an_address_is_listened_on_and_told_as_this_machine_reaches_it(host: str, address: str) -> None:
    with listen(read_address(host), 0) as listener:
        assert address_of(listener) == f"http://{address}:{listener.getsockname()[1]}"


async def test_a_taken_port_is_named_with_the_way_out() -> None:
    with listen(read_address("127.0.0.1"), 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BadSetting, match=rf"{port} on 127.0.0.1 is taken .* --port"):
            await serve(Demora("sqlite://"), Settings(port=port))


async def test_a_worker_that_cannot_start_ends_the_service() -> None:
    app = Demora("sqlite://")

    @app.on_startup
    def broken() -> None:
        raise RuntimeError("no mail server")

    with pytest.raises(RuntimeError, match="no mail server"):
        await serve(app, Settings(database_url="sqlite://", port=0))
