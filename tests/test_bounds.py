"""The deadlines and bounds that the docs and docstrings name: where each is promised, its figure, and the test of it.

`PROMISED` ties the three together. The words must stand in the document, the constant of the source must have the figure,
and the test must exist. A test that waits in real time patches the constant; the figure is held here. `HELD` has the bounds
of the worker, whose tests run in virtual time and hold the figure themselves.
"""

import ast
import asyncio
import importlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from demora import Demora, Status
from demora.api import Api, make_api
from demora.api.operations import queues
from demora.client.client import Client
from demora.core.access import Scope
from demora.core.events import EventFilter
from demora.core.outbound.webhook import RETRIES, RETRY_CAP, RETRY_DELAY
from demora.core.retention import Retention
from demora.core.verdict import Raised, RetryState, decide
from demora.engines.postgres.connection import connections
from demora.engines.sqlite import SqliteStore
from demora.errors import StoreBusy, StoreError, UndoTooLate
from demora.metrics.service import ServiceMetrics
from demora.remote import connection, events
from demora.runtime import supervisor
from demora.scheduler.scheduler import Scheduler
from demora.scheduler.schedules import _keep_defining
from demora.settings import Settings
from demora.system.seams import Seams
from tests.api.asking import JOBS
from tests.api.conftest import BASE
from tests.builders import add_one, new_job, seconds
from tests.clock import TestClock
from tests.setups import postgres_store
from tests.sim.world import World

ROOT = Path(__file__).parents[1]
HERE, WORKER = "tests/test_bounds.py", "tests/worker/test_bounds.py"


class Promise(NamedTuple):
    """Words of a document, the constant of the source with its figure, and the test that holds it."""

    document: str
    words: str
    constant: str
    figure: float
    test: str


PROMISED = (
    Promise(
        "src/demora/engines/postgres/connection/connections.py",
        "milliseconds to wait for a row that another session holds",
        "engines.postgres.connection.connections:LOCKED",
        10_000,
        f"{HERE}::test_postgresql_waits_no_longer_than_its_limit_for_a_locked_row",
    ),
    Promise(
        "src/demora/api/operations/queues.py",
        "seconds that the store has to answer",
        "api.operations.queues:HEALTH_LIMIT",
        5,
        f"{HERE}::test_a_store_that_hangs_is_unhealthy",
    ),
    Promise(
        "docs/reference/python.md",
        "cancelled within the last 30 s wait again",
        "client.client:UNDO_WITHIN",
        30,
        f"{HERE}::test_a_cancel_can_be_undone_for_thirty_seconds",
    ),
    Promise(
        "docs/reference/http.md",
        "Undo the cancel of a waiting job, within 30 s.",
        "client.client:UNDO_WITHIN",
        30,
        f"{HERE}::test_a_cancel_can_be_undone_over_http_for_thirty_seconds",
    ),
    Promise(
        "docs/reference/worker-protocol.md",
        "Without one for 30 s",
        "core.workers:LIVE_WITHIN",
        30,
        f"{HERE}::test_a_remote_worker_is_alive_for_thirty_seconds_after_a_call",
    ),
    Promise(
        "docs/reference/worker-protocol.md",
        "An answer has at most 100 jobs",
        "wire.worker_protocol:MOST_CLAIMED",
        100,
        f"{HERE}::test_an_answer_to_a_claim_has_a_hundred_jobs_at_most",
    ),
    Promise(
        "docs/reference/worker-protocol.md",
        "30,000, with an empty list",
        "wire.worker_protocol:LONGEST_POLL",
        30,
        f"{HERE}::test_a_claim_may_wait_for_thirty_seconds_and_no_longer",
    ),
    Promise(
        "src/demora/remote/connection.py",
        "seconds that the service has for an answer",
        "remote.connection:ANSWER_WITHIN",
        30,
        f"{HERE}::test_a_service_that_does_not_answer_is_given_up",
    ),
    Promise(
        "src/demora/remote/events.py",
        "seconds without a byte after which the connection is made anew",
        "remote.events:SILENCE",
        60,
        f"{HERE}::test_a_silent_stream_of_events_is_made_anew",
    ),
    Promise(
        "src/demora/remote/events.py",
        "seconds between two tries to connect, at least",
        "remote.events:PAUSE",
        1,
        f"{HERE}::test_a_stream_that_ends_at_once_is_made_anew_once_a_second",
    ),
    Promise(
        "src/demora/client/actions.py",
        "of a run; the next one continues where it stopped",
        "client.actions:TIMEOUT",
        86_400,
        "tests/conformance/test_actions.py::test_an_action_whose_worker_dies_goes_on_and_retries_no_job_twice",
    ),
    Promise(
        "docs/how-to/webhooks.md",
        "It tries again after 5 s, 10 s, 20 s and so on up to 12 h, 16 tries in all",
        "core.outbound.webhook:RETRY_CAP",
        12 * 3600,
        f"{HERE}::test_a_webhook_is_tried_sixteen_times_in_a_day_and_a_half",
    ),
    Promise(
        "docs/reference/cli.md",
        "how long the other secrets still sign (default 1d)",
        "client.webhooks:OVERLAP",
        86_400,
        f"{HERE}::test_a_secret_that_was_replaced_signs_for_one_day",
    ),
    Promise(
        "src/demora/line/filling.py",
        "milliseconds for which one process maintains the line",
        "line.filling:MAINTAINER_SPAN",
        3000,
        "tests/line/redis/test_line.py::test_another_process_maintains_the_line_when_the_time_of_the_first_is_over",
    ),
    Promise(
        "docs/explanation/line.md",
        "the maintainer sends the settings again every 5 s",
        "line.maintainer:ARRANGE_TICKS",
        5,  # of a second each, as the next entry says
        "tests/line/test_loss.py::test_the_settings_of_queues_are_sent_again_every_five_ticks",
    ),
    Promise(
        "src/demora/line/maintainer.py",
        "seconds between two checks of the line",
        "line.maintainer:TICK",
        1,
        "tests/line/test_loss.py::test_an_emptied_line_is_filled_again",
    ),
    Promise(
        "docs/explanation/line.md",
        "the line hands it out again after 5 s",
        "line.maintainer:STALE_AFTER",
        5000,
        "tests/line/test_loss.py::test_a_job_taken_by_a_process_that_died_is_handed_out_again",
    ),
    Promise(
        "docs/reference/cli.md",
        "after a pause that grows from 0.5 to 30 seconds",
        "runtime.supervisor:FIRST_PAUSE",
        0.5,
        f"{HERE}::test_pauses_of_a_supervisor_grow_up_to_a_limit",
    ),
    Promise(
        "docs/reference/cli.md",
        "after a pause that grows from 0.5 to 30 seconds",
        "runtime.supervisor:LONGEST_PAUSE",
        30,
        f"{HERE}::test_pauses_of_a_supervisor_grow_up_to_a_limit",
    ),
    Promise(
        "src/demora/runtime/supervisor.py",
        "seconds after which a worker counts as healthy",
        "runtime.supervisor:SETTLED",
        60,
        f"{HERE}::test_the_pause_after_a_healthy_worker_is_short_again",
    ),
    Promise(
        "src/demora/runtime/supervisor.py",
        "seconds after its grace period until a worker without a supervisor is killed",
        "runtime.supervisor:KILLED_AFTER",
        10,
        f"{HERE}::test_a_worker_that_outlives_its_supervisor_and_its_grace_is_killed",
    ),
    Promise(
        "src/demora/scheduler/schedules.py",
        "until a process retries what it must leave to others for now",
        "scheduler.schedules:DEFINE_AGAIN",
        30,
        f"{HERE}::test_schedules_are_defined_again_every_thirty_seconds_while_one_waits",
    ),
    Promise(
        "src/demora/scheduler/scheduler.py",
        "seconds between two merges of statistics at least",
        "scheduler.scheduler:MERGED_EVERY",
        20,
        f"{HERE}::test_statistics_are_merged_every_twenty_seconds_at_most",
    ),
    Promise(
        "docs/reference/http.md",
        "the head did not arrive within 10 s",
        "api.http_server.connection:Limits().head",
        10,
        "tests/hostile/test_http_limits.py::test_unfinished_requests_end_at_their_deadline",
    ),
    Promise(
        "docs/reference/http.md",
        "The server closes an idle connection after 75 s.",
        "api.http_server.connection:Limits().keep_alive",
        75,
        "tests/hostile/test_http_limits.py::test_unfinished_requests_end_at_their_deadline",
    ),
    Promise(
        "docs/explanation/security.md",
        "for 5 s, so that the caller can read why",
        "api.http_server.connection:Limits().linger",
        5,
        "tests/hostile/test_http_limits.py::test_unfinished_requests_end_at_their_deadline",
    ),
    Promise(
        "docs/how-to/use-the-dashboard.md",
        "lasts for 12 hours",
        "client.api_keys:SESSION_LIFE",
        12 * 3600,
        f"{HERE}::test_a_session_lasts_for_twelve_hours",
    ),
    Promise(
        "docs/reference/http.md",
        "kept for 24 hours",
        "core.job:KEY_KEPT",
        86_400,
        "tests/conformance/test_add_keys.py::test_a_key_is_kept_until_it_expires_and_no_longer",
    ),
)

# Bounds of the worker -> the test that holds it.
HELD = {
    # A running job
    "a worker notices a cancel within a second": f"{WORKER}::test_a_cancel_reaches_its_run_within_a_second",
    "progress is visible within a second": f"{WORKER}::test_progress_and_start_are_visible_within_a_second",
    "a plain function has 2 seconds after a cancel": f"{WORKER}::test_a_plain_function_has_two_seconds_after_a_cancel",
    "a run has its timeout, and 5 s to end": f"{WORKER}::test_a_run_that_ignores_its_timeout_is_settled_five_seconds_later",
    "the default timeout is an hour": f"{WORKER}::test_a_job_without_a_timeout_has_an_hour",
    "the longest timeout is a setting": "tests/hostile/test_slots.py::test_a_stored_job_runs_no_longer_than_the_limit",
    "a lease is renewed until the job's deadline and never after": (
        f"{WORKER}::test_a_handler_that_blocks_the_loop_for_ever_keeps_its_job_until_its_deadline_only"
    ),
    "a job behind a blocked loop is not kept from others": (
        "tests/worker/test_leases.py::test_jobs_that_have_not_started_are_renewed_only_while_the_loop_of_their_worker_is_alive"
    ),
    "a loop that is blocked for a second is reported": (
        "tests/worker/test_leases.py::test_only_a_loop_that_does_not_answer_while_time_passes_is_blocked"
    ),
    # Attempts
    "retries come after 1, 2 and 4 s": f"{WORKER}::test_a_failing_job_is_tried_again_after_one_two_and_four_seconds",
    "a wait is a day at most": "tests/core/test_backoff.py::test_the_wait_stops_growing_at_the_cap",
    "a type without a handler fails after an hour": f"{WORKER}::test_a_job_of_an_unknown_type_fails_after_an_hour",
    "a run keeps 200 lines of 1000 characters": f"{WORKER}::test_what_a_run_leaves_is_bounded",
    "an error keeps 2000 characters, a traceback and a detail 16000": f"{WORKER}::test_what_a_run_leaves_is_bounded",
    # Workers
    "other workers take over after the lease": f"{WORKER}::test_the_job_of_a_dead_worker_is_taken_over_when_its_lease_ends",
    "a live worker has sent a heartbeat within 30 s": (
        f"{WORKER}::test_a_worker_sends_heartbeats_and_is_alive_for_thirty_seconds"
    ),
    "a worker that stops gives running jobs its grace": (
        f"{WORKER}::test_a_stopping_worker_waits_for_its_grace_and_no_longer"
    ),
    "a worker whose store does not answer stops within its grace": (
        f"{WORKER}::test_a_worker_stops_within_its_grace_although_its_store_does_not_answer"
    ),
    "a worker that no notification reaches looks after a minute": f"{WORKER}::test_a_worker_looks_after_a_minute_by_itself",
    "a worker in trouble claims again after 5 s at most": f"{WORKER}::test_a_worker_tries_again_within_five_seconds",
    "a verdict is kept for as long as the lease": f"{WORKER}::test_a_verdict_is_tried_for_as_long_as_the_lease",
    "about 10 ms of work are claimed ahead": (
        "tests/worker/test_prefetch.py::test_about_ten_milliseconds_of_work_are_claimed_ahead"
    ),
    # Waiting jobs
    "a job expires at its expiry": f"{WORKER}::test_a_job_that_no_worker_takes_expires_at_its_time",
    "a caller waits for as long as it said": f"{WORKER}::test_a_caller_waits_for_as_long_as_it_said",
    "the housekeeping looks every minute": f"{WORKER}::test_the_housekeeping_looks_at_least_every_minute",
    "a job that a pace may release waits for no worker": (
        f"{WORKER}::test_a_delayed_job_is_released_within_half_a_second_although_no_worker_claims"
    ),
    # Processes and the log
    "a process has a minute to start": (
        "tests/worker/test_processes.py::test_a_process_that_does_not_come_up_fails_the_attempt"
    ),
    "a terminal shows 20 completed jobs a second": (
        "tests/worker/test_run_log.py::test_more_are_one_summary_a_second_until_there_are_few_again"
    ),
    "the same trouble is logged every 30 s": (
        "tests/cli/test_logs.py::test_trouble_that_lasts_is_told_now_and_then_and_its_end_once"
    ),
}


@pytest.mark.parametrize("promise", PROMISED, ids=lambda promise: f"{promise.constant} {promise.test.rpartition('::')[2]}")
def test_each_promise_stands_in_its_document_and_has_its_figure_and_its_test(promise: Promise) -> None:
    assert promise.words in " ".join((ROOT / promise.document).read_text().split())
    module, _, name = promise.constant.partition(":")
    value: Any = eval(name, vars(importlib.import_module(f"demora.{module}")))
    assert (value.total_seconds() if isinstance(value, timedelta) else value) == promise.figure
    assert_there_is(promise.test)


@pytest.mark.parametrize("bound", HELD)
def test_each_bound_of_the_worker_is_held_by_a_test_that_exists(bound: str) -> None:
    assert_there_is(HELD[bound])


def assert_there_is(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


# Stores


async def test_postgresql_waits_no_longer_than_its_limit_for_a_locked_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOCKED", 100)
    store = postgres_store(tmp_path)
    await store.open()
    try:
        added = await add_one(store)
        async with connections.connected(store.url) as other, other.transaction():
            await other.execute(f"select from {store.options.schema}.jobs for update")
            with pytest.raises(StoreBusy, match="stayed locked"):
                await store.cancel([added.id])
        assert (await store.cancel([added.id]))[0].did
    finally:
        await store.close()


# Callers, with a clock that is turned


@pytest.fixture
async def app(clock: TestClock) -> AsyncIterator[Demora]:
    async with Demora(store=SqliteStore(clock=clock)) as app:
        yield app


@pytest.fixture
async def client(app: Demora) -> Client:
    return await app.open()


@pytest.fixture
async def http(app: Demora) -> AsyncIterator[httpx.AsyncClient]:
    api: Api = make_api(app, Settings(database_url="sqlite://"), ServiceMetrics())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url=BASE) as http:
        yield http


async def test_a_store_that_hangs_is_unhealthy(
    app: Demora, client: Client, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "HEALTH_LIMIT", 0.05)
    hang: Any = lambda *_, **__: asyncio.Event().wait()  # noqa: E731
    monkeypatch.setattr(client.store, "workers", hang)
    monkeypatch.setattr(client.store, "probe", hang, raising=False)
    answer = await http.get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (503, "unhealthy")


@pytest.mark.parametrize(("after", "undone"), [(29.999, True), (30.0, False)])
async def test_a_cancel_can_be_undone_for_thirty_seconds(
    client: Client, clock: TestClock, after: float, undone: bool
) -> None:
    job = await client.enqueue("demo.echo", delay="1h")
    await client.cancel(job.id)
    clock.turn(after)
    if undone:
        assert (await client.undo_cancel(job.id)).status is Status.QUEUED
    else:
        with pytest.raises(UndoTooLate):
            await client.undo_cancel(job.id)


@pytest.mark.parametrize(("after", "status"), [(29.999, 200), (30.0, 409)])
async def test_a_cancel_can_be_undone_over_http_for_thirty_seconds(
    client: Client, http: httpx.AsyncClient, clock: TestClock, after: float, status: int
) -> None:
    job = await client.enqueue("demo.echo", delay="1h")
    await client.cancel(job.id)
    clock.turn(after)
    assert (await http.post(f"{JOBS}/{job.id}/cancel/undo")).status_code == status


async def test_a_remote_worker_is_alive_for_thirty_seconds_after_a_call(
    client: Client, http: httpx.AsyncClient, clock: TestClock
) -> None:
    await http.post("/api/v1/workers", json={"name": "ann", "types": ["a"], "slots": 1})
    clock.turn(29.999)
    assert len(await client.workers()) == 1
    clock.turn(0.001)
    assert await client.workers() == []


async def _worker(http: httpx.AsyncClient) -> str:
    asked = {"name": "ann", "types": ["demo.echo"], "slots": 1000}
    return f"/api/v1/workers/{(await http.post('/api/v1/workers', json=asked)).json()['workerId']}"


async def test_an_answer_to_a_claim_has_a_hundred_jobs_at_most(client: Client, http: httpx.AsyncClient) -> None:
    await client.store.add([new_job() for _ in range(150)])
    worker = await _worker(http)
    assert (await http.post(f"{worker}/claim", json={"limit": 1})).status_code == 200  # shows how large payloads are
    refused = await http.post(f"{worker}/claim", json={"limit": 101})
    claimed = await http.post(f"{worker}/claim", json={"limit": 100})
    assert (refused.status_code, claimed.status_code) == (422, 200)
    assert len(claimed.json()["jobs"]) == 100


async def test_a_claim_may_wait_for_thirty_seconds_and_no_longer(client: Client, http: httpx.AsyncClient) -> None:
    await client.store.add([new_job()])
    worker = await _worker(http)
    assert (await http.post(f"{worker}/claim", json={"limit": 1, "wait": 30_001})).status_code == 422
    assert (await http.post(f"{worker}/claim", json={"limit": 1, "wait": 30_000})).status_code == 200


async def test_a_secret_that_was_replaced_signs_for_one_day(client: Client, clock: TestClock) -> None:
    old, new = await client.webhooks.create_secret(), await client.webhooks.rotate_secret()
    clock.turn(86_399)
    assert await _in_force(client) == {old.stored.id, new.stored.id}
    clock.turn(1)
    assert await _in_force(client) == {new.stored.id}


async def _in_force(client: Client) -> set[str]:
    found = await client.webhooks.secrets()
    return {one.id for one in found.secrets if one.in_force(found.now)}


async def test_a_session_lasts_for_twelve_hours(client: Client, clock: TestClock) -> None:
    made = await client.keys.create("ann", [Scope.READ])
    token = await client.keys.open_session(made.key)
    clock.turn(12 * 3600 - 1)
    assert token in (await client.keys.find_sessions([token])).keys
    clock.turn(1)
    assert token not in (await client.keys.find_sessions([token])).keys


def test_a_webhook_is_tried_sixteen_times_in_a_day_and_a_half() -> None:
    waits = list[timedelta]()
    for attempt in range(1, RETRIES + 2):
        state = RetryState(attempt, max_retries=RETRIES, retry_delay=RETRY_DELAY, retry_cap=RETRY_CAP)
        verdict = decide(Raised("503"), state, 0.0)
        if verdict.delay is not None:
            waits.append(verdict.delay)
    assert verdict.status is Status.FAILED
    assert len(waits) == 15
    assert waits[:4] == [seconds(5), seconds(10), seconds(20), seconds(40)]
    assert waits[-1] == timedelta(hours=12)
    assert timedelta(hours=34) < sum(waits, timedelta()) < timedelta(hours=36)  # and less by a jitter


# The other end of the API


@asynccontextmanager
async def mute(answer: bytes = b"") -> AsyncIterator[tuple[str, list[float]]]:
    """A service that says this to each request and then keeps silent; its URL, and when it was asked."""
    asked = list[float]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.append(asyncio.get_running_loop().time())
        writer.write(answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()


async def test_a_service_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_WITHIN", 0.05)
    monkeypatch.setattr(connection, "PATIENCE", 0.0)
    async with mute() as (url, asked):
        service = connection.ServiceConnection(url, None)
        await service.open()
        with pytest.raises(StoreError):
            await service.ask("GET", "/api/v1/queues")
        await service.close()
    assert len(asked) == 1


ALL_EVENTS = EventFilter()
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def test_a_silent_stream_of_events_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SILENCE", 0.05)
    monkeypatch.setattr(events, "PAUSE", 0.0)
    async with mute(STREAM) as (url, asked):
        service = connection.ServiceConnection(url, None)
        await service.open()
        stream = events.RemoteEvents(service, ALL_EVENTS, None)
        waiting = asyncio.ensure_future(stream.wait())
        while len(asked) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        stream.close()
        await waiting
        await service.close()


def test_a_stream_that_ends_at_once_is_made_anew_once_a_second() -> None:
    """A proxy may end every stream as it begins."""
    world, asked = World(1), list[float]()

    class Ending(connection.ServiceConnection):
        async def stream(self, *args: Any, **options: Any) -> AsyncIterator[bytes]:
            asked.append(world.loop.time())
            return _no_lines()

    async def main() -> None:
        stream = events.RemoteEvents(Ending("http://localhost", None), ALL_EVENTS, None)
        assert await stream.wait(timeout=10) is None
        stream.close()

    try:
        world.loop.run_until_complete(main())
    finally:
        world.close()
    assert asked == [pytest.approx(n) for n in range(len(asked))]
    assert 10 <= len(asked) <= 11


async def _no_lines() -> AsyncIterator[bytes]:
    return
    yield b""


# Processes


class Dying(supervisor._Supervisor):
    """A supervisor whose workers end at once; it stops after so many."""

    def __init__(self, number: int) -> None:
        super().__init__([], 1)
        self.left = number

    def _start(self) -> Any:
        self.left -= 1
        if self.left < 0:
            self._stopping.set()
        return Ended()


class Ended:
    """A process that has ended."""

    pid = 1

    def wait(self) -> int:
        return 1


async def _pauses(caplog: pytest.LogCaptureFixture, number: int) -> list[float]:
    await Dying(number)._keep()
    return [record.facts["next_start_s"] for record in caplog.records if record.event == "worker.died"]  # type: ignore[attr-defined]


async def test_pauses_of_a_supervisor_grow_up_to_a_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.005)
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE", 0.03)
    assert await _pauses(caplog, 5) == [0.005, 0.01, 0.02, 0.03, 0.03]


async def test_the_pause_after_a_healthy_worker_is_short_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.005)
    monkeypatch.setattr(supervisor, "SETTLED", -1.0)
    assert await _pauses(caplog, 4) == [0.005] * 4


async def test_a_worker_that_outlives_its_supervisor_and_its_grace_is_killed() -> None:
    worker = """
import os, signal, threading
from datetime import timedelta
from demora.runtime import supervisor
supervisor.KILLED_AFTER = 0.05
signal.signal(signal.SIGTERM, signal.SIG_IGN)
assert supervisor.hold_lifeline(timedelta(0))
print("up", flush=True)
threading.Event().wait()
"""
    read, write = os.pipe()
    process = supervisor.start_with_lifeline([sys.executable, "-c", worker], read)
    try:
        os.close(write)
        assert await asyncio.to_thread(process.wait, 60) == 1
    finally:
        os.close(read)
        process.kill()


# The scheduler, in virtual time


def test_schedules_are_defined_again_every_thirty_seconds_while_one_waits() -> None:
    world, defined = World(1), list[float]()

    async def define() -> bool:
        defined.append(world.loop.time())
        return len(defined) < 3

    try:
        world.loop.run_until_complete(_keep_defining(define))
    finally:
        world.close()
    assert defined == [30, 60, 90]


def test_statistics_are_merged_every_twenty_seconds_at_most() -> None:
    world, merged = World(1), list[float]()

    async def main() -> None:
        store = world.store()
        await store.open()
        merge = store.statistics.merge

        async def noted(**options: Any) -> Any:
            merged.append(world.loop.time())
            return await merge(**options)

        store.statistics.merge = noted  # type: ignore[method-assign]
        scheduler = Scheduler(store, Retention(), seams=Seams(chance=lambda: 0.0))
        running = asyncio.ensure_future(scheduler.run())
        for _ in range(600):
            await asyncio.sleep(1)
            await add_one(store, expires_in=seconds(1))  # so that there is housekeeping every second
        scheduler.stop()
        await running
        await store.close()

    try:
        world.loop.run_until_complete(main())
    finally:
        world.close()
    gaps = [after - before for before, after in pairwise(merged)]
    assert min(gaps) >= 20
    assert max(gaps) <= 60
