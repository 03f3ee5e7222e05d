"""Request smuggling: no caller's bytes become another caller's request, also behind a proxy that pools connections."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from demora import Demora
from tests.servers import pooling
from tests.servers.service import Service, running

pytestmark = pytest.mark.slow

JOB = b'{"type":"demo.echo"}'
POST = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n"
HIDDEN = b"POST /api/v1/queues/default/pause HTTP/1.1\r\nhost: localhost\r\nx-rest: "
UPGRADES = {
    "unknown": b"connection: upgrade\r\nupgrade: foo\r\n",
    "h2c": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
    "websocket": b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eA==\r\n",
}
AMBIGUOUS = {
    "Content-Length and Transfer-Encoding": POST + b"content-length: 20\r\ntransfer-encoding: chunked\r\n\r\n" + JOB,
    "Transfer-Encoding and Content-Length": POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "two Content-Lengths": POST + b"content-length: 20\r\ncontent-length: 5\r\n\r\n" + JOB,
    "two equal Content-Lengths": POST + b"content-length: 20\r\ncontent-length: 20\r\n\r\n" + JOB,
    "a list of Content-Lengths": POST + b"content-length: 20, 20\r\n\r\n" + JOB,
    "a signed Content-Length": POST + b"content-length: +20\r\n\r\n" + JOB,
    "a hexadecimal Content-Length": POST + b"content-length: 0x14\r\n\r\n" + JOB,
    "a Content-Length with a leading zero": POST + b"content-length: 020\r\n\r\n" + JOB,
    "a Content-Length with a space in it": POST + b"content-length: 2 0\r\n\r\n" + JOB,
    "an empty Content-Length": POST + b"content-length:\r\n\r\n" + JOB,
    "an unknown transfer coding": POST + b"transfer-encoding: xchunked\r\n\r\n14\r\n" + JOB + b"\r\n0\r\n\r\n",
    "a list of transfer codings": POST + b"transfer-encoding: gzip, chunked\r\n\r\n14\r\n" + JOB + b"\r\n0\r\n\r\n",
    "identity after chunked": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a vertical tab in Transfer-Encoding": POST + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": POST.replace(b"/1.1", b"/1.0") + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded line": POST + b"x: a\r\n content-length: 5\r\ncontent-length: 20\r\n\r\n" + JOB,
    "a folded line at first": LIVE.replace(b"host", b" host") + b"\r\n",
    "a bare LF in the head": LIVE + b"x: a\ncontent-length: 20\r\n\r\n" + JOB,
    "bare LFs alone": LIVE.replace(b"\r", b"") + b"\n",
    "a bare CR": LIVE + b"x: a\rcontent-length: 20\r\n\r\n",
    "a space before the colon": POST + b"content-length : 20\r\n\r\n" + JOB,
    "a tab before the colon": POST + b"content-length\t: 20\r\n\r\n" + JOB,
    "no colon": LIVE + b"content-length\r\n\r\n",
    "an empty name": LIVE + b": x\r\n\r\n",
    "a NUL in a value": LIVE + b"x: a\0b\r\n\r\n",
    "a NUL in a name": LIVE + b"x\0y: a\r\n\r\n",
    "a control character in a value": LIVE + b"x: a\x01b\r\n\r\n",
    "a DEL in a value": LIVE + b"x: a\x7fb\r\n\r\n",
    "two hosts": LIVE + b"host: other.example\r\n\r\n",
    "two equal hosts": LIVE + b"host: localhost\r\n\r\n",
    "no host": b"GET /health/live HTTP/1.1\r\n\r\n",
    "an absolute target": b"GET http://localhost/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "an absolute target of another host": b"GET http://evil.example/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "an authority": b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "an asterisk": b"GET * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a fragment": b"GET /health/live#x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "two spaces": b"GET  /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a tab for a space": b"GET\t/health/live\tHTTP/1.1\r\nhost: localhost\r\n\r\n",
    "bytes beyond ASCII in the target": b"GET /health/\xc3\xa4 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no version": b"GET /health/live\r\nhost: localhost\r\n\r\n",
    "small letters": b"get /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a version in small letters": b"GET /health/live http/1.1\r\nhost: localhost\r\n\r\n",
    "an empty line first": b"\r\n" + LIVE + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
BROKEN_CHUNKS = {
    "an extension": b"14;a=b\r\n" + JOB + b"\r\n0\r\n\r\n",
    "a bare LF after the size": b"14\n" + JOB + b"\r\n0\r\n\r\n",
    "a bare LF after the chunk": b"14\r\n" + JOB + b"\n0\r\n\r\n",
    "two CRs after the chunk": b"14\r\n" + JOB + b"\r\r\n0\r\n\r\n",
    "a chunk longer than its size": b"13\r\n" + JOB + b"\r\n0\r\n\r\n",
    "other bytes after the chunk": b"14\r\n" + JOB + b"xx0\r\n\r\n",
    "a size with 0x": b"0x14\r\n" + JOB + b"\r\n0\r\n\r\n",
    "a signed size": b"+14\r\n" + JOB + b"\r\n0\r\n\r\n",
    "a negative size": b"-1\r\n" + JOB + b"\r\n0\r\n\r\n",
    "a size with a space": b"14 \r\n" + JOB + b"\r\n0\r\n\r\n",
    "an empty size": b"\r\n" + JOB + b"\r\n0\r\n\r\n",
    "a size of 16 digits": b"0000000000000014\r\n" + JOB + b"\r\n0\r\n\r\n",
    "a trailer with a space before its colon": b"14\r\n" + JOB + b"\r\n0\r\nx : y\r\n\r\n",
    "a trailer with a bare LF": b"14\r\n" + JOB + b"\r\n0\r\nx: y\nz: a\r\n\r\n",
}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path / "jobs.db") as service:
        yield service


@asynccontextmanager
async def with_key(database: Path) -> AsyncIterator[bytes]:
    """A header with an admin key; from then on the service asks for keys."""
    async with Demora(f"sqlite:///{database}") as app:
        await app.enqueue("demo.echo", delay="1h")  # names the queue
        made = await (await app.open()).keys.create("victim", ["admin"])
        yield f"authorization: Bearer {made.text}\r\n".encode()


@pytest.mark.parametrize("upgrade", UPGRADES)
async def test_the_body_of_a_request_to_upgrade_is_its_body(service: Service, upgrade: str) -> None:
    async with service.line() as line:
        line.send(POST + UPGRADES[upgrade] + b"content-length: 20\r\n\r\n")
        await line.writer.drain()
        line.send(JOB)
        answer = await line.answer()
        assert (answer.status, answer.json["type"]) == (201, "demo.echo")
        line.send(LIVE + UPGRADES[upgrade] + b"content-length: %d\r\n\r\n" % len(HIDDEN))
        assert (await line.answer()).json == {"status": "alive"}
        line.send(HIDDEN)
        answer = await line.ask(LIVE.replace(b"/health/live", b"/") + b"\r\n")
        assert (answer.status, answer.json["name"]) == (200, "demora")


async def attack(service: Service, port: int, upgrade: bytes) -> None:
    """Send half a request as a body, and see that the next callers get their own answers and that nothing is paused."""
    async with with_key(service.database) as key:
        for _ in range(2):
            async with service.line(port) as line:
                line.send(LIVE + upgrade + b"content-length: %d\r\n\r\n" % len(HIDDEN))
                answer = asyncio.create_task(line.answer())
                await asyncio.wait({answer}, timeout=0.3)  # Caddy keeps it back until it has the body
                line.send(HIDDEN)
                assert (await answer).status == 200
                for _ in range(3):
                    own = await service.ask(LIVE.replace(b"/health/live", b"/api/v1/jobs") + key + b"\r\n", port)
                    assert (own.status, "jobs" in own.json) == (200, True)
        queue = await service.ask(LIVE.replace(b"/health/live", b"/api/v1/queues/default") + key + b"\r\n", port)
        assert queue.json["paused"] is False


@pytest.mark.parametrize("upgrade", UPGRADES)
async def test_a_body_does_not_become_a_request_of_the_next_caller_of_a_pool(service: Service, upgrade: str) -> None:
    async with pooling.pooling(service.port) as (proxy, port):
        await attack(service, port, UPGRADES[upgrade])
        assert proxy.dialled == 1  # so all callers did share one connection


@pytest.mark.parametrize("program", pooling.PROGRAMS)
async def test_a_body_does_not_become_a_request_behind(service: Service, program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on the PATH")
    (tmp_path / program).mkdir()
    with pooling.real(program, service.port, tmp_path / program) as port:
        await attack(service, port, UPGRADES["unknown"])


async def test_what_is_ambiguous_is_refused_and_the_connection_closed(service: Service) -> None:
    for what, request in AMBIGUOUS.items():
        async with service.line() as line:
            answer = await line.ask(request + LIVE + b"\r\n")
            assert (what, answer.status, answer.headers["connection"]) == (what, 400, "close")
            assert answer.json["type"] == "urn:demora:problem:broken-request"
            assert (what, await line.closed()) == (what, b"")
    assert (await service.ask(LIVE.replace(b"/health/live", b"/api/v1/jobs") + b"\r\n")).json["jobs"] == []


async def test_the_same_bytes_one_by_one_are_refused_too(service: Service) -> None:
    for what in ("a bare LF in the head", "a folded line", "two hosts", "a space before the colon"):
        async with service.line() as line:
            for byte in AMBIGUOUS[what]:
                line.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (what, (await line.answer()).status) == (what, 400)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_broken_chunk_is_refused_and_the_connection_closed(service: Service, whole: bool) -> None:
    for what, body in BROKEN_CHUNKS.items():
        async with service.line() as line:
            if whole:
                line.send(CHUNKED + body)
            else:
                line.send(CHUNKED)
                for byte in body:
                    line.send(bytes([byte]))
                    await asyncio.sleep(0)
            assert (what, (await line.answer()).status) == (what, 400)
            assert (what, await line.closed()) == (what, b"")
    assert (await service.ask(LIVE.replace(b"/health/live", b"/api/v1/jobs") + b"\r\n")).json["jobs"] == []


async def test_another_version_of_http_is_refused(service: Service) -> None:
    for version in (b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/3"):
        answer = await service.ask(LIVE.replace(b"HTTP/1.1", version) + b"\r\n")
        assert (answer.status, answer.headers["connection"]) == (400, "close")


async def test_trailers_do_not_count_as_headers(service: Service) -> None:
    trailers = b"host: localhost\r\ncontent-length: 5\r\nidempotency-key: late\r\n"
    async with with_key(service.database) as key, service.line() as line:
        answer = await line.ask(CHUNKED + b"14\r\n" + JOB + b"\r\n0\r\n" + key + b"\r\n")
        assert answer.status == 401
    async with with_key(service.database) as key, service.line() as line:
        request = CHUNKED.replace(b"host:", key + b"host:") + b"14\r\n" + JOB + b"\r\n0\r\n" + trailers + b"\r\n"
        first, second = await line.ask(request), await line.ask(request)
        assert (first.status, second.status) == (201, 201)  # one connection, and the key in the trailer made them no one job
        assert first.json["id"] != second.json["id"]


async def test_a_host_in_a_trailer_is_no_host(service: Service) -> None:
    head = CHUNKED.replace(b"host: localhost\r\n", b"")
    assert (await service.ask(head + b"14\r\n" + JOB + b"\r\n0\r\nhost: localhost\r\n\r\n")).status == 400


async def test_pipelined_requests_are_answered_in_their_order_however_they_are_cut(service: Service) -> None:
    requests = (
        LIVE
        + b"\r\n"
        + CHUNKED
        + b"5\r\n"
        + JOB[:5]
        + b"\r\nF\r\n"
        + JOB[5:]
        + b"\r\n0\r\n\r\n"
        + POST
        + b"content-length: 20\r\n\r\n"
        + JOB
        + b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n"
        + LIVE
        + b"\r\n"
    )
    for size in (1, 7, len(requests)):
        async with service.line() as line:
            for at in range(0, len(requests), size):
                line.send(requests[at : at + size])
                await asyncio.sleep(0)
            statuses = [(await line.answer(to_head=number == 3)).status for number in range(5)]
            assert statuses == [200, 201, 201, 200, 200]


async def test_http_1_0_is_answered_and_closed_also_if_it_asks_to_stay(service: Service) -> None:
    async with service.line() as line:
        line.send(LIVE.replace(b"1.1", b"1.0") + b"connection: keep-alive\r\n\r\n" + LIVE + b"\r\n")
        answer = await line.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await line.closed() == b""


async def test_a_caller_that_sends_on_after_its_refusal_can_read_why(service: Service) -> None:
    """The answer is not lost to a reset, since what comes is taken in."""
    async with with_key(service.database) as _, service.line() as line:
        line.send(POST + b"content-length: 3000000\r\n\r\n")
        for _ in range(30):
            line.send(b"x" * 100_000)
            await line.writer.drain()
        answer = await line.answer()
        assert answer.status == 401
        assert await line.closed() == b""
