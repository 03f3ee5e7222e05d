"""`http.request`: a job that needs no code."""

import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demora import Demora, Job
from demora.core.states import Status
from demora.engines.sqlite import SqliteStore
from demora.errors import Invalid
from tests.copies import jobs_file
from tests.facts import eventually
from tests.servers.receiver import HANG, Received, Receiver, answer


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Demora]:
    monkeypatch.setenv("DEMORA_OUTBOUND_ALLOW", "127.0.0.0/8")
    async with Demora(store=SqliteStore(jobs_file(tmp_path))) as app, app.worker():
        yield app


async def done(app: Demora, receiver: Receiver, **payload: Any) -> Job:
    job = await app.enqueue("http.request", {"url": receiver.url} | payload, max_retries=2, retry_delay="1ms")
    return await app.wait(job.id, "60s")


async def test_a_success_keeps_status_chosen_headers_and_the_body(app: Demora) -> None:
    async with Receiver(answer(200, b"hi", etag='"1"', x_kept="yes", x_other="no")) as receiver:
        job = await done(app, receiver, keep=["X-Kept"])
    assert job.result == {"status": 200, "headers": {"etag": '"1"', "x-kept": "yes"}, "body": "hi", "cut": False}
    assert (receiver.received[0].method, receiver.received[0].body) == ("GET", b"")


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [({"a": [1, None]}, b'{"a":[1,null]}', "application/json"), ("ä", "ä".encode(), "text/plain; charset=utf-8")],
)
async def test_a_body_is_sent_as_text_or_as_json(app: Demora, body: Any, sent: bytes, kind: str) -> None:
    async with Receiver() as receiver:
        await done(app, receiver, method="POST", body=body, headers={"X-A": "b"})
        await done(app, receiver, method="PUT", body=body, headers={"content-type": "text/csv"})
    first, second = receiver.received
    assert (first.body, first.headers["content-type"], first.headers["x-a"]) == (sent, kind, "b")
    assert (second.method, second.headers["content-type"]) == ("PUT", "text/csv")


@pytest.mark.parametrize("status", [400, 401, 404, 410, 301, 307])
async def test_an_answer_that_will_not_change_is_final(app: Demora, status: int) -> None:
    async with Receiver(answer(status, b"because")) as receiver:
        job = await done(app, receiver)
    assert (job.status, job.error, len(receiver.received)) == (Status.FAILED, f"Fail: the server answered {status}", 1)
    assert json.loads(job.attempts[0].traceback or "") == {"status": status, "excerpt": "because"}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_an_answer_that_may_pass_is_tried_again(app: Demora, status: int) -> None:
    async with Receiver(lambda _: answer(status if len(receiver.received) < 3 else 200)) as receiver:
        job = await done(app, receiver)
    assert (job.status, len(job.attempts), len(receiver.received)) == (Status.COMPLETED, 3, 3)


async def test_a_server_that_is_not_there_is_tried_again(app: Demora) -> None:
    async with Receiver() as receiver:
        pass
    job = await done(app, receiver)
    assert (job.status, len(job.attempts)) == (Status.FAILED, 3)
    assert "could not be called" in (job.error or "")


async def test_what_is_expected_is_a_success_and_nothing_else(app: Demora) -> None:
    async with Receiver(answer(404)) as receiver:
        assert (await done(app, receiver, expect=[404, 200])).result["status"] == 404
        assert (await done(app, receiver, expect=[200])).status is Status.FAILED


async def test_a_wait_that_the_server_asks_for_is_honoured(app: Demora) -> None:
    async with Receiver(answer(503, retry_after="3600")) as receiver:
        job = await app.enqueue("http.request", {"url": receiver.url}, retry_delay="1ms")
        found = await eventually(lambda: app.get(job.id), lambda job: job.status is Status.RETRYING)
    assert timedelta(minutes=59) < found.due_at - found.attempts[0].ended_at <= timedelta(minutes=61)  # type: ignore[operator]


async def test_the_body_of_the_result_is_bounded(app: Demora) -> None:
    async with Receiver(answer(200, b"\0\xff" * 100_000)) as receiver:
        job = await done(app, receiver)
    assert (job.result["cut"], len(job.result["body"])) == (True, 64 * 1024)


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"url": "http://127.0.0.1@example.com/"}, "payload.url"),
    ({"url": "https://10.0.0.1/"}, "payload.url"),
    ({"url": "file:///etc/passwd"}, "payload.url"),
    ({"url": "https://example.com/", "headers": {"Host": "x"}}, "payload.headers.Host"),
    ({"url": "https://example.com/", "headers": {"X": "a\r\nb: c"}}, "payload.headers.X"),
    ({"url": "https://example.com/", "headers": {"Transfer-Encoding": "chunked"}}, "payload.headers.Transfer-Encoding"),
    ({"url": "https://example.com/", "method": "CONNECT"}, "payload.method"),
    ({"url": "https://example.com/", "method": "GET / HTTP/1.1\r\n"}, "payload.method"),
    ({"url": "https://example.com/", "expect": [7]}, "payload.expect"),
    ({"url": "https://example.com/", "keep": ["x"] * 21}, "payload.keep"),
    ({"url": "https://example.com/", "proxy": "http://x"}, "payload.proxy"),
    ({}, "payload.url"),
]


@pytest.mark.parametrize(("payload", "field"), HOSTILE)
async def test_what_could_never_be_sent_is_refused_when_it_is_asked_for(
    app: Demora, payload: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await app.enqueue("http.request", payload)
    assert refused.value.field == field


async def test_a_host_that_hangs_does_not_hold_up_another(app: Demora) -> None:
    def hang(_: Received) -> bytes:
        return HANG

    async with Receiver(hang) as hanging, Receiver(host="127.0.0.2") as other:
        held = [await app.enqueue("http.request", {"url": hanging.url}) for _ in range(40)]
        await eventually(lambda: app.get(held[0].id), lambda job: job.status is Status.PROCESSING)
        for _ in range(5):
            assert (await done(app, other)).status is Status.COMPLETED
        assert len(hanging.received) <= 4
        snoozed = [job for one in held if not (job := await app.get(one.id)).attempts]
        assert len(snoozed) == 40


async def test_nothing_of_payload_or_answer_is_logged(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for status in (200, 404, 500):
        async with Receiver(answer(status, b"canary-body", x_canary="canary-header")) as receiver:
            await done(app, receiver, url=receiver.url + "?canary-query", headers={"X": "canary-asked"}, body="canary-sent")
    async with Receiver() as gone:
        pass
    await done(app, gone, url=gone.url + "?canary-query")
    assert caplog.records
    assert "canary" not in caplog.text
