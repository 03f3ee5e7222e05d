"""What callers without a key can take of the service is bounded: memory, processor time, connections, file descriptors."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from demora.api.http_server.connection import Limits
from demora.api.http_server.http1 import MOST_HEAD
from demora.api.http_server.server import Connections, _counted
from demora.errors import BadSetting
from demora.settings import load
from tests.facts import eventually
from tests.servers.service import Line, Service, running

slow = pytest.mark.slow

MEGABYTE = 1024 * 1024
LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
HALF = LIVE + b"x: "
# What is sent first, what is then sent without end, and the answer.
ENDLESS = {
    "header lines": (LIVE, b"X: y\r\n", 431),
    "a header value": (HALF, b"y", 431),
    "a header name": (LIVE, b"y", 431),
    "a URL": (b"GET /", b"y", 414),
    "a query": (b"GET /?", b"y=y&", 414),
    "a method": (b"", b"Y", 414),
    "folded lines": (HALF, b"y\r\n ", 431),
    "empty lines": (b"", b"\r\n", 400),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n", 431),
    "a trailer": (CHUNKED + b"0\r\nx: ", b"y", 431),
    "a chunk extension": (CHUNKED + b"1;", b"y", 400),
    "the size of a chunk": (CHUNKED, b"0", 400),
}
SENT = 40 * MEGABYTE


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path / "jobs.db") as service:
        yield service


@asynccontextmanager
async def limited(tmp_path: Path, **limits: float) -> AsyncIterator[Service]:
    async with running(tmp_path / "jobs.db", limits=limits) as service:
        yield service


async def at_rest(service: Service) -> int:
    """How many sockets the service has open without a connection; its database is open."""
    async with service.line() as line:
        assert (await line.ask(LIVE.replace(b"/health/live", b"/api/v1/jobs") + b"\r\n")).status == 200
        return service.connections - 1


async def flood(line: Line, first: bytes, then: bytes) -> int:
    """Send more than any limit; answers with the status of the answer. Then send on until the other side hangs up."""
    block = then * (64 * 1024 // len(then))
    line.send(first + block + block)
    status = (await line.answer()).status
    with contextlib.suppress(ConnectionError):
        for _ in range(SENT // len(block)):
            line.send(block)
            await line.writer.drain()
        raise AssertionError("it never hung up")
    return status


@slow
async def test_what_has_no_end_is_refused_early_in_little_memory_and_time(service: Service) -> None:
    await service.ask(LIVE + b"\r\n")
    for what, (first, then, status) in ENDLESS.items():
        memory, cpu = service.memory, service.cpu_seconds
        async with service.line() as line:
            assert (what, await flood(line, first, then)) == (what, status)
        assert (await service.ask(LIVE + b"\r\n")).status == 200
        assert (what, service.memory - memory < 5 * MEGABYTE) == (what, True)
        assert (what, service.cpu_seconds - cpu < 1) == (what, True)


@slow
async def test_an_endless_head_in_single_bytes_costs_no_more(service: Service) -> None:
    """What has come of a head is not copied again with each byte that comes."""
    memory, cpu = service.memory, service.cpu_seconds
    async with service.line() as line:
        line.send(HALF)
        for _ in range(MOST_HEAD // 32):
            line.send(b"y" * 32)
            await line.writer.drain()
            await asyncio.sleep(0)
        assert (await line.answer()).status == 431
    assert service.memory - memory < 5 * MEGABYTE
    assert service.cpu_seconds - cpu < 2


@slow
async def test_a_head_within_its_limits_is_served(service: Service) -> None:
    async with service.line() as line:
        assert (await line.ask(LIVE + b"x: y\r\n" * 99 + b"\r\n")).status == 200
        large = LIVE + b"x: " + b"y" * (MOST_HEAD - len(LIVE) - 7) + b"\r\n\r\n"
        assert len(large) == MOST_HEAD
        assert (await line.ask(large)).status == 200
    assert (await service.ask(large.replace(b"x:", b"xx:"))).status == 431
    assert (await service.ask(LIVE + b"x: y\r\n" * 100 + b"\r\n")).status == 431


@slow
async def test_a_refusal_of_the_server_is_a_problem_like_any_other(service: Service) -> None:
    answer = await service.ask(LIVE + b"x: y\r\n" * 100 + b"\r\n")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    assert answer.json == {
        "type": "urn:demora:problem:headers-too-large",
        "title": "Headers too large",
        "status": 431,
        "detail": "the request has more than 100 headers",
        "requestId": answer.headers["x-request-id"],
    }


@slow
async def test_unfinished_requests_end_at_their_deadline(tmp_path: Path) -> None:
    async with limited(tmp_path, head=0.3, body=0.3, keep_alive=0.3, linger=0.3) as service, AsyncExitStack() as lines:
        sockets = await at_rest(service)
        silent, half, idle, slow_body, chunks = [await lines.enter_async_context(service.line()) for _ in range(5)]
        half.send(HALF)
        assert (await idle.ask(LIVE + b"\r\n")).status == 200
        slow_body.send(POST + b"content-length: 20\r\n\r\n{")
        chunks.send(CHUNKED + b"5\r\n")
        assert await silent.closed() == b""
        assert await idle.closed() == b""
        for line in (half, slow_body, chunks):
            assert (await line.closed()).startswith(b"HTTP/1.1 408 ")
        await eventually(lambda: asyncio.to_thread(lambda: service.connections), lambda now: now <= sockets)


@slow
async def test_a_head_that_trickles_has_one_deadline_and_not_one_for_each_byte(tmp_path: Path) -> None:
    async with limited(tmp_path, head=0.4) as service, service.line() as line:
        answer = asyncio.create_task(line.answer())
        line.send(HALF)
        while not answer.done():
            line.send(b"y")
            await asyncio.sleep(0.01)
        assert (await answer).status == 408


@slow
async def test_a_body_that_comes_at_the_rate_is_read_to_its_end(tmp_path: Path) -> None:
    async with limited(tmp_path, body=0.4, rate=100) as service, service.line() as line:
        line.send(POST + b"content-length: 1000\r\n\r\n")
        for part in (b'{"type":"demo.echo"}', *[b" " * 98] * 10):
            line.send(part)
            await asyncio.sleep(0.1)  # twice the allowance in all
        assert (await line.answer()).status == 201


@slow
async def test_a_request_that_waits_for_its_answer_has_no_deadline_of_the_connection(tmp_path: Path) -> None:
    async with limited(tmp_path, head=0.1, body=0.1, answer=0.1, keep_alive=0.1) as service, service.line() as line:
        job = await service.ask(POST + b"content-length: 20\r\n\r\n" + b'{"type":"demo.echo"}')
        path = job.headers["location"].encode()
        line.send(LIVE.replace(b"/health/live", path + b"/wait?timeout=1000") + b"\r\n")
        assert (await line.answer()).json["status"] == "QUEUED"


@slow
async def test_a_request_behind_one_that_waits_is_answered_after_it(service: Service) -> None:
    job = await service.ask(POST + b"content-length: 20\r\n\r\n" + b'{"type":"demo.echo"}')
    path = job.headers["location"].encode()
    async with service.line() as line:
        line.send(LIVE.replace(b"/health/live", path + b"/wait?timeout=300") + b"\r\n")
        line.send(LIVE + b"\r\n")
        assert (await line.answer()).json["status"] == "QUEUED"
        assert (await line.answer()).json == {"status": "alive"}
        assert (await line.ask(LIVE + b"\r\n")).json == {"status": "alive"}


@slow
async def test_a_caller_that_does_not_read_its_answers_is_cut_off(tmp_path: Path) -> None:
    async with limited(tmp_path, answer=0.5) as service:
        sockets = await at_rest(service)
        async with service.line(receive_buffer=4096) as line:
            line.reader._limit = 1024  # type: ignore[attr-defined]  # the stream stops reading from the socket
            request = LIVE.replace(b"/health/live", b"/api/v1/openapi.json") + b"\r\n"
            with contextlib.suppress(ConnectionError, TimeoutError):
                for _ in range(2000):
                    line.send(request * 50)
                    await asyncio.wait_for(line.writer.drain(), 0.2)
            await eventually(lambda: asyncio.to_thread(lambda: service.connections), lambda now: now <= sockets)
        assert (await service.ask(LIVE + b"\r\n")).status == 200


@slow
async def test_unfinished_requests_beyond_the_cap_lock_nobody_out(tmp_path: Path) -> None:
    async with limited(tmp_path, connections=50, head=60) as service, AsyncExitStack() as lines:
        for _ in range(120):
            line = await lines.enter_async_context(service.line())
            line.send(HALF)
        for _ in range(3):  # in the middle of the burst there may be no complete connection to give way
            assert await eventually(lambda: _status(service), lambda status: status == 200, within=20)


@slow
async def test_a_caller_beyond_the_cap_gets_503_at_once_if_all_others_are_served(tmp_path: Path) -> None:
    async with limited(tmp_path, connections=20) as service, AsyncExitStack() as lines:
        job = await service.ask(POST + b"content-length: 20\r\n\r\n" + b'{"type":"demo.echo"}')
        waiting = LIVE.replace(b"/health/live", job.headers["location"].encode() + b"/wait?timeout=60000") + b"\r\n"
        waits: list[Line] = []

        async def with_one_more() -> int:
            waits.append(await lines.enter_async_context(service.line()))
            waits[-1].send(waiting)
            return await beyond()

        async def beyond() -> int:
            answer = await service.ask(LIVE + b"\r\n")
            return answer.status if answer.status == 200 else 1000 * int(answer.headers["retry-after"]) + answer.status

        assert await eventually(with_one_more, lambda status: status != 200) == 1503
        assert 20 <= len(waits) < 30
        waits[0].close()
        assert await eventually(beyond, lambda status: status == 200)


@slow
@pytest.mark.parametrize("uvloop", [True, False])
async def test_a_process_without_file_descriptors_goes_on(tmp_path: Path, uvloop: bool) -> None:
    """Something else in the process has opened nearly all files that it may have. Housekeeping may open some of the rest."""
    async with running(tmp_path / "jobs.db", limits={"head": 60}, files_left=20, uvloop=uvloop) as service:
        async with AsyncExitStack() as lines:
            for _ in range(100):
                with contextlib.suppress(ConnectionError):
                    line = await lines.enter_async_context(service.line())
                    line.send(HALF)
            cpu = service.cpu_seconds
            await asyncio.sleep(0.5)
            assert service.cpu_seconds - cpu < 0.25
            assert await eventually(lambda: _status(service), lambda status: status == 200, within=20)
        assert await eventually(lambda: _status(service), lambda status: status == 200)


async def _status(service: Service) -> int:
    try:
        return (await service.ask(LIVE + b"\r\n")).status
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0


@slow
async def test_a_signal_ends_idle_and_half_open_connections_and_answers_the_rest(tmp_path: Path) -> None:
    async with limited(tmp_path, head=60) as service, AsyncExitStack() as lines:
        job = await service.ask(POST + b"content-length: 20\r\n\r\n" + b'{"type":"demo.echo"}')
        silent, half, idle, waits = [await lines.enter_async_context(service.line()) for _ in range(4)]
        half.send(HALF)
        waits.send(LIVE.replace(b"/health/live", job.headers["location"].encode() + b"/wait?timeout=60000") + b"\r\n")
        assert (await idle.ask(LIVE + b"\r\n")).status == 200
        service.kill()
        assert (await waits.answer()).status == 200
        assert [await line.closed() for line in (silent, half, idle, waits)] == [b""] * 4
        assert await service.ended() == 0


async def test_an_address_has_its_share_and_those_of_proxies_and_of_this_machine_have_all() -> None:
    connections = Connections(Limits(connections=30, per_address=2, trusted=(ip_network("10.0.0.0/8"),)))
    first, second = connections.admit("192.0.2.1"), connections.admit("::ffff:192.0.2.1")
    assert first is not None
    assert second is not None
    assert connections.admit("192.0.2.1") is None
    assert connections.admit("192.0.2.2") is not None
    connections.free(first)
    connections.free(first)  # once is enough
    assert connections.admit("192.0.2.1") is not None
    assert connections.admit("192.0.2.1") is None
    for host in ("10.1.2.3", "127.0.0.1", "::1"):
        assert all(connections.admit(host) for _ in range(5))
    assert all(connections.admit(f"2001:db8::{number}") for number in (1, 2))
    assert connections.admit("2001:db8::3") is None  # one /64 is one caller
    assert connections.admit("2001:db8:0:1::3") is not None


def test_a_link_local_address_is_counted_without_its_zone() -> None:
    assert _counted("fe80::1%eth0", Limits()) == "fe80::/64"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("http_connections", 15),
        ("http_connections_per_address", 0),
        ("trusted_proxies", ["10.0.0.1/8"]),
        ("trusted_proxies", ["proxy.example"]),
    ],
)
def test_a_setting_of_connections_that_cannot_be_used_is_refused(name: str, value: object) -> None:
    with pytest.raises(BadSetting, match=name):
        load({}, **{name: value})
