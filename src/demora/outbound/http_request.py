"""The handler of `http.request`: a job type without code that sends an HTTP request and stores the response."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..core.outbound.answers import JITTER, Meaning, meaning_of_call, retry_after, wait_before
from ..core.outbound.targets import check_headers, check_target, read_url
from ..core.verdict import CAP
from ..errors import Invalid
from ..handlers.builtin import HTTP_REQUEST
from ..handlers.context import Context
from ..handlers.control import Fail, Retry, Snooze
from ..handlers.registry import Defaults, Handler
from .sender import Crowded, Forbidden, NoAnswer, Sender, ServerReply

TYPE = HTTP_REQUEST
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
USUALLY_KEPT = ("content-type", "etag", "last-modified", "location", "retry-after")
MOST_KEPT, MOST_EXPECTED, MOST_EXCERPT = 20, 20, 500
TIMEOUT = timedelta(minutes=5)  # of a run; the sender's own deadline is shorter


class HttpRequestHandler:
    """The handler of `http.request`; `sender` returns the guarded sender when it is needed."""

    def __init__(self, sender: Callable[[], Sender]) -> None:
        self._sender = sender

    def handler(self) -> Handler:
        return Handler(TYPE, self.request, Defaults(timeout=TIMEOUT, jitter=JITTER), check=self.check)

    async def request(
        self,
        ctx: Context,
        url: str,
        method: str = "GET",
        headers: dict[str, str] = {},  # noqa: B006  # a new dict for each call
        body: Any = None,
        expect: list[int] = [],  # noqa: B006
        keep: list[str] = [],  # noqa: B006
    ) -> dict[str, Any]:
        """Send the request. A 2xx or an expected status completes the job, a temporary error is retried, others fail it."""
        content, named = _content(body, check_headers(headers))
        sent = self._sender().send(method, read_url(url), headers=named, body=content)
        reply = await guarded(ctx, sent)
        meaning = meaning_of_call(reply.status, expect)
        if meaning is Meaning.DONE:
            return _kept(reply, (*USUALLY_KEPT, *(name.lower() for name in keep)))
        if meaning is Meaning.AGAIN:
            raise try_again(ctx, f"the server answered {reply.status}", reply)
        raise Fail(f"the server answered {reply.status}", detail=excerpt(reply))

    def check(self, fields: Any) -> None:
        """Refuse a payload that could never be sent."""
        check_target(read_url(fields.url, "payload.url"), self._sender().policy, "payload.url")
        check_headers(fields.headers, "payload.headers")
        if fields.method not in METHODS:
            raise Invalid("payload.method", f"must be one of {', '.join(METHODS)}")
        if len(fields.expect) > MOST_EXPECTED or not all(100 <= status <= 599 for status in fields.expect):
            raise Invalid("payload.expect", f"must be at most {MOST_EXPECTED} statuses from 100 to 599")
        if len(fields.keep) > MOST_KEPT or any(len(name) > 100 for name in fields.keep):
            raise Invalid("payload.keep", f"must be at most {MOST_KEPT} names of headers")


async def guarded(ctx: Context, sending: Any, cap: timedelta = CAP) -> ServerReply:
    """Return the reply. Raises `Snooze`, `Fail` or `Retry` for the job if there is none."""
    try:
        reply: ServerReply = await sending
    except Crowded as problem:
        raise Snooze(problem.wait) from None
    except Forbidden as problem:
        raise Fail(str(problem)) from None
    except NoAnswer as problem:
        raise try_again(ctx, str(problem), cap=cap) from None
    return reply


def try_again(ctx: Context, reason: str, reply: ServerReply | None = None, cap: timedelta = CAP) -> Retry:
    """Return the `Retry` to raise: after the usual delay, or later if the server's Retry-After asks for it."""
    asked = None if reply is None else retry_after(reply.headers.get("retry-after"), datetime.now(UTC))
    base, failures = ctx.job.retry_state.retry_delay, ctx.attempt
    wait = wait_before(asked, base=base, failures=failures, cap=cap)
    return Retry(reason, after=wait, detail=None if reply is None else excerpt(reply))


def excerpt(reply: ServerReply) -> str:
    """Return the stored part of an unsuccessful reply, as JSON. It may contain anything, so it is never logged."""
    return msgspec.json.encode({"status": reply.status, "excerpt": reply.text(MOST_EXCERPT)}).decode()


def _content(body: Any, headers: Mapping[str, str]) -> tuple[bytes | None, Mapping[str, str]]:
    """Encode the body, a string as text and anything else as JSON, and add its Content-Type unless the caller gave one."""
    if body is None:
        return None, headers
    text = isinstance(body, str)
    kind = "text/plain; charset=utf-8" if text else "application/json"
    if not any(name.lower() == "content-type" for name in headers):
        headers = {**headers, "Content-Type": kind}
    return body.encode() if text else msgspec.json.encode(body), headers


def _kept(reply: ServerReply, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the result of the job: the status, the chosen headers, and the part of the body that was read, as text."""
    headers = {name: _text(reply.headers[name]) for name in dict.fromkeys(names) if name in reply.headers}
    return {"status": reply.status, "headers": headers, "body": reply.text(), "cut": reply.cut}


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode().replace("\0", "�")
