"""Traces: the spans of adding, running and settling a job, as OpenTelemetry's own exporter sees them."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from demora import Demora
from demora.api import make_api
from demora.handlers.control import Retry
from demora.settings import Settings
from demora.store.store import Store
from demora.system import traces
from tests.builders import add_one, claim_one, new_job
from tests.clock import TestClock
from tests.conformance.conftest import opened
from tests.facts import eventually
from tests.servers.nearby import serving
from tests.setups import SETUPS, Setup

SECRET = "c4n4ry"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


@pytest.fixture
async def app(exporter: InMemorySpanExporter) -> AsyncIterator[Demora]:
    app = Demora("sqlite://")

    @app.job("greet")
    async def greet(secret: str) -> str:
        with traces.configured()._tracer.start_as_current_span("inside"):  # type: ignore[union-attr]
            return secret

    @app.job("stumble", retry_delay="1ms")
    def stumble(secret: str) -> None:
        raise Retry(secret, after="1ms")

    async with app:
        yield app


async def spans_of(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    return exporter.get_finished_spans()


async def finished(exporter: InMemorySpanExporter, number: int) -> list[ReadableSpan]:
    """All spans, once there are so many, in the order of their start."""
    found = await eventually(lambda: spans_of(exporter), lambda spans: len(spans) >= number)
    assert len(found) == number
    return sorted(found, key=lambda span: span.start_time or 0)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_job_is_traced_from_its_caller_to_its_settlement(app: Demora, exporter: InMemorySpanExporter) -> None:
    job = await app.enqueue("greet", {"secret": SECRET}, queue="mail")
    async with app.worker():
        await app.wait(job.id, "10s")
        added, run, inside, settled = await finished(exporter, 4)
    assert [span.name for span in (added, run, settled)] == ["enqueue mail", "process mail", "settle mail"]
    assert [span.kind for span in (added, run, settled)] == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT]
    assert {span.context.trace_id for span in (added, run, inside, settled)} == {added.context.trace_id}
    assert run.parent is not None
    assert run.parent.span_id == added.context.span_id
    assert {span.parent.span_id for span in (inside, settled) if span.parent} == {run.context.span_id}
    assert attributes(added) == {
        "messaging.system": "demora",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
    }
    said = attributes(run)
    assert (said["messaging.operation.type"], said["messaging.message.id"]) == ("process", job.id)
    assert (said["demora.job.type"], said["demora.job.attempt"]) == ("greet", 1)
    assert (attributes(settled)["messaging.operation.type"], attributes(settled)["demora.job.status"]) == (
        "settle",
        "COMPLETED",
    )
    assert run.links == ()
    assert run.status.status_code is StatusCode.UNSET


async def test_each_retry_is_a_run_of_the_same_trace_linked_to_its_beginning(
    app: Demora, exporter: InMemorySpanExporter
) -> None:
    job = await app.enqueue("stumble", {"secret": SECRET}, max_retries=1)
    async with app.worker():
        await app.wait(job.id, "10s")
        spans = await finished(exporter, 5)
    added, first, _, second, _ = spans
    assert (first.name, second.name) == ("process default", "process default")
    assert {span.context.trace_id for span in spans} == {added.context.trace_id}
    assert first.links == ()
    assert [link.context.span_id for link in second.links] == [added.context.span_id]
    assert [attributes(span)["demora.job.attempt"] for span in (first, second)] == [1, 2]
    assert [span.status.status_code for span in (first, second)] == [StatusCode.ERROR] * 2
    assert attributes(second)["error.type"] == "Retry"
    settled = [attributes(span)["demora.job.status"] for span in spans if span.name == "settle default"]
    assert settled == ["RETRYING", "FAILED"]


async def test_no_span_holds_a_payload_a_result_or_the_text_of_an_error(app: Demora, exporter: InMemorySpanExporter) -> None:
    for type in ("greet", "stumble"):
        job = await app.enqueue(type, {"secret": SECRET}, max_retries=0, name=SECRET, tags=[SECRET])
        async with app.worker():
            await app.wait(job.id, "10s")
    spans = await finished(exporter, 7)
    assert not any(SECRET in span.to_json() for span in spans)


async def test_a_batch_is_one_span(app: Demora, exporter: InMemorySpanExporter) -> None:
    await app.enqueue_many([("greet", {"secret": "a"}), ("greet", {"secret": "b"}, {"queue": "mail"})])
    [added] = await finished(exporter, 1)
    assert (added.name, attributes(added)["messaging.batch.message_count"]) == ("enqueue", 2)


async def test_a_caller_in_a_trace_goes_on_with_it(app: Demora, exporter: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer_provider().get_tracer("test")
    with tracer.start_as_current_span("request") as request:
        await app.enqueue("greet", {"secret": "a"})
    added = next(span for span in await finished(exporter, 2) if span.name.startswith("enqueue"))
    assert added.parent is not None
    assert added.parent.span_id == request.get_span_context().span_id


@pytest.mark.parametrize(
    ("given", "kept"), [(PARENT, True), (PARENT.upper(), False), (f"00-{'0' * 32}-b7ad6b7169203331-01", False), ("x", False)]
)
async def test_the_trace_of_an_http_caller_goes_on_also_in_a_service_without_a_provider(given: str, kept: bool) -> None:
    async with Demora("sqlite://") as app:
        transport = httpx.ASGITransport(make_api(app, Settings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answer = await http.post("/api/v1/jobs", json={"type": "demo.echo"}, headers={"traceparent": given})
            assert answer.status_code == 201
        assert (await claim_one((await app.open()).store)).traceparent == (PARENT if kept else None)


async def test_the_span_of_an_added_job_is_a_child_of_its_http_caller(app: Demora, exporter: InMemorySpanExporter) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(make_api(app, Settings())), base_url="http://localhost"
    ) as http:
        await http.post("/api/v1/jobs", json={"type": "demo.echo"}, headers={"traceparent": PARENT})
    [added] = await finished(exporter, 1)
    assert f"{added.context.trace_id:032x}" == PARENT.split("-")[1]


async def test_without_a_provider_or_the_extra_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert traces.configured() is None
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert traces.configured() is None


@pytest.mark.parametrize(("provider", "traced"), [(None, False), ("sdk_tracer_provider", True)])
def test_a_variable_alone_can_name_the_provider(provider: str | None, traced: bool) -> None:
    asked = "traces.configured() is not None, 'opentelemetry' in sys.modules"
    program = f"import sys; from demora.system import traces; print({asked})"
    named = {} if provider is None else {"OTEL_PYTHON_TRACER_PROVIDER": provider}
    said = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | named, check=True, capture_output=True, text=True
    )
    assert said.stdout.split() == [str(traced)] * 2


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
async def test_the_trace_context_travels_in_the_job(setup: Setup, tmp_path: Path, clock: TestClock) -> None:
    async with opened(setup, tmp_path, clock) as store:
        await traced_and_not(store)


async def traced_and_not(store: Store) -> None:
    await store.add([new_job(traceparent=PARENT)])
    assert (await claim_one(store)).traceparent == PARENT
    await add_one(store)
    assert (await claim_one(store)).traceparent is None
    await store.add([new_job(traceparent=PARENT), new_job(tags=("a",))])
    assert [(await claim_one(store)).traceparent for _ in range(2)] == [PARENT, None]


async def test_a_job_that_is_added_over_http_belongs_to_the_trace_of_the_program(
    app: Demora, exporter: InMemorySpanExporter
) -> None:
    async with serving(app) as url, Demora(url) as program:
        tracer = trace.get_tracer_provider().get_tracer("program")
        with tracer.start_as_current_span("own") as own:
            job = await program.enqueue("greet", {"secret": SECRET})
            await program.enqueue_many([("greet", {"secret": SECRET}), ("greet", {"secret": SECRET})])
        async with app.worker():
            await app.wait(job.id)
            spans = await finished(exporter, 4 + 1 + 3 * 3)
    sent = [span for span in spans if span.kind is SpanKind.PRODUCER and span.parent.span_id == own.context.span_id]
    assert [span.attributes.get("messaging.batch.message_count") for span in sent] == [None, 2]
    assert "messaging.message.id" not in sent[0].attributes  # the service makes it
    runs = [span for span in spans if span.kind is SpanKind.CONSUMER]
    assert {span.context.trace_id for span in runs} == {own.context.trace_id}
