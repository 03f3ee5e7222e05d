"""The client of an application, directly on a database and over HTTP: the same verbs, values and errors."""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path

import pytest

from demora import Demora, Priority, Status
from demora.client.client import Client
from demora.client.events import Events, EventStream
from demora.core.access import KeyLimits, Scope
from demora.core.events import Event, EventKind
from demora.engines.sqlite import SqliteStore
from demora.errors import (
    Invalid,
    JobFailed,
    JobNotFound,
    KeyReused,
    LimitReached,
    NotAllowedForKey,
    NotOverHttp,
    QueueNotFound,
    ServiceRefused,
    StillRunning,
    TooLarge,
    UnknownJobType,
    WrongState,
)
from demora.handlers.registry import Registry
from demora.remote.client import RemoteJobs, RemoteQueues, remote_client
from demora.remote.connection import ServiceConnection
from demora.remote.store import RemoteStore
from demora.system.clock import SystemClock
from tests.api.keys import key_for
from tests.builders import NO_SUCH_ID
from tests.servers.nearby import serving
from tests.setups import SETUPS, Setup

FOUR = [setup for setup in SETUPS if setup.name in ("sqlite-file", "postgres", "lined-sqlite", "lined-postgres")]


@pytest.fixture(params=FOUR, ids=lambda setup: setup.name)
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Demora]:
    """The application of the service, on a database of each set-up."""
    setup: Setup = request.param
    async with Demora(store=setup.make(tmp_path, SystemClock())) as app:
        yield app


@pytest.fixture(params=["direct", "over HTTP"])
async def app(request: pytest.FixtureRequest, service: Demora) -> AsyncIterator[Demora]:
    """An application of a program: that of the service itself, or one that knows only its address."""
    if request.param == "direct":
        yield service
        return
    async with serving(service) as url, Demora(url) as app:
        yield app


@pytest.fixture
async def remote(service: Demora) -> AsyncIterator[Demora]:
    async with serving(service) as url, Demora(url) as app:
        yield app


async def test_a_job_is_enqueued_with_every_option_and_read_again(app: Demora) -> None:
    at = datetime(2090, 1, 2, 3, 4, 5, tzinfo=UTC)
    job = await app.enqueue(
        "mail.send",
        {"to": "a@b.c", "n": [1, 2.5, None]},
        at=at,
        queue="post",
        priority="HIGH",
        max_retries=7,
        retry_delay="3s",
        timeout="5m",
        tags=["x", "y"],
        name="the mail",
        expires_at=at + timedelta(days=1),
        unique="a@b.c",
        webhook_on_cancel=True,
    )
    found = await app.get(job.id)
    for one in (job, found):
        assert (one.type, one.name, one.queue, one.priority) == ("mail.send", "the mail", "post", Priority.HIGH)
        assert (one.payload, one.status, one.tags) == ({"to": "a@b.c", "n": [1, 2.5, None]}, Status.QUEUED, ("x", "y"))
        assert (one.max_retries, one.retry_delay, one.timeout) == (7, timedelta(seconds=3), timedelta(minutes=5))
        assert (one.scheduled_at, one.due_at, one.expires_at) == (at, at, at + timedelta(days=1))
        assert (one.unique_key, one.webhook_on_cancel, one.lane) == ("a@b.c", True, job.lane)


async def test_many_jobs_are_enqueued_in_order_all_or_none(app: Demora) -> None:
    jobs = await app.enqueue_many([("a", {"n": 1}), ("b", None, {"delay": "1h"}), {"type": "c", "payload": {"n": 3}}])
    assert [(job.type, job.payload) for job in jobs] == [("a", {"n": 1}), ("b", {}), ("c", {"n": 3})]
    assert jobs[1].scheduled_at - jobs[1].created_at == timedelta(hours=1)
    with pytest.raises(Invalid) as refused:
        await app.enqueue_many([("a", None), ("not a type", None)])
    assert refused.value.field == "jobs[1].type"
    assert len((await app.find()).jobs) == 3
    assert await app.enqueue_many([]) == []


async def test_jobs_are_spread_over_a_span(app: Demora) -> None:
    jobs = await app.enqueue_many([("a", None)] * 4, spread="4h")
    assert [round((job.scheduled_at - jobs[0].created_at) / timedelta(hours=1)) for job in jobs] == [0, 1, 2, 3]


async def test_the_same_key_is_the_same_job_and_another_request_is_refused(app: Demora) -> None:
    first = await app.enqueue("a", {"n": 1}, key="order-1")
    assert (await app.enqueue("a", {"n": 1}, key="order-1")).id == first.id
    with pytest.raises(KeyReused) as refused:
        await app.enqueue("a", {"n": 2}, key="order-1")
    assert (refused.value.key, refused.value.job) == ("order-1", None)
    with pytest.raises(KeyReused) as refused:
        await app.enqueue_many([("a", None), ("a", {"n": 3}, {"key": "order-1"})])
    assert (refused.value.key, refused.value.job) == ("order-1", 1)
    assert len((await app.find()).jobs) == 1


async def test_an_unknown_type_is_named_also_in_a_batch(service: Demora, app: Demora) -> None:
    service.registry.known_types_only = True
    with pytest.raises(UnknownJobType) as refused:
        await app.enqueue("never.heard.of")
    assert (refused.value.type, refused.value.job) == ("never.heard.of", None)
    with pytest.raises(UnknownJobType) as refused:
        await app.enqueue_many([("demo.echo", None), ("demo.echo", None), ("nor.of.this", None)])
    assert (refused.value.type, refused.value.job) == ("nor.of.this", 2)
    assert (await app.find()).jobs == []


async def test_a_unique_job_that_waits_is_kept_as_it_is(app: Demora) -> None:
    first = await app.enqueue("a", {"n": 1}, unique="one")
    kept = await app.enqueue("a", {"n": 2}, unique="one")
    assert (kept.id, kept.payload) == (first.id, {"n": 1})
    again = await app.enqueue("b", {"n": 1}, unique="type+payload")
    assert (await app.enqueue("b", {"n": 1}, unique="type+payload")).id == again.id


async def test_the_defaults_of_a_handler_in_this_process_apply(app: Demora) -> None:
    @app.job("report", queue="reports", max_retries=9, priority="LOW")
    async def report(month: int) -> int: ...

    job = await report.enqueue(month=3)
    assert (job.queue, job.max_retries, job.priority) == ("reports", 9, Priority.LOW)
    with pytest.raises(Invalid, match="month"):
        await app.enqueue("report", {"month": "May"})


async def test_the_defaults_of_a_handler_of_the_service_apply_to_types_that_this_process_does_not_know(
    remote: Demora, service: Demora
) -> None:
    @service.job("report", queue="reports", max_retries=9)
    async def report() -> None: ...

    [first] = await remote.enqueue_many([("report", None)])
    second = await remote.enqueue("report", max_retries=1)
    assert [(job.queue, job.max_retries) for job in (first, second)] == [("reports", 9), ("reports", 1)]


async def test_a_job_is_awaited_and_its_result_returned(app: Demora, service: Demora) -> None:
    @service.job("double")
    async def double(n: int) -> int:
        return 2 * n // (n - 1)

    async with service.worker():
        job = await app.enqueue("double", {"n": 2})
        assert await app.result(job, "60s") == 4
        failing = await app.enqueue("double", {"n": 1}, max_retries=0)
        with pytest.raises(JobFailed) as failed:
            await app.result(failing.id, "60s")
    assert (failed.value.id, failed.value.status) == (failing.id, "FAILED")
    ended = await app.wait(job.id)
    assert (ended.status, ended.attempt, len(ended.attempts)) == (Status.COMPLETED, 1, 1)
    assert ended.attempts[0].ended_at is not None


async def test_a_wait_ends_after_its_timeout(app: Demora) -> None:
    job = await app.enqueue("a", delay="1h")
    assert (await app.wait(job, "10ms")).status is Status.QUEUED
    with pytest.raises(StillRunning):
        await app.result(job, "10ms")


async def test_a_job_is_cancelled_retried_rescheduled_and_deleted(app: Demora) -> None:
    client, job = await app.open(), await app.enqueue("a", delay="1h")
    moved = await app.reschedule(job.id, delay="2h", priority="LOW", tags=["later"])
    assert (moved.priority, moved.tags) == (Priority.LOW, ("later",))
    assert moved.due_at - job.due_at > timedelta(minutes=59)
    assert await app.cancel(job.id) is Status.CANCELLED
    with pytest.raises(WrongState) as refused:
        await app.cancel(job.id)
    assert (refused.value.id, refused.value.verb, refused.value.status) == (job.id, "cancel", "CANCELLED")
    with pytest.raises(WrongState, match="reschedule takes a job that is QUEUED or RETRYING") as refused:
        await app.reschedule(job.id, delay="1h")
    assert refused.value.verb == "reschedule"
    assert (await app.retry(job.id)).status is Status.QUEUED
    with pytest.raises(WrongState):
        await app.retry(job.id)
    with pytest.raises(WrongState):
        await client.delete(job.id)
    await app.cancel(job.id)
    await client.delete(job.id)
    for verb in (app.get, app.wait, app.cancel, app.retry, client.delete, client.why):
        with pytest.raises(JobNotFound) as gone:
            await verb(job.id)
        assert gone.value.id == job.id


async def test_jobs_are_found_page_by_page(app: Demora) -> None:
    ids = [(await app.enqueue("a", {"n": n}, queue="q", tags=["t"])).id for n in range(3)]
    await app.enqueue("b")
    page = await app.find(queue="q", type="a", tag="t", status=[Status.QUEUED, "RETRYING"], limit=2)
    assert [job.id for job in page.jobs] == ids[:0:-1]
    assert page.jobs[0].payload == {"n": 2}
    assert (await app.find("queue:q type:a tag:t", status=[Status.QUEUED, "RETRYING"], limit=2)).jobs == page.jobs
    rest = await app.find(queue="q", limit=2, after=page.next, fields=[])
    assert ([job.id for job in rest.jobs], rest.next, rest.jobs[0].payload_json) == ([ids[0]], None, b"")
    for wrong in ({"limit": 0}, {"status": "DONE"}, {"after": "x"}, {"fields": ["name"]}):
        with pytest.raises(Invalid) as refused:
            await app.find(**wrong)
        assert refused.value.field == next(iter(wrong))


async def test_queues_statistics_and_reasons_are_the_same(app: Demora) -> None:
    client = await app.open()
    job = await app.enqueue("a", queue="mail")
    await app.enqueue("a", queue="mail", delay="1h")
    paused = await client.pause("mail", "the server moves")
    assert paused.pause is not None
    assert paused.pause.reason == "the server moves"
    assert (await client.why(job.id)).reason == "queue_paused"
    assert [(queue.name, queue.ready, queue.delayed) for queue in await client.queues()] == [("mail", 1, 1)]
    assert (await client.resume("mail")).pause is None
    counted = (await client.stats(fresh=True)).total
    assert (counted.ready, counted.delayed, counted.processing, counted.dead) == (1, 1, 0, 0)
    with pytest.raises(QueueNotFound) as unknown:
        await client.queue("nope")
    assert unknown.value.name == "nope"
    assert await client.workers() == []
    assert ((await client.health()).status, await client.recover()) == ("degraded", [])


async def test_what_is_wrong_with_a_request_is_named_as_the_argument(app: Demora) -> None:
    job = await app.enqueue("a", delay="1h", expires_in="2h")
    for field, change in (("delay", {"delay": "3h"}), ("tags[0]", {"tags": [""]}), ("priority", {"priority": "URGENT"})):
        with pytest.raises(Invalid) as refused:
            await app.reschedule(job.id, **change)
        assert refused.value.field == field
    with pytest.raises(TooLarge):
        await app.enqueue("a", {"text": "x" * 1024 * 1024})


async def test_events_are_heard_and_resumed(app: Demora, service: Demora) -> None:
    client, heard = await app.open(), list[Event]()
    async with asyncio.timeout(60):
        async with client.events(queue="mail") as stream:
            await service.enqueue("a", queue="other")
            job = await service.enqueue("a", queue="mail", delay="1h", tags=["x"])
            await client.cancel(job.id)
            async for event in stream:
                heard.append(event)
                if event.kind is EventKind.CANCELLED:
                    break
        assert [event.kind for event in heard] == [EventKind.ADDED, EventKind.CANCELLED]
        ended = heard[1]
        assert ended.job is not None
        assert (ended.queue, ended.job.id, ended.job.status, ended.job.tags) == ("mail", job.id, Status.CANCELLED, ("x",))
        later = await service.enqueue("a", queue="mail", delay="1h")
        await service.cancel(later.id)
        missed = [event async for event in _until(client.events(queue="mail", after=ended.position), later.id)]
    assert later.id in {event.job.id for event in missed if event.job is not None}


async def _until(stream: EventStream, id: str) -> AsyncIterator[Event]:
    """The events up to the end of a job."""
    async with stream:
        async for event in stream:
            yield event
            if event.job is not None and event.job.id == id and event.kind is EventKind.CANCELLED:
                return


async def test_a_key_that_may_only_submit_gets_the_job_of_its_request(service: Demora) -> None:
    key = await key_for(service, Scope.SUBMIT)
    async with serving(service) as url, Demora(url, api_key=key) as app:
        job = await app.enqueue("a", {"n": 1}, queue="q", delay="1h")
        [other] = await app.enqueue_many([("b", {"n": 2})])
        with pytest.raises(ServiceRefused) as refused:
            await app.get(job.id)
    assert (job.payload, job.queue, other.payload) == ({"n": 1}, "q", {"n": 2})
    assert refused.value.status == 403
    stored = await service.get(job.id)
    assert (stored.created_at, stored.due_at) == (job.created_at, job.due_at)


async def test_the_limits_of_a_key_are_errors_of_the_same_classes(service: Demora) -> None:
    limits = KeyLimits(queues=("mail.*",), max_types=1)
    key = (await (await service.open()).keys.create("shop", [Scope.SUBMIT], limits=limits)).text
    async with serving(service) as url:
        async with Demora(url, api_key=key) as app:
            with pytest.raises(NotAllowedForKey) as refused:
                await app.enqueue("a", queue="other")
            assert refused.value.field == "queue"
            await app.enqueue("a", queue="mail.1")
            with pytest.raises(LimitReached):
                await app.enqueue("b", queue="mail.1")
        async with Demora(url) as app:
            with pytest.raises(ServiceRefused) as closed:
                await app.get(NO_SUCH_ID)
        assert (closed.value.status, closed.value.type) == (401, "urn:demora:problem:api-key-needed")


async def test_a_verb_without_a_route_says_so(remote: Demora) -> None:
    client = await remote.open()
    for call in (client.registered_workers, client.overview, client.schedules, client.pacings):
        with pytest.raises(NotOverHttp):
            await call()
    with pytest.raises(NotOverHttp, match=r"does not offer add_schedule:"):
        await client.add_schedule("nightly", "a", cron="@daily")
    with pytest.raises(Invalid, match="transaction"):
        await remote.enqueue("a", within=object())


OFFERED = {
    *("enqueue", "enqueue_many", "get", "find", "wait", "cancel", "retry", "reschedule", "delete", "why", "events"),
    *("queues", "queues_page", "queue", "pause", "resume", "stats", "workers", "health", "recover", "check_webhook_url"),
}
BUILT_ON_OTHERS = {"make", "make_many", "result", "use", "store", "registry"}
PARTS = {"keys", "webhooks", "actions", "remote_workers"}


def test_every_verb_is_offered_over_http_or_refused_by_its_own_name() -> None:
    direct = Client(SqliteStore(), Registry())
    client = remote_client(RemoteStore(ServiceConnection("http://127.0.0.1:1")), Registry())
    verbs = {name for name in dir(direct) if not name.startswith("_")} - BUILT_ON_OTHERS - PARTS
    assert verbs > OFFERED
    assert {type(getattr(client, name).__self__) for name in OFFERED} == {RemoteJobs, RemoteQueues, Events}
    of_parts = {f"{part}.{verb}" for part in PARTS for verb in dir(getattr(direct, part)) if not verb.startswith("_")}
    for name in (verbs - OFFERED) | of_parts - {"keys.find"}:  # a worker asks this one
        with pytest.raises(NotOverHttp) as refused:
            attrgetter(name)(client)()
        assert refused.value.verb == name


async def test_a_program_without_a_block_leaves_no_session_open(service: Demora) -> None:
    program = "import asyncio; from demora import Demora; asyncio.run(Demora({url!r}).enqueue('demo.echo'))"
    async with serving(service) as url:
        command = [sys.executable, "-W", "error", "-c", program.format(url=url)]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, said = await process.communicate()
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize("part", [RemoteJobs, RemoteQueues])
def test_a_verb_over_http_takes_the_arguments_of_the_verb_on_a_database(part: type) -> None:
    client = Client(SqliteStore(), Registry())
    for name, verb in inspect.getmembers(part, inspect.isfunction):
        if not name.startswith("_"):
            _, *over_http = inspect.signature(verb).parameters.values()
            assert over_http == [*inspect.signature(getattr(client, name)).parameters.values()], name
