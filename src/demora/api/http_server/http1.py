"""Parses HTTP/1.1 requests from bytes, without I/O: one strict grammar for heads and for chunked bodies.

If two servers could read a request in two ways, this module refuses it: behind a reverse proxy, the second reading can
turn one caller's bytes into another caller's request (request smuggling). So it accepts less than RFC 9112 allows: no
empty line before a request, no absolute-form target, no folded line, no bare LF, no space before a colon, no second
Content-Length or Host even if equal, no transfer coding but chunked, no chunk extension. It ignores an Upgrade header, as
the RFC allows, and reads the body of such a request as usual. It checks and counts trailers and discards them; they never
become headers.
"""

import re

import msgspec

from ...wire.problems import ProblemKind

MOST_HEAD = 64 * 1024  # bytes of request line and headers
MOST_HEADERS = 100
MOST_TRAILERS = 8 * 1024  # bytes
_LONGEST_LENGTH = 15  # digits of a Content-Length

_REQUEST_LINE = re.compile(rb"([A-Z]{1,32}) ((?:/[!-\"$-~]*)|\*) HTTP/1\.([01])")
_OTHER_VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]+(?:\.[0-9]+)?")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # in one line: all but the tab
_BARE_LF = re.compile(rb"(?<!\r)\n")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_CHUNK_LINE_SO_FAR = re.compile(rb"[0-9A-Fa-f]{0,15}|[0-9A-Fa-f]{1,15}\r")
_COMMON = (
    b"host accept accept-encoding authorization connection content-length content-type idempotency-key transfer-encoding "
    b"user-agent x-forwarded-for x-forwarded-host x-forwarded-proto"
)
_KNOWN = {spelt: name for name in _COMMON.split() for spelt in (name, name.title())}
_REPEATED = frozenset({b"host", b"accept", b"accept-encoding", b"content-type", b"user-agent"})  # and none is a secret
_MOST_REMEMBERED, _LONGEST_REMEMBERED = 1024, 256  # lines, and bytes of one
_FRAMING = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"expect"})


BROKEN = ProblemKind(400, "Broken request")
TIMED_OUT = ProblemKind(408, "Request timeout")
BODY_TOO_LARGE = ProblemKind(413, "Too large")
TARGET_TOO_LONG = ProblemKind(414, "URL too long")
HEAD_TOO_LARGE = ProblemKind(431, "Headers too large")
FULL = ProblemKind(503, "Too many connections", retry_after=1)
WRONG_VERSION = ProblemKind(400, "HTTP version not supported")  # not 505: to a reverse proxy a 5xx is a fault of the service


class BadRequest(Exception):
    """The bytes are not an acceptable request. The connection must be closed, because its state is unknown."""

    def __init__(self, reason: str, kind: ProblemKind = BROKEN) -> None:
        super().__init__(reason)
        self.reason, self.kind = reason, kind


class RequestHead(msgspec.Struct, frozen=True):
    """A request without its body. `length` is None for a chunked body."""

    method: bytes
    target: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    length: int | None
    keep_alive: bool
    expects_continue: bool


class HeadReader:
    """Collects the bytes of one head, at most `MOST_HEAD`. It examines each byte a constant number of times."""

    def __init__(self) -> None:
        self._gathered = bytearray()

    @property
    def begun(self) -> bool:
        return bool(self._gathered)

    def feed(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """Return the head and the bytes after it, or None while it is incomplete. Raises `BadRequest`."""
        if not self._gathered:
            end = data.find(b"\r\n\r\n", 0, MOST_HEAD)
            if end >= 0:
                return read_head(data[:end]), data[end + 4 :]
        return self._gather(data)

    def _gather(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        old = len(self._gathered)
        self._gathered += data
        end = self._gathered.find(b"\r\n\r\n", max(0, old - 3), MOST_HEAD)
        if end >= 0:
            head, rest = bytes(self._gathered[:end]), bytes(self._gathered[end + 4 :])
            self._gathered = bytearray()
            return read_head(head), rest
        self._refuse_hopeless(max(0, old - 1))
        return None

    def _refuse_hopeless(self, since: int) -> None:
        """Raise `BadRequest` as soon as the bytes cannot become a valid head."""
        gathered = self._gathered
        if len(gathered) >= MOST_HEAD:
            if gathered.find(b"\r\n", 0, MOST_HEAD) < 0:
                raise BadRequest(f"the request line is longer than {MOST_HEAD:,} bytes", TARGET_TOO_LONG)
            raise BadRequest(f"the request line and the headers have more than {MOST_HEAD:,} bytes", HEAD_TOO_LARGE)
        if _BARE_LF.search(gathered, since):
            raise BadRequest("a line ends with LF alone; lines of the head must end with CR LF")
        if not 65 <= gathered[0] <= 90:
            raise BadRequest("this is not an HTTP request; the service speaks plain HTTP/1.1, without TLS")


def read_head(lines: bytes) -> RequestHead:
    """Parse the bytes of a head, up to its empty line. Raises `BadRequest`."""
    first, *fields = lines.split(b"\r\n", MOST_HEADERS + 1)
    if len(fields) > MOST_HEADERS:
        raise BadRequest(f"the request has more than {MOST_HEADERS} headers", HEAD_TOO_LARGE)
    request = _REQUEST_LINE.fullmatch(first)
    if request is None:
        raise _bad_request_line(first)
    method, target, minor = request.groups()
    if target == b"*" and method != b"OPTIONS":
        raise BadRequest("the target of a request must be a path that starts with /")
    headers = [_remembered.get(line) or _field(line) for line in fields]
    framing: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name in _FRAMING:
            framing.setdefault(name, []).append(value)
    return _framed(method, target, minor, headers, framing)


def _bad_request_line(line: bytes) -> BadRequest:
    if _OTHER_VERSION.fullmatch(line) and not line.endswith((b" HTTP/1.1", b" HTTP/1.0")):
        return BadRequest("the service supports only HTTP/1.1 and HTTP/1.0", WRONG_VERSION)
    return BadRequest(
        "the request line must be a method, a path that starts with / and HTTP/1.1, separated by single spaces"
    )


def _field(line: bytes) -> tuple[bytes, bytes]:
    """Return the name, in lower case, and the value of a header or trailer."""
    spelt, colon, value = line.partition(b":")
    name = _KNOWN.get(spelt) or spelt.lower()
    if not colon or (spelt not in _KNOWN and not _TOKEN.fullmatch(spelt)):
        raise BadRequest("a header must be one line: a name, a colon with no space before it, and a value")
    if _CONTROLS.search(value):
        raise BadRequest("a header contains a control character")
    field = name, value.strip(b" \t")
    if name in _REPEATED and len(line) <= _LONGEST_REMEMBERED:
        _remember(line, field)
    return field


_remembered: dict[bytes, tuple[bytes, bytes]] = {}  # lines that callers repeat with each request, and the fields in them


def _remember(line: bytes, field: tuple[bytes, bytes]) -> None:
    if len(_remembered) >= _MOST_REMEMBERED:
        _remembered.clear()
    _remembered[line] = field


def _framed(
    method: bytes,
    target: bytes,
    minor: bytes,
    headers: list[tuple[bytes, bytes]],
    framing: dict[bytes, list[bytes]],
) -> RequestHead:
    """Return the head with the length of its body. Raises `BadRequest` if the length is ambiguous."""
    newer, hosts = minor == b"1", len(framing.get(b"host", ()))
    if hosts > 1 or (newer and not hosts):
        raise BadRequest(f"the request has {hosts} Host headers; send one")
    length: int | None = 0
    if b"transfer-encoding" in framing:
        if b"content-length" in framing:
            raise BadRequest("the request has both Content-Length and Transfer-Encoding; send one of them")
        if not newer:
            raise BadRequest("Transfer-Encoding is not allowed with HTTP/1.0")
        if [coding.lower() for coding in framing[b"transfer-encoding"]] != [b"chunked"]:
            raise BadRequest("the only supported Transfer-Encoding is chunked, once")
        length = None
    elif b"content-length" in framing:
        length = _length(framing[b"content-length"])
    options = {option.strip(b" \t").lower() for value in framing.get(b"connection", ()) for option in value.split(b",")}
    expected = [value.lower() for value in framing.get(b"expect", ())]
    return RequestHead(
        method,
        target,
        "1.1" if newer else "1.0",
        headers,
        length,
        newer and b"close" not in options,
        newer and expected == [b"100-continue"],
    )


def _length(given: list[bytes]) -> int:
    digits = given[0]
    if len(given) > 1:
        raise BadRequest("the request has more than one Content-Length; send one")
    if not digits.isdigit() or (digits[:1] == b"0" and digits != b"0"):
        raise BadRequest("Content-Length must be a whole number")
    if len(digits) > _LONGEST_LENGTH:
        raise BadRequest("the body is too large", BODY_TOO_LARGE)
    return int(digits)


class ChunkedBody:
    """Parses one chunked body, up to the empty line after its trailers."""

    def __init__(self, headers: int) -> None:
        self._held = b""  # the beginning of a line that is not complete yet
        self._left = 0  # of the chunk, with its CR LF
        self._in_trailers = False
        self._fields_left, self._trailers_left = MOST_HEADERS - headers, MOST_TRAILERS
        self.ended = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the part of the body in these bytes, and the bytes after its end. Raises `BadRequest`."""
        data, at, body = self._held + data, 0, list[bytes]()
        self._held = b""
        while at < len(data) and not self.ended:
            if self._in_trailers:
                at = self._trailer(data, at)
            elif self._left:
                at = self._chunk(data, at, body)
            else:
                at = self._line(data, at)
        return b"".join(body), data[at:]

    def _line(self, data: bytes, at: int) -> int:
        line = _CHUNK_LINE.match(data, at)
        if line is None:
            if not _CHUNK_LINE_SO_FAR.fullmatch(data, at):
                raise BadRequest("a chunk must start with its size in hexadecimal digits, without extensions")
            self._held = data[at:]
            return len(data)
        size = int(line[1], 16)
        self._left, self._in_trailers = size + 2, size == 0
        return line.end()

    def _chunk(self, data: bytes, at: int, body: list[bytes]) -> int:
        """Take the available part of the chunk, and then the CR LF that ends it."""
        end = at + self._left - 2
        if end > at:
            body.append(data[at : min(end, len(data))])
        behind = data[max(at, end) : end + 2]
        if not b"\r\n"[-self._left :].startswith(behind):
            raise BadRequest("a chunk must have as many bytes as its size says and then CR LF")
        taken = min(self._left, len(data) - at)
        self._left -= taken
        return at + taken

    def _trailer(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        if (end if end >= 0 else len(data)) - at > self._trailers_left:
            raise BadRequest(f"the trailers have more than {MOST_TRAILERS:,} bytes", HEAD_TOO_LARGE)
        if end < 0:
            self._held = data[at:]
            return len(data)
        if end == at:
            self.ended = True
            return end + 2
        self._fields_left -= 1
        if self._fields_left < 0:
            raise BadRequest(f"the request has more than {MOST_HEADERS} headers and trailers", HEAD_TOO_LARGE)
        _field(data[at:end])
        self._trailers_left -= end + 2 - at
        return end + 2
