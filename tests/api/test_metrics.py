"""Metrics as JSON: what became of runs, over HTTP, and what a pace did."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from demora import Demora
from demora.api import make_api
from demora.core.pace import Pace, request_of
from demora.core.spans import to_ms
from demora.core.workers import WorkerRecord
from demora.engines.sqlite import SqliteStore
from demora.settings import Settings
from demora.store.statistics import Depth
from tests.api.asking import add, problem
from tests.api.conftest import BASE
from tests.builders import BROKEN, DONE, add_ids, claim, ms, seconds, settle
from tests.clock import TestClock

METRICS = "/api/v1/metrics"
JOBS = [{"queue": "mail", "type": "a"}, {"queue": "mail", "type": "b"}, {"queue": "web", "type": "a"}]


async def get(http: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await http.get(f"{METRICS}/{path}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
async def store(clock: TestClock) -> SqliteStore:
    return SqliteStore(clock=clock)


@pytest.fixture
async def http(store: SqliteStore) -> AsyncIterator[httpx.AsyncClient]:
    """The service on a store whose clock is turned by hand."""
    async with Demora(store=store) as app:
        transport = httpx.ASGITransport(make_api(app, Settings()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            yield http


async def run_all(store: SqliteStore, clock: TestClock) -> None:
    """One run of each of `JOBS`, 2 s late and 100 ms long: the last one fails."""
    await add_ids(store, *JOBS)
    clock.turn(2)
    jobs = (await claim(store, 10)).jobs
    clock.turn(ms=100)
    for n, job in enumerate(jobs):
        await settle(store, job, BROKEN if n == 2 else DONE, ran=ms(100))


async def test_the_overview_has_the_jobs_the_runs_and_the_slots(
    http: httpx.AsyncClient, store: SqliteStore, clock: TestClock
) -> None:
    await run_all(store, clock)
    await add_ids(store, {}, {"delay": ms(60_000)})
    clock.turn(5)
    found = await get(http, "overview")
    assert (found["span"], found["step"], len(found["series"])) == ("hour", 60_000, 60)
    assert found["jobs"] == {"ready": 1, "delayed": 1, "processing": 0, "dead": 1}
    total = found["total"]
    assert [total[end] for end in ("completed", "failed", "retried", "cancelled", "returned")] == [2, 1, 0, 0, 0]
    assert (total["lateness"]["count"], total["lateness"]["max"], total["runTime"]["max"]) == (3, 2000.0, 100.0)
    assert total["lateness"]["p50"] == pytest.approx(2000, rel=0.1)
    assert sum(point["completed"] for point in found["series"]) == 2
    assert found["oldestReady"]["queue"] == "default"
    assert found["oldestReady"]["waits"] == 5000
    assert found["slots"] == {"workers": 0, "slots": 0, "busy": 0}
    assert (found["database"]["status"], found["line"]) == ("degraded", None)


async def test_added_jobs_are_counted_by_the_minute(app: Demora) -> None:
    """By the ids, which real clients make of the real time."""
    api = make_api(app, Settings(database_url="sqlite://"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=BASE) as http:
        for _ in range(3):
            await add(http)
        found = await get(http, "overview")
    added = [point["added"] for point in found["series"]]
    assert sum(added) == 3
    assert sum(added[-2:]) == 3


async def test_a_job_that_was_deleted_still_counts_as_added(
    http: httpx.AsyncClient, store: SqliteStore, clock: TestClock
) -> None:
    time = f"{to_ms(clock.now()):012x}"
    [id] = await add_ids(store, {"id": f"{time[:8]}-{time[8:]}-7000-8000-000000000001"})
    clock.turn(180)
    assert sum(point["added"] for point in (await get(http, "overview"))["series"]) == 1
    await store.cancel([id])
    await store.remove([id])
    assert sum(point["added"] for point in (await get(http, "overview"))["series"]) == 1


async def test_the_job_that_is_ready_longest_is_shown(http: httpx.AsyncClient, store: SqliteStore, clock: TestClock) -> None:
    await add_ids(store, {"queue": "web"})
    clock.turn(3)
    await add_ids(store, {"queue": "mail"})
    clock.turn(4)
    oldest = (await get(http, "overview"))["oldestReady"]
    assert (oldest["queue"], oldest["waits"]) == ("web", 7000)


async def test_jobs_that_a_worker_claimed_ahead_take_no_slot(http: httpx.AsyncClient, store: SqliteStore) -> None:
    await store.heartbeat(WorkerRecord("ann", "host", 1, slots=2))
    await add_ids(store, {}, {}, {})
    await claim(store, 3, worker="ann")
    [worker] = (await get(http, "workers"))["workers"]
    assert (worker["slots"], worker["busy"]) == (2, 2)
    assert (await get(http, "overview"))["slots"] == {"workers": 1, "slots": 2, "busy": 2}


async def test_a_day_and_a_week_have_wider_steps(http: httpx.AsyncClient, store: SqliteStore, clock: TestClock) -> None:
    await run_all(store, clock)
    clock.turn(3 * 3600)
    while (await store.statistics.merge(limit=50)).more:
        pass
    for span, step, points in (("day", 900_000, 96), ("week", 3_600_000, 168)):
        found = await get(http, f"overview?span={span}")
        assert (found["step"], len(found["series"]), found["total"]["completed"]) == (step, points, 2)
        assert {point["added"] for point in found["series"]} == {None}
    assert (await get(http, "overview"))["total"]["completed"] == 0


async def test_queues_and_types_have_their_own_runs(http: httpx.AsyncClient, store: SqliteStore, clock: TestClock) -> None:
    await run_all(store, clock)
    queues = (await get(http, "queues"))["queues"]
    assert [(one["queue"], one["total"]["completed"], one["total"]["failed"]) for one in queues] == [
        ("mail", 2, 0),
        ("web", 0, 1),
    ]
    assert queues[1]["jobs"]["dead"] == 1
    types = (await get(http, "types"))["types"]
    assert [(one["type"], one["total"]["completed"], one["total"]["failed"]) for one in types] == [("a", 1, 1), ("b", 1, 0)]
    one = await get(http, "queues?limit=1")
    assert ([queue["queue"] for queue in one["queues"]], one["more"]) == (["mail"], 1)
    assert [queue["queue"] for queue in (await get(http, "queues?name=web"))["queues"]] == ["web"]
    assert [kind["type"] for kind in (await get(http, "types?name=b"))["types"]] == ["b"]


async def test_a_series_has_the_depth_of_its_queue(http: httpx.AsyncClient, store: SqliteStore) -> None:
    await store.statistics.sample({"mail": Depth(7, 3), "web": Depth(1, 0)})
    depths = {one["queue"]: one["series"][-1] for one in (await get(http, "queues"))["queues"]}
    assert (depths["mail"]["ready"], depths["mail"]["delayed"], depths["web"]["ready"]) == (7, 3, 1)
    overview = await get(http, "overview")
    assert (overview["series"][-1]["ready"], overview["series"][-2]["ready"]) == (8, None)
    assert (await get(http, "types"))["types"] == []


async def test_workers_have_their_busy_slots(app: Demora, http: httpx.AsyncClient, store: SqliteStore) -> None:
    api = make_api(app, Settings(database_url="sqlite://"))
    async with app.worker(), httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=BASE) as own:
        [worker] = (await get(own, "workers"))["workers"]
        overview = await get(own, "overview")
    assert (worker["busy"], worker["slots"] > 0) == (0, True)
    assert overview["slots"] == {"workers": 1, "slots": worker["slots"], "busy": 0}
    assert overview["database"]["status"] == "healthy"
    assert (await get(http, "workers"))["workers"] == []


async def test_times_have_milliseconds_as_those_of_jobs_have(
    http: httpx.AsyncClient, store: SqliteStore, clock: TestClock
) -> None:
    await add_ids(store, {})
    clock.turn(ms=7)
    found, workers = await get(http, "overview"), await get(http, "workers")
    times = [found["now"], found["countedAt"], found["series"][0]["at"], found["oldestReady"]["dueAt"], workers["now"]]
    assert [time for time in times if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)] == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("overview?span=month", "span"),
        ("queues?limit=0", "limit"),
        ("types?limit=101", "limit"),
        ("workers?span=day", "span"),
    ],
)
async def test_what_means_nothing_is_refused(http: httpx.AsyncClient, path: str, field: str) -> None:
    problem(await http.get(f"{METRICS}/{path}"), 422, field)


async def test_a_queue_says_what_its_pace_did(http: httpx.AsyncClient, store: SqliteStore, clock: TestClock) -> None:
    pace = Pace(gap=seconds(60), burst=1, rapid=None, protect=("web",))
    await store.paces.set("mail", request_of(pace), by="ann")
    await add_ids(store, *[{"queue": "mail", "delay": ms(1)}] * 3)
    clock.turn(ms=1)
    for _ in range(2):
        await store.paces.release()
        clock.turn(60)
    await add_ids(store, {"queue": "web"})
    clock.turn(3)
    [job] = (await claim(store, 1, queues=["web"])).jobs
    await settle(store, job, DONE)
    history = (await http.get("/api/v1/queues/mail")).json()["pace"]["history"]
    for stretch in ("lastHour", "lastDay"):
        effect = history[stretch]
        assert (effect["released"], effect["held"]["max"]) == (2, 60_000.0)
        assert effect["realTimeWait"]["p50"] == pytest.approx(3000, rel=0.1)
