"""Webhooks from end to end: real receivers, the official library to verify, real workers."""

import asyncio
import functools
import json
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from demora import Demora, Job
from demora.client.webhooks import DeliveryHistory
from demora.core.outbound.webhook import QUEUE, TYPE, secret_text
from demora.core.states import Status
from demora.engines.sqlite import SqliteStore
from demora.errors import Invalid, JobNotFound, UrlNotDisabled
from demora.testing import Sandbox
from tests.copies import jobs_file
from tests.facts import eventually
from tests.servers.receiver import HANG, Received, Receiver, answer

SECRET = "whsec_" + "ZW52aXJvbm1lbnQtc2VjcmV0LWNhbmFyeQ=="


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Demora]:
    monkeypatch.setenv("DEMORA_OUTBOUND_ALLOW", "127.0.0.0/8")
    monkeypatch.setattr("demora.core.outbound.webhook.RETRY_DELAY", timedelta(milliseconds=1))
    async with Demora(store=SqliteStore(jobs_file(tmp_path))) as app:
        yield app


@pytest.fixture
async def secret(app: Demora) -> str:
    return (await (await app.open()).webhooks.create_secret()).text


async def told(app: Demora, job: Job, fact: Callable[[list[DeliveryHistory]], object] = bool) -> list[DeliveryHistory]:
    webhooks = (await app.open()).webhooks
    return await eventually(lambda: webhooks.of(job.id), fact)


def delivered(found: list[DeliveryHistory]) -> bool:
    return bool(found) and all(one.delivery.status.ended for one in found)


def verified(request: Received, secret: str) -> Any:
    return Webhook(secret).verify(request.body, request.headers)


async def test_an_end_is_told_with_a_signature_that_the_official_library_accepts(app: Demora, secret: str) -> None:
    async with Receiver() as receiver, app.worker():
        good = await app.enqueue("demo.echo", {"a": 1}, webhook_url=receiver.url)
        [one] = await told(app, good, delivered)
        bad = await app.enqueue("demo.fail", {"message": "no"}, max_retries=0, webhook_url=receiver.url)
        await told(app, bad, delivered)
    first, second = (verified(request, secret) for request in receiver.received)
    assert (first["jobId"], first["status"], first["result"], first["attempts"]) == (good.id, "completed", {"a": 1}, 1)
    assert (second["jobId"], second["status"], second["error"]) == (bad.id, "failed", "RuntimeError: no")
    assert receiver.received[0].headers["content-type"] == "application/json"
    assert (one.delivery.type, one.delivery.queue, one.tries[0].status, one.url) == (TYPE, QUEUE, 200, receiver.url)


async def test_a_delivery_is_tried_until_a_success_with_the_same_id_and_body(app: Demora, secret: str) -> None:
    async with (
        Receiver(lambda _: answer(503 if len(receiver.received) < 4 else 202, b"no\0t yet")) as receiver,
        app.worker(),
    ):
        job = await app.enqueue("demo.echo", webhook_url=receiver.url)
        [one] = await told(app, job, delivered)
    assert len({(r.headers["webhook-id"], r.body) for r in receiver.received}) == 1
    assert [verified(request, secret)["jobId"] for request in receiver.received] == [job.id] * 4
    assert [t.status for t in one.tries] == [503, 503, 503, 202]
    assert one.tries[0].excerpt == "no�t yet"
    assert one.tries[0].at is not None


async def test_every_delivery_verifies_before_during_and_after_a_rotation(app: Demora) -> None:
    webhooks = (await app.open()).webhooks
    old = (await webhooks.create_secret()).text
    async with Receiver() as receiver, app.worker():
        await told(app, await app.enqueue("demo.echo", webhook_url=receiver.url), delivered)
        new = (await webhooks.rotate_secret("1h")).text
        await told(app, await app.enqueue("demo.echo", webhook_url=receiver.url), delivered)
        last = (await webhooks.rotate_secret("0s")).text
        await told(app, await app.enqueue("demo.echo", webhook_url=receiver.url), delivered)
    before, during, after = receiver.received
    verified(before, old)
    verified(during, old)
    verified(during, new)
    verified(after, last)
    verified(after, old)  # its hour is not over
    assert [len(r.headers["webhook-signature"].split()) for r in receiver.received] == [1, 2, 2]
    with pytest.raises(Exception, match="No matching signature"):
        verified(after, new)


async def test_a_secret_of_the_environment_signs_too(app: Demora, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_WEBHOOK_SECRET", SECRET)
    app.configure()  # so that the settings are read again
    async with Receiver() as receiver, app.worker():
        await told(app, await app.enqueue("demo.echo", webhook_url=receiver.url), delivered)
    verified(receiver.received[0], SECRET)
    verified(receiver.received[0], secret)


async def test_the_first_delivery_makes_the_first_secret(app: Demora, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="demora")
    async with Receiver() as receiver, app.worker():
        job = await app.enqueue("demo.echo", webhook_url=receiver.url)
        other = await app.enqueue("demo.echo", webhook_url=receiver.url)
        for one in (job, other):
            [history] = await told(app, one, delivered)
            assert len(history.tries) == 1
    client = await app.open()
    [stored] = (await client.webhooks.secrets()).secrets
    for request in receiver.received:
        verified(request, secret_text(stored.secret.key))
    assert sum("secret to sign webhooks was created" in line for line in caplog.messages) == 1


async def test_410_disables_the_url_until_somebody_enables_it(app: Demora, secret: str) -> None:
    webhooks = (await app.open()).webhooks
    async with Receiver(answer(410)) as receiver, app.worker():
        first = await app.enqueue("demo.echo", webhook_url=receiver.url)
        [gone] = await told(app, first, delivered)
        second = await app.enqueue("demo.echo", webhook_url=receiver.url)
        [kept] = await told(app, second, delivered)
        assert (gone.delivery.status, kept.delivery.status) == (Status.FAILED, Status.FAILED)
        assert (len(receiver.received), len(gone.tries)) == (1, 1)
        assert [one.url for one in await webhooks.disabled()] == [receiver.url]
        await webhooks.enable(receiver.url)
        receiver.how = answer(200)
        await webhooks.redeliver(second.id)
        [again] = await told(app, second, lambda found: found[0].delivery.status is Status.COMPLETED)
    assert again.delivery.id == kept.delivery.id
    assert [t.status for t in again.tries] == [None, 200]
    with pytest.raises(UrlNotDisabled):
        await webhooks.enable(receiver.url)


async def test_a_delivery_that_was_given_up_is_a_dead_letter_and_can_be_delivered_again(app: Demora, secret: str) -> None:
    client = await app.open()
    async with Receiver(answer(500)) as receiver, app.worker():
        job = await app.enqueue("demo.echo", webhook_url=receiver.url)
        await eventually(lambda: asyncio.sleep(0, len(receiver.received)), lambda count: count >= 1)
        [one] = await told(app, job)
        await client.cancel(one.delivery.id)
        await told(app, job, delivered)
        receiver.how = answer(200)
        await client.webhooks.redeliver(job.id)
        [again] = await told(app, job, lambda found: found[0].delivery.status is Status.COMPLETED)
    assert again.delivery.id == one.delivery.id
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 1


async def test_retry_after_is_honoured(app: Demora, secret: str) -> None:
    async with Receiver(answer(429, retry_after="7200")) as receiver, app.worker():
        job = await app.enqueue("demo.echo", webhook_url=receiver.url)
        [one] = await told(app, job, lambda found: bool(found and found[0].tries))
    ended_at = one.tries[0].ended_at
    assert ended_at is not None
    assert timedelta(hours=1.9) < one.delivery.due_at - ended_at < timedelta(hours=2.1)


async def test_a_worker_of_other_queues_delivers_too(app: Demora, secret: str) -> None:
    async with Receiver() as receiver, app.worker(queues=["mail"]):
        job = await app.enqueue("demo.echo", queue="mail", webhook_url=receiver.url)
        assert [one.delivery.status for one in await told(app, job, delivered)] == [Status.COMPLETED]


async def test_types_and_queues_have_their_own_usual_webhook(app: Demora, secret: str) -> None:
    async with Receiver() as receiver, app.worker():

        @app.job("mail.send", webhook_url=receiver.url, webhook_on_cancel=True)
        async def send() -> None: ...

        client = await app.open()
        await client.set_queue("told", webhook_url=receiver.url)
        by_type = await app.enqueue("mail.send", delay="1h")
        await app.cancel(by_type.id)
        by_queue = await app.enqueue("demo.echo", queue="told")
        for job in (by_type, by_queue):
            await told(app, job, delivered)
    assert sorted(verified(request, secret)["status"] for request in receiver.received) == ["cancelled", "completed"]


async def test_one_receiver_of_a_hundred_that_hangs_slows_no_other(
    app: Demora, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent twice as much as the worker has slots, and holds what it gets for longer than the test lasts."""
    monkeypatch.setenv("DEMORA_OUTBOUND_TIMEOUT", "5m")
    app.configure()  # so that the settings are read again

    def hangs(request: Received) -> bool:
        return request.headers["host"].startswith("127.0.1.100:")

    async with Receiver(lambda request: HANG if hangs(request) else answer(), host="0.0.0.0") as receiver:
        hosts = [100] * 40 + list(range(1, 100))
        urls = [f"http://127.0.1.{host}:{receiver.port}/" for host in hosts]
        jobs = await app.enqueue_many([("demo.echo", {}, {"webhook_url": url}) for url in urls])
        async with app.worker(grace=timedelta(0)):
            for job in jobs[40:]:
                await told(app, job, delivered)
            assert not any([delivered(await told(app, job)) for job in jobs[:40]])
    assert sum(map(hangs, receiver.received)) == 4


async def test_nobody_can_have_a_message_of_their_own_signed(app: Demora) -> None:
    asked = {"url": "https://example.com/", "message": {"status": "completed"}}
    for add in (app.enqueue, functools.partial(asyncio.to_thread, app.blocking.enqueue)):
        with pytest.raises(Invalid, match="added by demora itself"):
            await add(TYPE, asked)  # type: ignore[operator]


async def test_deliveries_of_no_job_are_not_found(app: Demora) -> None:
    webhooks = (await app.open()).webhooks
    with pytest.raises(JobNotFound):
        await webhooks.of("01900000-0000-7000-8000-000000000000")
    assert await webhooks.of((await app.enqueue("demo.echo")).id) == []


async def test_no_secret_is_in_any_log_job_or_error(app: Demora, secret: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = await (await app.open()).webhooks.rotate_secret()
    async with (
        Receiver(lambda _: answer(500 if len(receiver.received) < 3 else 200, b"canary-excerpt")) as receiver,
        app.worker(),
    ):
        job = await app.enqueue("demo.echo", {"x": "canary-payload"}, webhook_url=receiver.url + "?canary-query")
        [one] = await told(app, job, delivered)
    said = caplog.text + repr(one) + repr(made) + repr(await app.get(job.id)) + repr(app.settings)
    for text in (secret, made.text):
        assert text not in said
        assert text.removeprefix("whsec_")[:12] not in said
    assert "canary" not in caplog.text


async def test_nothing_is_sent_from_a_sandbox(app: Demora, secret: str) -> None:
    async with Receiver() as receiver:
        with Sandbox(app) as sandbox:
            job = await app.enqueue("demo.echo", webhook_url=receiver.url)
            await sandbox.drain()
            [one] = await (await app.open()).webhooks.of(job.id)
            assert json.loads(one.delivery.result_json or b"{}")["excerpt"] == "not sent: this is a sandbox"
    assert receiver.connections == 0
    assert not app.deliveries.muted
