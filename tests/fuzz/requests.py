"""What is sent: requests that are right in most places and wrong in some, drawn from the table of routes with a seed."""

import random
import re
from typing import Any, NamedTuple

import msgspec

from demora.api.operations.operation import Operation
from demora.api.routes import ROUTES

NO_SUCH_ID = "01900000-0000-7000-8000-000000000000"
TEXTS = (
    *(
        "",
        " ",
        "a",
        "demo.echo",
        "demo.fail",
        "HIGH",
        "QUEUED",
        "FAILED,CANCELLED",
        "default",
        "q1",
        "mail",
        "\0",
        "a\0b",
        "é",
        "\ufffd",
    ),
    *(
        "x" * 64,
        "x" * 65,
        "x" * 300,
        "x" * 5000,
        "../../etc/passwd",
        "'; drop table jobs; --",
        '"',
        "\\",
        "\u202e",
        "\U0001f600",
    ),
    *("2030-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00", "2030-02-30T00:00:00Z", "now", "NaN"),
    *(
        "type+payload",
        "keep",
        "replace",
        "7d",
        "7d,1000",
        "forever",
        "99999999d",
        "-1",
        "1e9",
        "true",
        "null",
        "payload",
        "log",
    ),
    *("https://127.0.0.1/", "http://[::1]/", "https://a b/", "https://", "file:///etc/passwd", "https://" + "a" * 3000),
)
NUMBERS = (0, 1, -1, 2, 50, 200, 201, 1000, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 0.5, -0.0, 1e308)
# JSON that no encoder writes.
RAW = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"01", b"1.", b"+1", b".5", b"0x1", b"tru", b"'a'", b"nul", b"", b"-"),
    *(
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\\u0000"',
        b'"\\x"',
        b'"\\u12"',
        b'"\x00"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"open',
    ),
    *(
        b"[" * 40 + b"]" * 40,
        b"[" * 3000,
        b'{"a":' * 1500,
        b"[" * 1100 + b"]" * 1100,
        b'{"a":1,"a":2}',
        b"[1,]",
        b"{,}",
        b"9" * 400,
    ),
)
PATHS = (
    *(
        b"//",
        b"/.",
        b"/..",
        b"/%2e%2e/",
        b"/%00",
        b"/%",
        b"/%zz",
        b"/\xff",
        b"/api",
        b"/api/v1",
        b"/api/v1/",
        b"/api/v1/jobs/",
    ),
    *(
        b"/api/v1/jobs//why",
        b"/api/v1/jobs/%2f",
        b"/API/V1/JOBS",
        b"/api/v2/jobs",
        b"/" + b"a" * 8000,
        b"/favicon.ico",
        b"/;a=b",
    ),
    *(
        b"/api/v1/jobs/batch",
        b"/api/v1/jobs/\xc3\xa9",
        b"/api/v1/queues/" + b"q" * 65,
        b"*",
        b"http://localhost/health/live",
    ),
)
HEADERS = (
    *(
        b"content-type: text/plain",
        b"content-type: application/json; charset=latin-1",
        b"content-type: ",
        b"content-encoding: gzip",
    ),
    *(
        b"content-type: application/x-www-form-urlencoded",
        b"idempotency-key: ",
        b"idempotency-key: \xff\xfe",
        b"expect: 100-continue",
    ),
    *(
        b"idempotency-key: " + b"k" * 300,
        b"authorization: Bearer dmr_x_y",
        b"authorization: Basic eA==",
        b"authorization: Bearer",
    ),
    *(
        b"origin: http://evil.example",
        b"sec-fetch-site: cross-site",
        b"origin: null",
        b"accept: \x7f",
        b"x-a: " + b"b" * 4000,
    ),
    *(
        b"cookie: a=b",
        b"range: bytes=0-",
        b"if-none-match: *",
        b"x-http-method-override: DELETE",
        b"forwarded: for=1",
        b"te: trailers",
    ),
)
HOSTS = (b"localhost", b"127.0.0.1", b"LOCALHOST:1", b"evil.example", b"", b"localhost, evil", b"[::1]:8080", b"127.0.0.1:x")
# What is no HTTP, or hardly: sent on a connection of its own.
BROKEN = (
    *(
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\r\n\r\n\r\n",
    ),
    *(
        b"GET /health/live HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET ",
    ),
    *(
        b"GET / HTTP/1.1\nhost: localhost\n\n",
        b"GET / HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
    ),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x\r\n\r\n",
)
POST = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
ECHO = b'{"type":"demo.echo","delay":1000000}'
FRAMINGS = (
    *(b"content-length: -1\r\n\r\n" + ECHO, b"content-length: 5, 5\r\n\r\n" + ECHO, b"content-length: 1e3\r\n\r\n" + ECHO),
    *(b"content-length: 36\r\ncontent-length: 37\r\n\r\n" + ECHO, b"content-length: 99999999999999999999999\r\n\r\n" + ECHO),
    *(
        b"content-length: 36\r\ntransfer-encoding: chunked\r\n\r\n24\r\n" + ECHO + b"\r\n0\r\n\r\n",
        b"content-length: 100\r\n\r\n" + ECHO,
    ),
    *(
        b"transfer-encoding: chunked\r\n\r\nzz\r\n" + ECHO,
        b"transfer-encoding: chunked\r\n\r\n-1\r\n",
        b"content-length: 3\r\n\r\n" + ECHO,
    ),
    *(b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n"),
    *(
        b"transfer-encoding: chunked\r\n\r\n24;a=b\r\n" + ECHO + b"\r\n0\r\nx-trailer: y\r\n\r\n",
        b"expect: 100-continue\r\n\r\n",
    ),
)


class Sent(NamedTuple):
    """A request that is framed as HTTP wants it, in its parts."""

    method: bytes
    path: bytes
    headers: tuple[bytes, ...] = ()
    body: bytes | None = None
    host: bytes = b"localhost"
    chunked: bool = False

    def written(self) -> bytes:
        lines = [b"%s %s HTTP/1.1" % (self.method, self.path), b"host: " + self.host, *self.headers]
        if self.body is None:
            return b"\r\n".join(lines) + b"\r\n\r\n"
        if self.chunked:
            parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in _parts(self.body)]
            return b"\r\n".join([*lines, b"transfer-encoding: chunked"]) + b"\r\n\r\n" + b"".join(parts) + b"0\r\n\r\n"
        return b"\r\n".join([*lines, b"content-length: %d" % len(self.body)]) + b"\r\n\r\n" + self.body


class Requests:
    """Draws requests. What was answered in a new way is kept, and varied again."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._kept: list[Sent] = []
        self._seen: set[tuple[object, ...]] = set()
        self.ids = [NO_SUCH_ID]

    def next(self) -> Sent:
        if self._kept and self._draw.random() < 0.4:
            return self._varied(self._draw.choice(self._kept))
        sent = self._right(self._draw.choice(ROUTES))
        return self._varied(sent) if self._draw.random() < 0.7 else sent

    def chance(self, of: float) -> bool:
        return self._draw.random() < of

    def broken(self) -> bytes:
        """Bytes that are no request, or are framed wrongly."""
        kind = self._draw.random()
        if kind < 0.4:
            return self._draw.choice(BROKEN)
        if kind < 0.8:
            return POST + self._draw.choice(FRAMINGS)
        return self._scarred(self.next().written())

    def answered(self, sent: Sent, status: int, told: bytes) -> bool:
        """Learn from an answer; whether it was a new one."""
        way = (sent.method, status, re.sub(rb"[0-9a-f\d-]{6,}|\d+", b"#", told)[:120])
        if way in self._seen:
            return False
        self._seen.add(way)
        if len(sent.written()) < 20_000:
            self._kept.append(sent)
        return True

    @property
    def ways(self) -> int:
        """In how many ways the service has answered."""
        return len(self._seen)

    def _right(self, route: Operation) -> Sent:
        path = route.path.replace("{id}", self._draw.choice(self.ids)).replace("{name}", self._draw.choice(("q1", "mail")))
        if self._draw.random() < 0.5 or route.path.endswith("/wait"):
            path += self._query(route)
        method = "HEAD" if route.method == "GET" and self._draw.random() < 0.05 else route.method
        if route.takes is None:
            return Sent(method.encode(), path.encode("utf-8", "surrogatepass"))
        body = msgspec.json.encode(self._request(route.takes))
        return Sent(method.encode(), path.encode(), (b"content-type: application/json",), body)

    def _query(self, route: Operation) -> str:
        names = [*route.query.__struct_encode_fields__, "page"]
        values = [
            self._draw.choice(("1", "50", "200", "201", "-1", "%00", "%ff", "%ed%a0%80", "q1", "x", "FAILED", "payload"))
        ]
        chosen = [f"{self._draw.choice(names)}={self._draw.choice(values)}" for _ in range(self._draw.randrange(3))]
        if route.path.endswith("/wait"):
            chosen = ["timeout=" + self._draw.choice(("0", "1", "-1", "60001", "x"))]
        return "?" + self._draw.choice(("&", "&&", ";")).join(chosen)

    def _request(self, shape: type[msgspec.Struct]) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        for field in msgspec.structs.fields(shape):
            if field.required or self._draw.random() < 0.15:
                asked[field.encode_name] = self._value(field.encode_name)
        return asked

    def _value(self, name: str) -> Any:
        if name == "type":
            return "demo.echo"
        if name == "jobs":
            return [{"type": "demo.echo", "delay": 10**6} for _ in range(self._draw.randrange(1, 4))]
        if name == "payload":
            return {"a": self._nasty(2)}
        return self._nasty(1)

    def _nasty(self, depth: int) -> Any:
        kind = self._draw.randrange(8)
        if kind < 3:
            return self._draw.choice(TEXTS)
        if kind < 5:
            return self._number()
        if kind == 5:
            return self._draw.choice((None, True, False))
        inner = self._nasty(depth - 1) if depth else 1
        return [inner] if kind == 6 else {self._draw.choice(("a", "gap", "burst", "rapid", "x")): inner}

    def _number(self) -> float:
        number = self._draw.choice(NUMBERS)
        return number if abs(number) < 2**64 else float(number)  # greater ones are put in as raw text

    def _varied(self, sent: Sent) -> Sent:
        for _ in range(self._draw.choice((1, 1, 2, 3))):
            sent = self._varied_once(sent)
        return sent

    def _varied_once(self, sent: Sent) -> Sent:
        kind = self._draw.random()
        if kind < 0.45 and sent.body is not None:
            return sent._replace(body=self._body(sent.body))
        if kind < 0.6:
            return sent._replace(headers=(*sent.headers, self._draw.choice(HEADERS)))
        if kind < 0.7:
            return sent._replace(path=self._path(sent.path))
        if kind < 0.75:
            return sent._replace(host=self._draw.choice(HOSTS))
        if kind < 0.82:
            return sent._replace(
                method=self._draw.choice((b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"HEAD", b"OPTIONS", b"TRACE"))
            )
        if kind < 0.88 and sent.body is not None:
            return sent._replace(chunked=not sent.chunked)
        if kind < 0.94:
            return sent._replace(body=self._draw.choice((b"", b"{}", b"[]", b"null", b"{", b"\0", b"\xff", b'"a"', *RAW)))
        return sent._replace(headers=sent.headers[1:])

    def _body(self, body: bytes) -> bytes:
        kind = self._draw.random()
        if kind < 0.5:  # another value in the place of one
            values = [*re.finditer(rb'(?<=:)(?:"[^"]*"|[^,{}\[\]"]+)', body)]
            if values:
                found = self._draw.choice(values)
                other = self._draw.choice(RAW) if self._draw.random() < 0.3 else msgspec.json.encode(self._nasty(2))
                return body[: found.start()] + other + body[found.end() :]
        if kind < 0.6:
            return body.replace(
                b"{", b'{"%s":1,' % self._draw.choice((b"status", b"attempt", b"lease", b"\\u0000", b"x")), 1
            )
        if kind < 0.62:
            return body[:-1] + b',"payload":{"t":"' + b"x" * self._draw.choice((10**5, 2**20 - 100, 2**20 + 70_000)) + b'"}}'
        return self._scarred(body)

    def _path(self, path: bytes) -> bytes:
        kind = self._draw.random()
        if kind < 0.4:
            return self._draw.choice(PATHS)
        if kind < 0.7:
            return path + self._draw.choice(
                (b"/", b"?", b"#", b"?a=b", b"%00", b"/..", b"?limit=1&limit=2", b"?" + b"a=b&" * 200)
            )
        return re.sub(rb"[0-9a-f-]{36}", self._draw.choice((b"x", b"%00", b"0" * 36, b"%ff", b"-" * 36)), path)

    def _scarred(self, text: bytes) -> bytes:
        """The same with some bytes changed, lost, doubled or cut off."""
        scarred = bytearray(text)
        for _ in range(self._draw.choice((1, 1, 2, 5))):
            if not scarred:
                break
            at, kind = self._draw.randrange(len(scarred)), self._draw.randrange(4)
            if kind == 0:
                scarred[at] = self._draw.randrange(256)
            elif kind == 1:
                del scarred[at : at + self._draw.randrange(1, 9)]
            elif kind == 2:
                scarred[at:at] = scarred[at : at + 20]
            else:
                del scarred[at:]
        return bytes(scarred)


def _parts(body: bytes) -> list[bytes]:
    half = len(body) // 2
    return [part for part in (body[:half], body[half:]) if part]
