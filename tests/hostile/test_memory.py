"""Callers that send and do not end, or ask and do not read, hold little of the service's memory."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.facts import eventually
from tests.hostile.services import Answer, Service, head_of, request, serving

MEGABYTE = 1024 * 1024
BUDGET = 48 * MEGABYTE
SLACK = 40 * MEGABYTE  # what the process may use besides: copies on their way, caches, the allocator's leftovers
JOBS = 45  # of a megabyte each
CALLERS = 12
BATCH = "/api/v1/jobs/batch"


@pytest.mark.slow
@pytest.mark.parametrize("query", ["limit=200", "limit=200&fields=payload,result"])
async def test_pages_that_are_not_read_hold_little(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path, "--no-worker", environment={"DEMORA_IN_FLIGHT_BYTES": str(BUDGET)}) as service:
        await fill(service)
        before = service.memory()
        callers = [await service.connect() for _ in range(CALLERS)]
        for _, writer in callers:
            writer.write(request("GET", f"/api/v1/jobs?{query}"))
        answers = await asyncio.gather(*[head_of(reader) for reader, _ in callers])
        assert 200 in {answer.status for answer in answers}
        assert service.memory() - before < BUDGET + SLACK
        await answers_small_requests(service)
        for _, writer in callers:
            writer.transport.abort()


@pytest.mark.slow
async def test_a_page_of_large_payloads_ends_early_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-worker") as service:
        await fill(service, jobs=15)
        seen: list[str] = []
        cursor = ""
        while cursor is not None:
            answer, body = await service.ask("GET", f"/api/v1/jobs?limit=200&fields=payload{cursor}")
            assert (answer.status, len(body) < 5 * MEGABYTE) == (200, True)
            page = json.loads(body)
            seen += [job["id"] for job in page["jobs"] if len(job["payload"]["text"]) > 1_000_000]
            cursor = page["nextCursor"] and f"&cursor={page['nextCursor']}"
        assert len(seen) == len(set(seen)) == 15


@pytest.mark.slow
async def test_uploads_that_stop_before_their_end_hold_no_more_than_the_budget(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-worker", environment={"DEMORA_IN_FLIGHT_BYTES": str(BUDGET)}) as service:
        before = service.memory()
        callers = [await service.connect() for _ in range(CALLERS)]
        refused = [asyncio.ensure_future(head_of(reader)) for reader, _ in callers]
        sent = [asyncio.ensure_future(upload(writer, 15 * MEGABYTE)) for _, writer in callers]
        fit = BUDGET // (15 * MEGABYTE)
        await eventually(lambda: count(refused), lambda number: number >= CALLERS - fit)
        assert {one.result().status for one in refused if one.done()} == {503}
        assert all(b"\r\nretry-after: 1\r\n" in one.result().head for one in refused if one.done())
        await asyncio.gather(*sent)
        assert service.memory() - before < BUDGET + SLACK
        await answers_small_requests(service)
        answer, body = await service.ask("POST", BATCH, batch(4))
        assert (answer.status, json.loads(body)["type"]) == (503, "urn:demora:problem:too-much-in-flight")
        for one, (_, writer) in zip(refused, callers, strict=True):
            one.cancel()
            writer.transport.abort()
        await eventually(lambda: service.ask("POST", BATCH, batch(4)), lambda told: told[0].status == 201)
    said = [json.loads(line) for line in (tmp_path / "service.log").read_text().splitlines()]
    assert [line["event"] for line in said].count("service.overloaded") == 1  # not a line for each


async def fill(service: Service, jobs: int = JOBS) -> None:
    for _ in range(jobs // 15):
        answer, _ = await service.ask("POST", BATCH, batch(15))
        assert answer.status == 201


def batch(jobs: int) -> bytes:
    job = {"type": "demo.echo", "delay": 10**9, "payload": {"text": "x" * (MEGABYTE - 100)}}
    return json.dumps({"jobs": [job] * jobs}).encode()


async def upload(writer: asyncio.StreamWriter, size: int) -> None:
    """Send so much of a batch, which says that it is longer. What is refused may be cut off."""
    writer.write(request("POST", BATCH, b'{"jobs":[' + b" " * (size - 9), length=16 * MEGABYTE))
    try:
        await writer.drain()
    except ConnectionError:
        return


async def count(answers: "list[asyncio.Task[Answer]]") -> int:
    return sum(answer.done() for answer in answers)


async def answers_small_requests(service: Service) -> None:
    for method, path, body in (
        ("GET", "/health/ready", b""),
        ("GET", "/api/v1/jobs?limit=1", b""),
        ("POST", "/api/v1/jobs", b'{"type":"demo.echo","delay":1000000}'),
    ):
        answer, _ = await service.ask(method, path, body)
        assert answer.status in (200, 201), path
