"""The grammar of requests. What it accepts, h11 accepts too and reads in the same way, so a proxy with either agrees."""

import random
from collections.abc import Iterator

import h11
import pytest

from demora.api.http_server import http1
from demora.api.http_server.http1 import MOST_HEAD, BadRequest, ChunkedBody, HeadReader, read_head

HEAD = b"POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nX-Some: a b\r\n"
JOBS = [
    HEAD + b"\r\n",
    HEAD + b"Content-Length: 11\r\n\r\nhello world",
    HEAD + b"content-length:\t0 \r\nconnection: close\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    HEAD + b"transfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n000\r\nX-T: y\r\nHost: b\r\n\r\n",
    HEAD + b"expect: 100-continue\r\ncontent-length: 5\r\n\r\nhello",
    HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello",
    b"GET / HTTP/1.0\r\n\r\n",
    b"HEAD /%20~!$&'()*+,;=:@ HTTP/1.1\r\nhost:\r\nx:\r\ny: \xc3\xa4\r\n\r\n",
]
PIECES = [b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\0", b"0", b"5", b",", b";", b"Content-Length: 5\r\n", b"host: a\r\n"]
PIECES += [b"Transfer-Encoding: chunked\r\n", b"transfer-encoding: identity\r\n", b"\r\n\r\n", b"\x0b", b"\xff", b"HTTP/1.1"]

Request = tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes, bytes]  # with the body and what is left behind it


def ours(data: bytes, cuts: Iterator[bytes]) -> Request | None:
    """The first request in the pieces of these bytes; None if it is not complete; raises `BadRequest`."""
    reader, found, body = HeadReader(), None, b""
    chunks: ChunkedBody | None = None
    for piece in cuts:
        rest = piece
        if found is None:
            read = reader.feed(piece)
            if read is None:
                continue
            found, rest = read
            chunks = ChunkedBody(len(found.headers)) if found.length is None else None
        if chunks is None:
            body += rest
        elif not chunks.ended:
            part, left = chunks.feed(rest)
            body += part
            if chunks.ended:
                return found.method, found.target, found.headers, body, left + b"".join(cuts)
    if found is None or found.length is None or len(body) < found.length:
        return None
    return found.method, found.target, found.headers, body[: found.length], body[found.length :]


def theirs(data: bytes) -> Request | None:
    """The same by h11; raises `h11.RemoteProtocolError`."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
    connection.receive_data(data)
    event, body = connection.next_event(), b""
    if not isinstance(event, h11.Request):
        return None
    while isinstance(part := connection.next_event(), h11.Data):
        body += bytes(part.data)
    if not isinstance(part, h11.EndOfMessage):
        return None
    behind, _ = connection.trailing_data
    return event.method, event.target, list(event.headers), body, behind


def whole(data: bytes) -> Iterator[bytes]:
    yield data


def cut(data: bytes, drawn: random.Random) -> Iterator[bytes]:
    while data:
        size = drawn.choice((1, 1, 2, 3, 10, 100))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("job", range(len(JOBS)))
def test_a_request_is_read_as_h11_reads_it_however_it_is_cut(job: int) -> None:
    read = ours(JOBS[job], whole(JOBS[job]))
    assert read is not None
    assert read == theirs(JOBS[job])
    for seed in range(20):
        assert ours(JOBS[job], cut(JOBS[job], random.Random(seed))) == read


def test_what_is_accepted_of_broken_requests_h11_reads_in_the_same_way() -> None:
    drawn, accepted, refused = random.Random(7), 0, 0
    for _ in range(6000):
        data = bytearray(drawn.choice(JOBS))
        for _ in range(drawn.choice((1, 1, 2, 3))):
            at = drawn.randrange(len(data) + 1)
            data[at : at + drawn.choice((0, 0, 1, 2))] = drawn.choice(PIECES)
        request = bytes(data)
        try:
            read = ours(request, whole(request))
        except BadRequest:
            refused += 1
            with pytest.raises(BadRequest):
                ours(request, cut(request, random.Random(1)))
            continue
        assert ours(request, cut(request, random.Random(1))) == read
        if read is not None:
            accepted += 1
            assert theirs(request) == read, request
    assert accepted > 300
    assert refused > 2000


def test_a_repeated_line_is_read_the_same_each_time() -> None:
    head = b"GET / HTTP/1.1\r\nHost:  a \r\nUser-Agent: me\r\nuser-agent: me"
    assert [read_head(head).headers for _ in range(3)] == [
        [(b"host", b"a"), (b"user-agent", b"me"), (b"user-agent", b"me")]
    ] * 3
    for _ in range(2):
        with pytest.raises(BadRequest, match="2 Host headers"):
            read_head(b"GET / HTTP/1.1\r\nHost:  a \r\nHost:  a ")


def test_the_server_remembers_few_short_lines_and_no_secret() -> None:
    secrets = b"authorization: Bearer s3cret\r\ncookie: s3cret\r\nidempotency-key: s3cret\r\nx-any: s3cret"
    read_head(b"GET / HTTP/1.1\r\nhost: a\r\n" + secrets + b"\r\naccept: " + b"x" * 300)
    for n in range(5000):
        read_head(b"GET / HTTP/1.1\r\nhost: a\r\nuser-agent: %d" % n)
        if n == 0:
            assert not any(b"s3cret" in line for line in http1._remembered)
        assert len(http1._remembered) <= 1024
    assert all(len(line) <= 256 for line in http1._remembered)
