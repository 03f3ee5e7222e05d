"""`GET /metrics`: the shared count of jobs, the paces, and what the worker of the service has measured."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.client.counts import JobCounts, Stats
from demora.core.access import Scope
from demora.core.workers import WorkerRecord
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreError
from demora.metrics import service as module
from demora.metrics.service import ServiceMetrics
from demora.settings import Settings
from demora.store.jobs import ALL_QUEUES, Queue, QueueQuery
from demora.store.paces import Pacing
from tests.api.asking import problem
from tests.api.keys import bearer, key_for
from tests.clock import TestClock
from tests.metrics.scraping import Samples, named, scraped
from tests.secrets_in_urls import CANARY, leaked

BASE = "http://localhost:8080"


class Counted(SqliteStore):
    """A store that counts the counts, and fails if it is told to."""

    counts, broken = 0, False

    async def queues(self, which: QueueQuery = ALL_QUEUES) -> list[Queue]:
        self.counts += 1
        if self.broken:
            raise StoreError("the disk is gone")
        return await super().queues(which)


@pytest.fixture
def store(clock: TestClock) -> Counted:
    return Counted(clock=clock)


@pytest.fixture
async def app(store: Counted) -> AsyncIterator[Demora]:
    async with Demora(store=store) as app:
        yield app


@pytest.fixture
def metrics() -> ServiceMetrics:
    return ServiceMetrics()


@pytest.fixture
async def http(app: Demora, metrics: ServiceMetrics) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(make_api(app, Settings(), metrics)), base_url=BASE) as http:
        yield http


async def scrape(http: httpx.AsyncClient) -> Samples:
    answer = await http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return scraped(answer.text)


async def test_jobs_are_shown_by_queue_and_state_with_what_the_worker_did(
    http: httpx.AsyncClient, app: Demora, metrics: ServiceMetrics
) -> None:
    await app.enqueue("demo.echo", queue="mail")
    await app.enqueue("demo.echo", queue="mail", delay="1h")
    dead = await app.enqueue("demo.fail", queue="reports", max_retries=0)
    async with app.worker(queues=["reports"], measures=metrics.measured):
        await app.wait(dead.id)
    found = await scrape(http)
    shown = {(queue, state): found[named("demora_jobs", queue=queue, state=state)] for queue, state in WANTED}
    assert shown == WANTED
    assert found[named("demora_jobs_settled_total", queue="reports", type="demo.fail", outcome="failed")] == 1
    assert found["demora_database_up"] == 1
    assert "demora_line_used" not in found


WANTED = {("mail", "ready"): 1, ("mail", "delayed"): 1, ("mail", "processing"): 0, ("reports", "dead"): 1}


async def test_a_pace_shows_what_it_holds_and_when_it_releases_the_next(
    http: httpx.AsyncClient, app: Demora, clock: TestClock
) -> None:
    client = await app.open()
    await client.set_pace("mail", gap="1h", burst=1)
    await app.enqueue_many([("demo.echo", {}, {"queue": "mail", "delay": "1s"}) for _ in range(3)])
    clock.turn(2)
    await client.store.paces.release()
    found = await scrape(http)
    assert found[named("demora_pace_held_jobs", queue="mail")] == 2
    assert found[named("demora_pace_next_release_seconds", queue="mail")] == 3599  # an hour after the first was due


async def test_the_jobs_of_queues_that_are_not_named_are_other() -> None:
    queues = {"a": JobCounts(ready=5), "other": JobCounts(ready=1, dead=1)}
    stats = Stats(JobCounts(ready=8, dead=3), queues, 7, datetime.now(UTC))
    families = {family.name: family for family in module._Database(stats, []).collect()}
    shown = {tuple(sample.labels.values()): sample.value for sample in families["demora_jobs"].samples}
    assert (shown["a", "ready"], shown["other", "ready"], shown["other", "dead"]) == (5, 3, 3)


async def test_only_the_paces_that_hold_the_most_are_named(
    monkeypatch: pytest.MonkeyPatch, app: Demora, clock: TestClock
) -> None:
    monkeypatch.setattr(module, "MOST_PACES", 2)
    client = await app.open()
    await client.set_pace("*", gap="1h", burst=1)
    for queue, held in (("a", 1), ("b", 3), ("c", 2)):
        await app.enqueue_many([("demo.echo", {}, {"queue": queue, "delay": "1s"}) for _ in range(held)])
    clock.turn(2)
    found = module._Database(await client.stats(), await client.pacings())
    families = {family.name: family for family in found.collect()}
    assert [sample.labels["queue"] for sample in families["demora_pace_held_jobs"].samples] == ["b", "c"]


async def test_five_hundred_scrapes_share_one_count_and_grow_no_memory(
    http: httpx.AsyncClient, app: Demora, store: Counted, metrics: ServiceMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demora.client.shared.REUSED_FOR", 3600.0)
    reads = 0
    client = await app.open()
    pacings = client.pacings

    async def read() -> list[Pacing]:
        nonlocal reads
        reads += 1
        return await pacings()

    client.pacings = read  # type: ignore[method-assign]
    await app.enqueue("demo.echo")
    await asyncio.gather(*(scrape(http) for _ in range(50)))
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(500):
            await metrics.text(client)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (store.counts, reads) == (1, 1)
    assert grown < 100_000


async def test_a_scrape_says_that_the_database_does_not_answer(
    http: httpx.AsyncClient, store: Counted, metrics: ServiceMetrics
) -> None:
    metrics.measured.claimed(0.1)
    store.broken = True
    found = await scrape(http)
    assert found["demora_database_up"] == 0
    assert found["demora_claim_seconds_count"] == 1
    assert [name for name in found if name.startswith(("demora_jobs ", "demora_pace"))] == []


async def test_a_database_that_hangs_delays_a_scrape_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 0.01)
    text = await ServiceMetrics().text(Hanging())
    assert scraped(text.decode())["demora_database_up"] == 0


class Hanging:
    """A client whose database does not answer."""

    async def stats(self) -> Stats:
        return await asyncio.Future()

    async def workers(self) -> list[WorkerRecord]:
        return await asyncio.Future()

    async def pacings(self) -> list[Pacing]:
        return await asyncio.Future()

    def line_used(self) -> bool | None:
        return None


async def test_without_the_extra_the_answer_names_it(app: Demora) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(make_api(app, Settings())), base_url=BASE) as http:
        refused = problem(await http.get("/metrics"), 404)
    assert refused["type"] == "urn:demora:problem:metrics-not-installed"
    assert "pip install 'demora[metrics]'" in refused["detail"]


async def test_prometheus_sends_a_key_of_scope_read_as_bearer(http: httpx.AsyncClient, app: Demora) -> None:
    key = await key_for(app, Scope.READ)
    assert (await http.get("/metrics")).status_code == 401
    assert (await http.get("/metrics", headers=bearer(key))).status_code == 200


async def test_no_payload_name_tag_key_or_error_is_in_the_metrics(
    http: httpx.AsyncClient, app: Demora, metrics: ServiceMetrics
) -> None:
    secret = {"a": CANARY}

    @app.job("fails")
    async def fails(a: str) -> None:
        raise ValueError(a)

    done = await app.enqueue("demo.echo", secret, name=CANARY, tags=[CANARY], key=CANARY)
    failed = await app.enqueue("fails", secret, max_retries=0)
    async with app.worker(measures=metrics.measured):
        for job in (done, failed):
            await app.wait(job.id)
    key = await key_for(app, Scope.READ)
    answer = await http.get("/metrics", headers=bearer(key))
    assert "demora_jobs_settled_total" in answer.text
    assert not leaked(answer.text)
    assert key not in answer.text
    labels = {label for sample in scraped(answer.text) for label in sample.split()[1:]}
    assert {label.partition("=")[0] for label in labels} == {"queue", "type", "outcome", "state", "le"}


async def test_a_service_without_a_worker_measures_round_trips_to_the_database(
    http: httpx.AsyncClient, store: Counted
) -> None:
    counts = []
    for broken in (False, True, False):
        store.broken = broken
        counts.append((await scrape(http))["demora_database_round_trip_seconds_count"])
    assert counts == [1, 2, 3]
