"""Bad input: each a 4xx problem with nothing stored, and the same refusal from the Python client as an exception."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from demora import Demora
from demora.errors import Invalid, TooLarge
from tests.api.asking import JOBS, JSON, problem, stored

MIB = 1024 * 1024
NOW = datetime.now(UTC)


class Bad(NamedTuple):
    """A asked that is refused, as sent over HTTP and as asked of the Python client."""

    name: str
    wire: dict[str, Any]
    asked: dict[str, Any]
    field: str
    status: int = 422


def deep(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return {"x": value}


def same(what: str, field: str, status: int = 422, /, **asked: Any) -> Bad:
    """A asked that has the same names and values on both sides."""
    return Bad(what, asked, asked, field, status)


BAD = [
    same("type with a space", "type", type="no spaces"),
    same("empty type", "type", type=""),
    same("long type", "type", type="t" * 129),
    same("NUL in the type", "type", type="a\0b"),
    same("type that is a number", "type", type=5),
    same("type that is null", "type", type=None),
    same("empty name", "name", name=""),
    same("long name", "name", name="n" * 201),
    same("NUL in the name", "name", name="a\0b"),
    same("name that is a list", "name", name=["a"]),
    same("queue with a space", "queue", queue="a b"),
    same("long queue", "queue", queue="q" * 65),
    same("NUL in the queue", "queue", queue="a\0"),
    same("unknown priority", "priority", priority="URGENT"),
    same("priority in small letters", "priority", priority="high"),
    same("priority that is a number", "priority", priority=1),
    same("payload that is a list", "payload", payload=[1]),
    same("payload that is text", "payload", payload="hi"),
    same("payload of 33 levels", "payload", payload=deep(33)),
    same("payload of 900 levels", "payload", payload=deep(900)),
    same("payload over 1 MiB", "payload", 413, payload={"x": "y" * MIB}),
    same("payload over 1 MiB when written", "payload", 413, payload={"x": "é" * (MIB // 2)}),
    same("NUL in the payload", "payload", payload={"x": ["a\0"]}),
    same("NUL in a key of the payload", "payload", payload={"x\0": 1}),
    same("integer of 2^63", "payload", payload={"x": 2**63}),
    same("integer below -2^63", "payload", payload={"x": -(2**63) - 1}),
    same("integer of 4000 digits", "payload", payload={"x": 10**3999}),
    same("tags that are text", "tags", tags="a"),
    same("empty tag", "tags[0]", tags=[""]),
    same("long tag", "tags[1]", tags=["a", "t" * 65]),
    same("NUL in a tag", "tags[0]", tags=["\0"]),
    same("tag that is a number", "tags[1]", tags=["a", 5]),
    same("too many tags", "tags", tags=[str(n) for n in range(33)]),
    Bad("time without a zone", {"scheduledAt": "2030-01-01T00:00:00"}, {"at": datetime(2030, 1, 1)}, "scheduledAt"),
    Bad("time too far", {"scheduledAt": "2199-01-01T00:00:00Z"}, {"at": datetime(2199, 1, 1, tzinfo=UTC)}, "scheduledAt"),
    Bad(
        "time too long ago", {"scheduledAt": "1800-01-01T00:00:00Z"}, {"at": datetime(1800, 1, 1, tzinfo=UTC)}, "scheduledAt"
    ),
    Bad("time that is no time", {"scheduledAt": "tomorrow"}, {"at": "tomorrow"}, "scheduledAt"),
    Bad("time that is a number", {"scheduledAt": 1900000000}, {"at": 1900000000}, "scheduledAt"),
    Bad("time and delay", {"scheduledAt": "2030-01-01T00:00:00Z", "delay": 1}, {"at": NOW, "delay": "1ms"}, "delay"),
    Bad("negative delay", {"delay": -1}, {"delay": timedelta(milliseconds=-1)}, "delay"),
    Bad("delay of 2^63", {"delay": 2**63}, {"delay": timedelta.max}, "delay"),
    Bad("delay of more than a century", {"delay": 3_155_760_000_001}, {"delay": timedelta(days=36526)}, "delay"),
    Bad("delay that is a fraction", {"delay": 1.5}, {"delay": 1.5}, "delay"),
    Bad("delay that is a bool", {"delay": True}, {"delay": True}, "delay"),
    Bad("delay that is text", {"delay": "soon"}, {"delay": "soon"}, "delay"),
    Bad("negative retries", {"maxRetries": -1}, {"max_retries": -1}, "maxRetries"),
    Bad("too many retries", {"maxRetries": 1001}, {"max_retries": 1001}, "maxRetries"),
    Bad("2^63 retries", {"maxRetries": 2**63}, {"max_retries": 2**63}, "maxRetries"),
    Bad("retries that are a bool", {"maxRetries": True}, {"max_retries": True}, "maxRetries"),
    Bad("retries that are text", {"maxRetries": "3"}, {"max_retries": "3"}, "maxRetries"),
    Bad("retries that are a fraction", {"maxRetries": 1.0}, {"max_retries": 1.0}, "maxRetries"),
    Bad("negative retry delay", {"retryDelay": -5}, {"retry_delay": timedelta(seconds=-1)}, "retryDelay"),
    Bad("retry delay over a year", {"retryDelay": 2**40}, {"retry_delay": "367d"}, "retryDelay"),
    Bad("no timeout at all", {"timeout": 0}, {"timeout": "0s"}, "timeout"),
    Bad("negative timeout", {"timeout": -1}, {"timeout": timedelta(seconds=-1)}, "timeout"),
    Bad("timeout over 30 days", {"timeout": 2**40}, {"timeout": "31d"}, "timeout"),
    *(
        Bad(f"webhook {url[:20]!r}", {"webhookUrl": url}, {"webhook_url": url}, "webhookUrl")
        for url in ("", "ftp://a.b", "javascript:alert(1)", "http://", "//a.b", "http://a b", "http://a.b/\0", "http://a:x")
    ),
    Bad(
        "long webhook", {"webhookUrl": "http://a.b/" + "x" * 2048}, {"webhook_url": "http://a.b/" + "x" * 2048}, "webhookUrl"
    ),
    Bad("empty key", {"idempotencyKey": ""}, {"key": ""}, "idempotencyKey"),
    Bad("long key", {"idempotencyKey": "k" * 256}, {"key": "k" * 256}, "idempotencyKey"),
    Bad("NUL in the key", {"idempotencyKey": "\0"}, {"key": "\0"}, "idempotencyKey"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
async def test_http_refuses_it_and_stores_nothing(http: httpx.AsyncClient, app: Demora, bad: Bad) -> None:
    body = msgspec.json.encode({"type": "demo.echo", **bad.wire})
    problem(await http.post(JOBS, content=body, headers=JSON), bad.status, bad.field)
    assert await stored(app) == 0


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
async def test_the_python_client_refuses_the_same_by_an_exception(app: Demora, bad: Bad) -> None:
    with pytest.raises(TooLarge if bad.status == 413 else Invalid) as refused:
        await app.enqueue(**{"type": "demo.echo", "payload": None, **bad.asked})
    assert re.split(r"\W", refused.value.field)[0] in bad.asked, "the argument that was given"
    assert await stored(app) == 0


UNREADABLE = {
    "broken": b'{"type":"demo.echo"',
    "nothing": b"",
    "text after the end": b'{"type":"demo.echo"} x',
    "byte order mark": b'\xef\xbb\xbf{"type":"demo.echo"}',
    "NaN": b'{"type":"demo.echo","payload":{"x":NaN}}',
    "Infinity": b'{"type":"demo.echo","payload":{"x":-Infinity}}',
    "invalid UTF-8": b'{"type":"demo.echo","payload":{"x":"\xff"}}',
    "invalid UTF-8 in a key": b'{"type":"demo.echo","payload":{"\xff":1}}',
    "encoded surrogate": b'{"type":"demo.echo","payload":{"x":"\xed\xa0\x80"}}',
    "lone surrogate": rb'{"type":"demo.echo","payload":{"x":"\ud800"}}',
    "lone surrogate before an escape": rb'{"type":"demo.echo","name":"\ud83d\n"}',
    "lone surrogate after a backslash": rb'{"type":"demo.echo","name":"\\\ud83d"}',
    "lone low surrogate": rb'{"type":"demo.echo","name":"\udc00"}',
    "lone surrogate in a key": rb'{"type":"demo.echo","payload":{"\ud800":1}}',
    "lone low surrogate in a name": rb'{"type":"demo.echo","name":"\udc00 and more"}',
    "lone surrogate in a tag": rb'{"type":"demo.echo","tags":["\ud83d and more"]}',
    "raw NUL": b'{"type":"demo.echo","name":"a\0b"}',
    "UTF-16": '{"type":"demo.echo"}'.encode("utf-16"),
    "compressed": b"\x1f\x8b\x08\x00\x00",
}

MISSHAPEN = {
    "list": (b"[]", "body"),
    "null": (b"null", "body"),
    "text": (b'"demo.echo"', "body"),
    "no type": (b"{}", "type"),
    "unknown field": (b'{"type":"demo.echo","colour":"red"}', "colour"),
    "status set by the caller": (b'{"type":"demo.echo","status":"COMPLETED"}', "status"),
    "id set by the caller": (b'{"type":"demo.echo","id":"1"}', "id"),
    "snake case": (b'{"type":"demo.echo","max_retries":1}', "max_retries"),
    "number out of range": (b'{"type":"demo.echo","payload":{"x":1e999}}', "payload"),
    "negative number out of range": (b'{"type":"demo.echo","payload":{"x":[-1e999]}}', "payload"),
    "retries out of range": (b'{"type":"demo.echo","maxRetries":1e999}', "maxRetries"),
    "integer of 10^5 digits": (b'{"type":"demo.echo","payload":{"x":' + b"9" * 100_000 + b"}}", "payload"),
    "escaped NUL": (rb'{"type":"demo.echo","payload":{"x":"\u0000"}}', "payload"),
    "payload 500,000 levels deep": (
        b'{"type":"demo.echo","payload":{"x":' + b"[" * 500_000 + b"]" * 500_000 + b"}}",
        "payload",
    ),
    "payload 10^6 levels deep, never closed": (b'{"type":"demo.echo","payload":{"x":' + b"[" * 1_000_000, "payload"),
    "objects 150,000 levels deep": (b'{"type":"demo.echo","payload":' + b'{"x":' * 150_000, "payload"),
    "tags 10^6 levels deep": (b'{"type":"demo.echo","tags":' + b"[" * 1_000_000, "tags[0]"),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_is_not_json_is_a_400_and_stores_nothing(http: httpx.AsyncClient, app: Demora, body: bytes) -> None:
    problem(await http.post(JOBS, content=body, headers=JSON), 400)
    assert await stored(app) == 0


@pytest.mark.parametrize("body", [UNREADABLE[name] for name in UNREADABLE if name.startswith("lone")], ids=repr)
async def test_a_lone_surrogate_is_called_by_its_name(http: httpx.AsyncClient, body: bytes) -> None:
    told = problem(await http.post(JOBS, content=body, headers=JSON), 400)
    assert told["detail"] == "text in the body contains a lone surrogate, which is not valid Unicode"


@pytest.mark.parametrize("body", [rb'{"type":"demo.echo","name":"\ud83d', rb'{"type":"demo.echo","name":"\\ud83d"'])
async def test_a_body_that_ends_too_soon_is_still_called_truncated(http: httpx.AsyncClient, body: bytes) -> None:
    assert "truncated" in problem(await http.post(JOBS, content=body, headers=JSON), 400)["detail"]


@pytest.mark.parametrize(("body", "field"), MISSHAPEN.values(), ids=MISSHAPEN)
async def test_json_of_another_shape_is_a_422_and_stores_nothing(
    http: httpx.AsyncClient, app: Demora, body: bytes, field: str
) -> None:
    problem(await http.post(JOBS, content=body, headers=JSON), 422, field)
    assert await stored(app) == 0


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        (JOBS, {"type": "demo.echo", "delay": "2m"}, "delay: Expected `int | null`, got `str`: How long from now"),
        (JOBS, {"type": "demo.echo", "scheduledAt": "noon"}, "scheduledAt: Invalid RFC3339 encoded datetime: RFC 3339 with"),
        (f"{JOBS}/batch", {"jobs": [{"type": "demo.echo", "delay": "2m"}]}, "jobs[0].delay: Expected `int | null`"),
    ],
)
async def test_what_does_not_fit_is_told_with_what_the_field_means(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], detail: str
) -> None:
    told = problem(await http.post(path, json=body), 422)["detail"]
    assert told.startswith(detail)
    assert "in milliseconds" in told or "with a time zone" in told


@pytest.mark.parametrize(
    "payload",
    [
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": [-float("inf")]},
        {"x": "\ud800"},
        {"\udc00": 1},
        {1: 2},
        {"x": object()},
    ],
)
async def test_the_python_client_refuses_what_json_cannot_say(app: Demora, payload: Any) -> None:
    with pytest.raises(Invalid, match=r"^payload"):
        await app.enqueue("demo.echo", payload)
    assert await stored(app) == 0


@pytest.mark.parametrize("options", [{"colour": "red"}, {"id": "1"}, {"status": "COMPLETED"}])
async def test_the_python_client_refuses_unknown_options(app: Demora, options: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        await app.enqueue_many([("demo.echo", {}, options)])
    assert await stored(app) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=application/json"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_another_content_type_is_a_415(http: httpx.AsyncClient, app: Demora, headers: dict[str, str]) -> None:
    problem(await http.post(JOBS, content=b'{"type":"demo.echo"}', headers=headers), 415)
    assert await stored(app) == 0


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'])
async def test_the_content_type_may_say_utf_8(http: httpx.AsyncClient, kind: str) -> None:
    answer = await http.post(JOBS, content=b'{"type":"demo.echo"}', headers={"content-type": kind})
    assert answer.status_code == 201


@pytest.mark.parametrize("key", [b"a\0b", b"\xff", b"k" * 256, b""])
async def test_a_bad_key_in_the_header_is_refused(http: httpx.AsyncClient, app: Demora, key: bytes) -> None:
    problem(await http.post(JOBS, json={"type": "demo.echo"}, headers={b"idempotency-key": key}), 422, "idempotencyKey")
    assert await stored(app) == 0


async def test_a_payload_of_exactly_the_limits_is_taken(http: httpx.AsyncClient) -> None:
    full = {"x": "y" * (MIB - len('{"x":""}'))}
    for payload in (full, deep(32), {"x": 2**63 - 1, "y": -(2**63)}):
        assert (await http.post(JOBS, json={"type": "demo.echo", "payload": payload})).status_code == 201


async def test_of_a_field_given_twice_the_last_counts(http: httpx.AsyncClient) -> None:
    answer = await http.post(JOBS, content=b'{"type":"demo.fail","type":"demo.echo"}', headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (201, "demo.echo")


class Endless:
    """A body that has no end in sight, and remembers how much of it was read; who reads 32 MiB of it reads everything."""

    def __init__(self) -> None:
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.read < 32 * MIB:
            self.read += 65_536
            yield b" " * 65_536
        raise AssertionError("32 MiB of a body were read, and more would have been")


@pytest.mark.parametrize(
    ("path", "limit"), [(JOBS, MIB + 65_536), (f"{JOBS}/batch", 16 * MIB), ("/api/v1/queues/a/pause", MIB + 65_536)]
)
@pytest.mark.parametrize("declared", [None, "10", "0"])
async def test_a_body_is_counted_while_it_is_read_whatever_it_says_of_its_length(
    http: httpx.AsyncClient, app: Demora, path: str, limit: int, declared: str | None
) -> None:
    body = Endless()
    headers = JSON if declared is None else {**JSON, "content-length": declared}
    problem(await http.post(path, content=body, headers=headers), 413, "body")
    assert limit < body.read <= limit + 2 * 65_536
    assert await stored(app) == 0


@pytest.mark.parametrize("declared", [str(MIB + 65_537), "9" * 5000])
async def test_a_body_that_says_it_is_too_long_is_not_read(http: httpx.AsyncClient, declared: str) -> None:
    body = Endless()
    problem(await http.post(JOBS, content=body, headers={**JSON, "content-length": declared}), 413, "body")
    assert body.read == 0


async def test_a_field_is_named_as_the_caller_wrote_it(http: httpx.AsyncClient, app: Demora) -> None:
    """The client names its arguments; over HTTP they have other names, but for those that a caller made up."""
    told = problem(await http.post(f"{JOBS}/batch", json={"jobs": [{"type": "a"}, {"type": "b", "maxRetries": -1}]}), 422)
    assert (told["field"], told["detail"].partition(":")[0]) == ("jobs[1].maxRetries", "jobs[1].maxRetries")
    problem(await http.post(JOBS, json={"type": "demo.echo", "max_retries": 3}), 422, "max_retries")
    problem(await http.post(JOBS, json={"type": "demo.sleep", "payload": {"some_field": 1}}), 422, "payload.some_field")
    problem(await http.get(JOBS, params={"cursor": "zz"}), 422, "cursor")
    with pytest.raises(Invalid, match=r"^jobs\[1\]\.max_retries: "):
        await app.enqueue_many([("a", None), ("b", None, {"max_retries": -1})])
