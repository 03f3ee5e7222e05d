"""What the server does with the messages of an application, good and bad."""

import asyncio
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from demora.api.http_server.exchange import Exchange


class Wire:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.written, self.closed, self.answers = b"", False, 0
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.written += data
        self.writes += 1

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def answered(self) -> None:
        self.answers += 1


def exchange(wire: Wire, **options: bool) -> Exchange:
    usual = {"head_only": False, "keep_alive": True, "expects_continue": False}
    return Exchange(wire, FlowControl(None), [(b"date", b"today")], **usual | options)  # type: ignore[arg-type]


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(part: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": part, "more_body": more}


async def test_an_answer_with_a_length_is_written_as_it_is() -> None:
    wire = Wire()
    here = exchange(wire)
    await here.send(start((b"Content-Length", b"2"), status=201))
    await here.send(body(b"o", more=True))
    assert (here.is_complete(), wire.answers) == (False, 0)
    await here.send(body(b"k"))
    assert wire.written == b"HTTP/1.1 201 Created\r\ndate: today\r\ncontent-length: 2\r\n\r\nok"
    assert (here.is_complete(), wire.answers, wire.closed) == (True, 1, False)


async def test_an_answer_in_one_piece_is_one_write() -> None:
    wire = Wire()
    here = exchange(wire)
    await here.send(start((b"content-length", b"2")))
    await here.send(body(b"ok"))
    assert (wire.written[-2:], wire.writes) == (b"ok", 1)


async def test_the_head_of_a_stream_is_written_at_once() -> None:
    wire = Wire()
    await exchange(wire).send(start())
    assert wire.written.endswith(b"transfer-encoding: chunked\r\n\r\n")


async def test_an_answer_without_a_length_is_chunked() -> None:
    wire = Wire()
    here = exchange(wire, keep_alive=False)
    await here.send(start(status=299))
    await here.send(body(b"", more=True))
    await here.send(body(b"0123456789", more=True))
    await here.send(body(b"k"))
    head = b"HTTP/1.1 299 \r\ndate: today\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    assert wire.written == head + b"a\r\n0123456789\r\n1\r\nk\r\n0\r\n\r\n"
    assert wire.closed


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_is_not_chunked(status: int) -> None:
    wire = Wire()
    here = exchange(wire)
    await here.send(start(status=status))
    await here.send(body(b""))
    assert wire.written.endswith(b"\r\ndate: today\r\n\r\n")


async def test_the_answer_to_head_has_its_headers_alone() -> None:
    wire = Wire()
    here = exchange(wire, head_only=True)
    await here.send(start((b"content-length", b"2")))
    await here.send(body(b"ok"))
    assert wire.written.endswith(b"content-length: 2\r\n\r\n")
    assert here.is_complete()


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb", b"a\r", b"a\0b", b"\x7f", b"\x1b[2J"])
@pytest.mark.parametrize("behind", [(), ((b"x-last", b"1"),)])
async def test_a_header_cannot_end_its_line(value: bytes, behind: tuple[tuple[bytes, bytes], ...]) -> None:
    wire = Wire()
    with pytest.raises(RuntimeError, match="control character"):
        await exchange(wire).send(start((b"location", value), *behind))
    assert wire.written == b""


@pytest.mark.parametrize("name", [b"", b"a b", b"a:", b"a\r\nb", b"\xe9"])
async def test_a_header_has_a_valid_name(name: bytes) -> None:
    with pytest.raises(RuntimeError, match="no valid name"):
        await exchange(Wire()).send(start((name, b"1")))


@pytest.mark.parametrize("text", [b"longer", b"s"])
async def test_an_answer_has_the_length_that_it_declares(text: bytes) -> None:
    here = exchange(Wire())
    await here.send(start((b"content-length", b"2")))
    with pytest.raises(RuntimeError, match="than its Content-Length"):
        await here.send(body(text))
    assert not here.is_complete()


EMPTY = (start((b"content-length", b"0")), body(b""))


@pytest.mark.parametrize("messages", [(body(b""),), (start(), start()), (*EMPTY, body(b"")), (*EMPTY, start())])
async def test_messages_come_in_their_order(messages: tuple[dict[str, Any], ...]) -> None:
    here = exchange(Wire())
    for message in messages[:-1]:
        await here.send(message)
    with pytest.raises(RuntimeError, match="when another message was due"):
        await here.send(messages[-1])


async def test_the_body_is_received_as_it_arrives_and_then_the_end_of_the_connection() -> None:
    wire = Wire()
    here = exchange(wire, expects_continue=True)
    received = asyncio.ensure_future(here.receive())
    await asyncio.sleep(0)
    assert wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert here.add_to_body(b"one") == 3
    assert await received == {"type": "http.request", "body": b"one", "more_body": True}
    here.add_to_body(b"two")
    here.end_body()
    assert await here.receive() == {"type": "http.request", "body": b"two", "more_body": False}
    here.disconnect()
    assert await here.receive() == {"type": "http.disconnect"}
    await here.send(start())
    assert wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("begins", [False, True])
async def test_an_application_that_fails_is_answered_for_or_cut_off(begins: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        if begins:
            await send(start((b"content-length", b"2")))
        raise ValueError

    async def stops_early(scope: Any, receive: Any, send: Any) -> None:
        if begins:
            await send(start((b"content-length", b"2")))

    for application in (fails, stops_early):
        wire = Wire()
        await exchange(wire).run(application, {})
        assert wire.closed
        assert wire.written.startswith(b"HTTP/1.1 200" if begins else b"HTTP/1.1 500 Internal Server Error\r\n")
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


async def test_parts_of_a_body_that_came_before_it_is_read_are_one() -> None:
    here = exchange(Wire())
    first = b"one"
    sizes = [here.add_to_body(part) for part in (first, b" two", b" three")]
    assert sizes == [3, 7, 13]
    assert await here.receive() == {"type": "http.request", "body": b"one two three", "more_body": True}
    assert first == b"one"
    here.add_to_body(b"!")
    here.end_body()
    assert await here.receive() == {"type": "http.request", "body": b"!", "more_body": False}


async def test_an_application_waits_for_each_part_of_a_body() -> None:
    here = exchange(Wire())
    for part in (b"a", b"b"):
        waiting = asyncio.ensure_future(here.receive())
        await asyncio.sleep(0)
        assert not waiting.done()
        here.add_to_body(part)
        assert (await asyncio.wait_for(waiting, 5))["body"] == part
    waiting = asyncio.ensure_future(here.receive())
    await asyncio.sleep(0)
    here.end_body()
    assert await asyncio.wait_for(waiting, 5) == {"type": "http.request", "body": b"", "more_body": False}


async def test_all_who_wait_for_the_end_of_a_caller_are_told() -> None:
    here = exchange(Wire())
    here.end_body()
    await here.receive()
    waiting = [asyncio.ensure_future(here.receive()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    here.disconnect()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [{"type": "http.disconnect"}] * 2
