"""Compressed answers: for callers that take gzip, from 1 KiB on, and never with payloads or results."""

import gzip
from typing import Any

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.api.answers import CHUNK, LEAST_COMPRESSED, Listing, Reply
from demora.api.budget import UNCOUNTED, Budget
from demora.metrics.service import ServiceMetrics
from demora.settings import Settings
from tests.api.asking import JOBS, add
from tests.api.conftest import BASE

GZIP = {"accept-encoding": "gzip"}
PLAIN = {"accept-encoding": "identity"}


async def some_jobs(app: Demora) -> None:
    await app.enqueue_many([("demo.echo", {"secret": "x" * 2000})] * 5)


@pytest.mark.parametrize("path", [JOBS, "/api/v1/openapi.json", "/api/v1/queues"])
async def test_a_large_list_is_compressed_for_who_takes_gzip(http: httpx.AsyncClient, app: Demora, path: str) -> None:
    await some_jobs(app)
    await app.enqueue_many([("demo.echo", {}, {"queue": f"q{n}"}) for n in range(9)])
    packed, plain = await http.get(path, headers=GZIP), await http.get(path, headers=PLAIN)
    assert (packed.headers["content-encoding"], packed.json()) == ("gzip", plain.json())
    assert "content-length" not in packed.headers
    assert "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        *((form, True) for form in ("gzip", "GZIP", "x-gzip", "br, gzip", "gzip;q=1", "gzip ; q=0.5, br", "gzip;q=1.000")),
        *((form, False) for form in ("", "br", "*", "gzip;q=0", "gzip; q=0.000", "notgzip", "gzipped", "gzip;q=x")),
    ],
)
async def test_only_gzip_that_is_accepted_by_name_is_sent(http: httpx.AsyncClient, accepted: str, packed: bool) -> None:
    answer = await http.get("/api/v1/openapi.json", headers={"accept-encoding": accepted})
    assert ("content-encoding" in answer.headers) == packed


@pytest.mark.parametrize("path", ["/docs", "/metrics", "/api/v1/metrics/overview"])
async def test_pages_and_metrics_are_compressed_too(app: Demora, path: str) -> None:
    transport = httpx.ASGITransport(make_api(app, Settings(), ServiceMetrics()))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
        packed, plain = await http.get(path, headers=GZIP), await http.get(path, headers=PLAIN)
    assert (packed.status_code, packed.headers["content-encoding"]) == (200, "gzip")
    assert packed.headers["content-type"] == plain.headers["content-type"]
    assert len(packed.text) >= LEAST_COMPRESSED


async def test_payloads_and_results_are_never_compressed(http: httpx.AsyncClient, app: Demora) -> None:
    job = await add(http, payload={"secret": "x" * 2000})
    one = f"{JOBS}/{job['id']}"
    answers = [
        await http.get(path, headers=GZIP) for path in (one, f"{one}/wait?timeout=0", f"{JOBS}?fields=payload,result")
    ]
    answers.append(await http.post(JOBS, json={"type": "demo.echo", "payload": job["payload"]}, headers=GZIP))
    answers.append(await http.post(f"{one}/cancel", headers=GZIP))
    for answer in answers:
        assert "x" * 2000 in answer.text
        assert "content-encoding" not in answer.headers


async def sent(reply: Reply, budget: Budget) -> tuple[dict[bytes, bytes], list[bytes], set[int]]:
    """The headers, the chunks and the bytes that were held when they were sent."""
    messages: list[Any] = []
    held: set[int] = set()

    async def send(message: Any) -> None:
        messages.append(message)
        held.add(budget.held)

    with budget.share() as share:
        await reply.send(send, "id", share, gzip=True)
    return dict(messages[0]["headers"]), [message["body"] for message in messages[1:]], held


async def test_the_budget_counts_an_answer_before_it_is_compressed() -> None:
    listing = Listing("items", ["x" * 50_000] * 20)
    headers, chunks, held = await sent(Reply(200, listing, compressible=True), Budget(10**7))
    whole = b"".join(listing.pieces())
    assert (headers[b"content-encoding"], gzip.decompress(b"".join(chunks))) == (b"gzip", whole)
    assert held == {len(whole) - UNCOUNTED}
    assert len(chunks) > len(whole) // (2 * CHUNK)


@pytest.mark.parametrize(("size", "packed"), [(LEAST_COMPRESSED - 1, False), (LEAST_COMPRESSED, True)])
async def test_a_small_answer_is_not_compressed(size: int, packed: bool) -> None:
    headers, _, _ = await sent(Reply(200, "x" * (size - 2), compressible=True), Budget(10**7))
    assert (b"content-encoding" in headers, b"content-length" in headers) == (packed, not packed)


async def test_an_http_1_0_caller_gets_no_compressed_answer(http: httpx.AsyncClient) -> None:
    transport = http._transport
    assert isinstance(transport, httpx.ASGITransport)
    inner = transport.app

    async def old(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "http_version": "1.0"}, receive, send)

    transport.app = old
    assert "content-encoding" not in (await http.get("/api/v1/openapi.json", headers=GZIP)).headers
