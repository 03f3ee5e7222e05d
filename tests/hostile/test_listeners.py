"""Thousands of listeners to events and of callers that wait for a job: they cost little, and lock nobody out."""

import asyncio
import json
import resource
from pathlib import Path

import pytest

from tests.facts import eventually
from tests.hostile.services import Service, head_of, request, serving

LISTENERS = 2000
MOST_EACH = 20_000  # bytes of the service's memory
MOST_HELD = 60_000_000  # bytes, for batches on their way and some ten thousand events that one has not read
EVENTS = "/api/v1/events?queue=mail"

needs_files = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < LISTENERS + 500, reason="this machine allows too few open files"
)


@pytest.fixture(autouse=True)
def many_files() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 10_000), most))


async def listen(service: Service, path: str = EVENTS) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await service.connect()
    writer.write(request("GET", path))
    assert (await head_of(reader)).status == 200
    await reader.readuntil(b"\n\n")
    return reader, writer


async def add(service: Service, **job: object) -> None:
    answer, _ = await service.ask("POST", "/api/v1/jobs", json.dumps({"type": "demo.echo", "queue": "mail", **job}).encode())
    assert answer.status == 201


@needs_files
@pytest.mark.slow
async def test_two_thousand_listeners_cost_little_and_hear_all(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-worker", environment={"DEMORA_HTTP_CONNECTIONS": "4500"}) as service:
        warm = [await listen(service) for _ in range(20)]
        await add(service)
        before = service.memory()
        listeners = [await listen(service) for _ in range(LISTENERS)]
        assert (service.memory() - before) / LISTENERS <= MOST_EACH
        await add(service, name="heard by all")
        async with asyncio.timeout(60):
            for reader, _ in listeners:
                await reader.readuntil(b"heard by all")
        for _, writer in [*warm, *listeners]:
            writer.transport.abort()


@pytest.mark.slow
async def test_a_listener_that_does_not_read_holds_little_and_others_hear_all(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-worker") as service:
        _, slow = await listen(service)
        quick, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=2**20)
        writer.write(request("GET", EVENTS))
        await quick.readuntil(b"id: ")
        before = service.memory()
        batch = json.dumps({"jobs": [{"type": "demo.echo", "queue": "mail", "name": "x" * 200}] * 1000}).encode()
        for _ in range(12):
            answer, _ = await service.ask("POST", "/api/v1/jobs/batch", batch)
            assert answer.status == 201
            async with asyncio.timeout(60):
                await hear(quick, 1000)
        assert service.memory() - before < MOST_HELD
        for one in (slow, writer):
            one.transport.abort()


@needs_files
@pytest.mark.slow
@pytest.mark.parametrize("way", ["wait", "prefer"])
async def test_two_thousand_callers_that_wait_for_a_job_cost_little(tmp_path: Path, way: str) -> None:
    async with serving(tmp_path, "--no-worker", environment={"DEMORA_HTTP_CONNECTIONS": "4500"}) as service:
        answer, body = await service.ask("POST", "/api/v1/jobs", b'{"type":"demo.echo"}')
        assert answer.status == 201
        asked = waiting_for(json.loads(body)["id"]) if way == "wait" else PREFERRING
        warm = [await send(service, asked) for _ in range(100)]
        await answered(service)
        before = service.memory()
        callers = [await send(service, asked) for _ in range(LISTENERS)]
        await answered(service)
        assert (service.memory() - before) / LISTENERS <= MOST_EACH
        for _, writer in [*warm, *callers]:
            writer.transport.abort()


@pytest.mark.slow
async def test_listeners_and_callers_that_wait_lock_nobody_out(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-worker", environment={"DEMORA_HTTP_CONNECTIONS": "30"}) as service:
        _, body = await service.ask("POST", "/api/v1/jobs", b'{"type":"demo.echo"}')
        waits = [await send(service, waiting_for(json.loads(body)["id"])) for _ in range(5)]
        await answered(service)
        listeners = [await listen(service) for _ in range(10)]
        for path in (EVENTS, f"/api/v1/jobs/{json.loads(body)['id']}/wait"):
            refused, problem = await service.ask("GET", path)
            assert (refused.status, json.loads(problem)["type"]) == (503, "urn:demora:problem:too-many-waits")
            assert b"\r\nretry-after: 5\r\n" in refused.head
        accepted = await send(service, PREFERRING)  # its job is added, so it is answered without a wait
        assert (await head_of(accepted[0])).status == 202
        await answered(service)
        listeners.pop()[1].transport.abort()
        await eventually(lambda: service.ask("GET", "/health/live"), lambda told: told[0].status == 200)
        await eventually(lambda: heard(service), bool)
        for _, writer in [*waits, *listeners, accepted]:
            writer.transport.abort()


PREFERRING = request("POST", "/api/v1/jobs", b'{"type":"demo.echo"}').replace(b"\r\n", b"\r\nprefer: wait=60\r\n", 1)


def waiting_for(id: str) -> bytes:
    return request("GET", f"/api/v1/jobs/{id}/wait?timeout=60000")


async def send(service: Service, asked: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await service.connect()
    writer.write(asked)
    await writer.drain()
    return reader, writer


async def answered(service: Service) -> None:
    """The service has read what was sent before: it has answered requests that came later."""
    for _ in range(3):
        answer, _ = await service.ask("GET", "/health/ready")
        assert answer.status == 200


async def heard(service: Service) -> bool:
    """Whether there is a place for one more listener."""
    reader, writer = await send(service, request("GET", EVENTS))
    status = (await head_of(reader)).status
    writer.transport.abort()
    return status == 200


async def hear(reader: asyncio.StreamReader, number: int) -> None:
    for _ in range(number):
        await reader.readuntil(b"event: job.added")
