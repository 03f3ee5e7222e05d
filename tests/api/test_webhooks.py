"""Webhooks over HTTP: asked for, looked at, delivered again, and refused."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from demora import Demora
from tests.facts import eventually
from tests.servers.receiver import Receiver, answer


@pytest.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Demora]:
    monkeypatch.setenv("DEMORA_OUTBOUND_ALLOW", "127.0.0.0/8")
    async with Demora("sqlite://") as app:
        await (await app.open()).webhooks.create_secret()
        yield app


async def told(http: httpx.AsyncClient, id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await http.get(f"/api/v1/jobs/{id}/webhooks")).json()["deliveries"]
    return found


async def test_the_tries_are_shown_and_what_was_given_up_is_delivered_again(app: Demora, http: httpx.AsyncClient) -> None:
    async with Receiver(answer(410, b"gone")) as receiver, app.worker():
        asked = {"type": "demo.echo", "webhookUrl": receiver.url, "webhookOnCancel": True}
        added = (await http.post("/api/v1/jobs", json=asked)).json()
        assert (added["webhookUrl"], added["webhookOnCancel"]) == (receiver.url, True)
        [one] = await eventually(lambda: told(http, added["id"]), lambda found: found and found[0]["status"] == "FAILED")
        assert (one["event"], one["url"], one["tries"][0]["status"]) == ("completed", receiver.url, 410)
        assert one["tries"][0]["excerpt"] == "gone"
        await (await app.open()).webhooks.enable(receiver.url)
        receiver.how = answer(200)
        again = await http.post(f"/api/v1/jobs/{added['id']}/webhooks/retry")
        assert (again.status_code, again.json()["deliveries"][0]["webhookId"]) == (200, one["webhookId"])
        await eventually(lambda: told(http, added["id"]), lambda found: found[0]["status"] == "COMPLETED")
    assert {request.headers["webhook-id"] for request in receiver.received} == {one["webhookId"]}


@pytest.mark.parametrize(
    "url", ["https://10.0.0.1/", "http://example.org@127.0.0.1/", "https://0x7f000001/", "http://8.8.8.8/"]
)
async def test_a_url_that_must_not_be_called_is_refused_wherever_it_is_given(http: httpx.AsyncClient, url: str) -> None:
    for answered in (
        await http.post("/api/v1/jobs", json={"type": "demo.echo", "webhookUrl": url}),
        await http.patch("/api/v1/queues/mail", json={"webhookUrl": url}),
        await http.post("/api/v1/jobs", json={"type": "http.request", "payload": {"url": url}}),
    ):
        assert answered.status_code == 422
        assert answered.json()["field"] in ("webhookUrl", "payload.url")


async def test_nobody_can_add_a_delivery(http: httpx.AsyncClient) -> None:
    payload = {"url": "https://example.com/", "message": {}}
    refused = await http.post("/api/v1/jobs", json={"type": "demora.webhook", "payload": payload})
    assert (refused.status_code, refused.json()["field"]) == (422, "type")
    batch = await http.post("/api/v1/jobs/batch", json={"jobs": [{"type": "demora.webhook", "payload": payload}]})
    assert batch.status_code == 422


async def test_deliveries_of_no_job_are_404(http: httpx.AsyncClient) -> None:
    for method, path in (("GET", "webhooks"), ("POST", "webhooks/retry")):
        answered = await http.request(method, f"/api/v1/jobs/01900000-0000-7000-8000-000000000000/{path}")
        assert answered.status_code == 404
