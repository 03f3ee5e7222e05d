"""Secrets go into every field that may hold one, and come out nowhere: not in logs, problems, events, metrics or traces."""

import json
import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from demora import Demora
from demora.api import Api, make_api
from demora.client import events as reading
from demora.core.access import Scope
from demora.metrics.service import ServiceMetrics
from demora.settings import Settings
from tests.api.asking import JOBS
from tests.api.keys import bearer, key_for
from tests.api.listening import listening

PAYLOAD, RESULT, HEADER, QUERY = "c4n4ry-payload", "c4n4ry-result", "c4n4ry-header", "c4n4ry-query"
BROKEN, KINDS = f'{{"payload": "{PAYLOAD}'.encode(), ("text/plain", "application/json")
SIGNED = "https://hook.invalid/?token=c4n4ry-hook"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(reading, "LOOK", 0.01)
    monkeypatch.setattr(reading, "PAUSE", 0.001)
    return exporter


@pytest.fixture
async def app(exporter: InMemorySpanExporter) -> AsyncIterator[Demora]:
    app = Demora("sqlite://")

    @app.job("quiet")
    async def quiet(secret: str) -> str:
        return RESULT

    @app.job("loud", max_retries=0)
    async def loud(secret: str) -> None:
        raise ValueError("it cannot be done")

    async with app:
        yield app


@pytest.fixture
def api(app: Demora) -> Api:
    return make_api(app, Settings(), ServiceMetrics())


async def test_no_canary_comes_out(
    app: Demora, api: Api, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = await key_for(app, Scope.ADMIN)
    asked = {**bearer(key), "x-secret": HEADER, "cookie": HEADER}
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost") as http,
        listening(api, "queue=default", **bearer(key)) as listener,
        app.worker(),
    ):
        job = {"type": "quiet", "payload": {"secret": PAYLOAD}, "webhookUrl": SIGNED, "delay": 0}
        added = await http.post(JOBS, json=job, headers=asked)
        assert (added.status_code, added.json()["payload"]) == (201, {"secret": PAYLOAD})
        await app.wait(added.json()["id"], "10s")
        heard = await listener.hear("job.added", "job.completed")
        failing = await http.post(JOBS, json={**job, "type": "loud"}, headers=asked)
        failed = await app.wait(failing.json()["id"], "10s")
        heard += await listener.hear("job.added", "job.failed")
        problems = [
            await http.post(JOBS, json={**job, "nope": PAYLOAD}, headers=asked),
            await http.post(JOBS, json={**job, "payload": [PAYLOAD]}, headers=asked),
            await http.post(JOBS, json={**job, "payload": {"other": PAYLOAD}}, headers=asked),
            *[await http.post(JOBS, content=BROKEN, headers={**asked, "content-type": kind}) for kind in KINDS],
            await http.get(f"{JOBS}/x?{QUERY}={QUERY}", headers={"authorization": f"Bearer {HEADER}"}),
            await http.get(f"{JOBS}/{added.json()['id']}/wait?timeout={QUERY}", headers=asked),
        ]
        metrics = [
            await http.get(path, headers=asked)
            for path in ("/metrics", *(f"/api/v1/metrics/{one}" for one in ("overview", "queues", "types", "workers")))
        ]
    assert {answer.status_code for answer in problems} <= {400, 401, 415, 422}
    assert {answer.status_code for answer in metrics} == {200}
    seen = {
        "logs": "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http")),
        "problems": "".join(answer.text for answer in problems),
        "events": json.dumps(heard) + listener.text.decode(),
        "metrics": "".join(answer.text for answer in metrics),
        "errors": "\n".join([failed.error or "", *(attempt.error or "" for attempt in failed.attempts)]),
        "traces": "".join(span.to_json() for span in exporter.get_finished_spans()),
    }
    assert all(seen.values())
    secrets = ("c4n4ry", key, key.split("_")[2])
    assert {where for where, text in seen.items() for secret in secrets if secret in text} == set()
