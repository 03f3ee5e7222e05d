"""Requests of the remote client that are sent again: which, how long, and that they are carried out once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demora import Demora, Status
from demora.blocking import BlockingEvents
from demora.core.access import KeyLimits, Scope
from demora.core.events import EventKind
from demora.errors import JobNotFound, ServiceRefused, StoreClosed, StoreError, StoreUnreachable, WrongState
from demora.remote import connection, events
from tests.servers.nearby import serving
from tests.servers.proxy import Proxy, before


@pytest.fixture
async def service() -> AsyncIterator[Demora]:
    async with Demora("sqlite://") as app:
        yield app


@pytest.fixture
async def proxied(service: Demora) -> AsyncIterator[tuple[Proxy, Demora]]:
    """A program whose connection to the service can be cut."""
    async with serving(service) as url, before(f"{url}/") as (proxy, through), Demora(through) as app:
        yield proxy, app


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send nothing again."""
    monkeypatch.setattr(connection, "PATIENCE", 0.0)


@pytest.mark.parametrize("arrives", [False, True], ids=["lost request", "lost answer"])
async def test_a_job_is_stored_once_whatever_is_lost(proxied: tuple[Proxy, Demora], service: Demora, arrives: bool) -> None:
    proxy, app = proxied
    proxy.cut_at(1, arrives=arrives)
    job = await app.enqueue("a", {"n": 1})
    proxy.cut_at(1, arrives=arrives)
    jobs = await app.enqueue_many([("b", None), ("b", None)])
    assert proxy.cuts == 2
    assert {one.id for one in (await service.find()).jobs} == {job.id, *(one.id for one in jobs)}
    assert len(jobs) == len({one.id for one in jobs}) == 2


async def test_a_cancel_or_delete_whose_answer_was_lost_is_not_refused(
    proxied: tuple[Proxy, Demora], service: Demora
) -> None:
    proxy, app = proxied
    job = await app.enqueue("a", delay="1h")
    proxy.cut_at(1)
    assert await app.cancel(job.id) is Status.CANCELLED
    with pytest.raises(WrongState):
        await app.cancel(job.id)
    proxy.cut_at(1)
    await (await app.open()).delete(job.id)
    with pytest.raises(JobNotFound):
        await (await app.open()).delete(job.id)
    assert proxy.cuts == 2


async def test_a_retry_whose_answer_was_lost_is_not_sent_again(proxied: tuple[Proxy, Demora], service: Demora) -> None:
    proxy, app = proxied
    job = await app.enqueue("a", delay="1h")
    await app.cancel(job.id)
    proxy.cut_at(1)
    with pytest.raises(StoreError, match="may or may not"):
        await app.retry(job.id)
    assert (await service.get(job.id)).generation == 2


async def test_a_service_that_is_away_for_a_moment_is_tried_again(proxied: tuple[Proxy, Demora], service: Demora) -> None:
    proxy, app = proxied
    proxy.refusing = True
    adding = asyncio.ensure_future(app.enqueue("a"))
    await asyncio.sleep(0)
    proxy.refusing = False
    assert (await adding).id == (await service.find()).jobs[0].id


@pytest.mark.usefixtures("impatient")
async def test_a_service_that_stays_away_is_an_error_of_the_store() -> None:
    async with Demora("http://127.0.0.1:1") as app:
        with pytest.raises(StoreUnreachable) as away:
            await app.enqueue("a")
    assert away.value.may_pass
    with pytest.raises(StoreClosed):
        await (await app.open()).store.connection.sibling().ask("GET", "/")  # type: ignore[attr-defined]
    await app.close()


async def test_a_program_over_its_rate_waits_as_long_as_the_service_asks(service: Demora) -> None:
    made = await (await service.open()).keys.create("slow", [Scope.SUBMIT], limits=KeyLimits(rate=2))
    async with serving(service) as url, Demora(url, api_key=made.text) as app:
        jobs = [await app.enqueue("a") for _ in range(6)]  # the burst is 4
    assert len({job.id for job in jobs}) == 6


@pytest.mark.usefixtures("impatient")
async def test_a_program_over_its_rate_for_too_long_is_told_so(service: Demora) -> None:
    made = await (await service.open()).keys.create("slow", [Scope.READ], limits=KeyLimits(rate=1))
    async with serving(service) as url, Demora(url, api_key=made.text) as app:
        with pytest.raises(ServiceRefused) as refused:
            await asyncio.gather(*(app.find() for _ in range(4)))
    assert refused.value.status == 429


async def test_a_stream_of_events_that_is_cut_goes_on_where_it_was(
    proxied: tuple[Proxy, Demora], service: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.01)
    proxy, app = proxied
    first, second = [(await service.enqueue("a", delay="1h")).id for _ in range(2)]
    async with asyncio.timeout(60), (await app.open()).events() as stream:
        await service.cancel(first)
        async for event in stream:
            if event.job is not None and event.job.id == first:
                break
        proxy.cut_all()
        await service.cancel(second)
        async for event in stream:
            if event.job is not None and event.job.id == second:
                break


async def test_the_position_of_a_stream_is_before_an_event_that_no_wait_has_returned(
    proxied: tuple[Proxy, Demora], service: Demora
) -> None:
    _, app = proxied
    client, job = await app.open(), await service.enqueue("a", delay="1h")
    async with asyncio.timeout(60), client.events() as stream:
        source = stream._source
        assert isinstance(source, events.RemoteEvents)
        assert await stream.wait(0.001) is None  # the next event may come between two waits
        await service.cancel(job.id)
        assert source._pending is not None
        await asyncio.wait([source._pending])
        position = stream.position
    async with asyncio.timeout(60), client.events(after=position) as again:
        event = await anext(again)
    assert (event.kind, event.job and event.job.id) == (EventKind.CANCELLED, job.id)


async def test_an_answer_of_something_else_is_an_error_of_the_store() -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(other, "127.0.0.1", 0)
    async with listener, Demora(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}") as app:
        with pytest.raises(StoreError, match="is it a demora service"):
            await app.find()
        with pytest.raises(StoreError, match="is it a demora service"):
            await app.enqueue("a")


def test_a_program_without_an_event_loop_uses_a_service(tmp_path: Path) -> None:
    """The blocking face, from a thread of its own, while the service runs on the loop of the test."""

    async def main() -> None:
        async with Demora(f"sqlite:///{tmp_path}/jobs.db") as service, service.worker(), serving(service) as url:
            assert await asyncio.to_thread(_program, url) == {"hi": 1}

    asyncio.run(main())


def _program(url: str) -> object:
    app = Demora(url)
    with app.blocking as blocking:
        job = blocking.enqueue("demo.echo", {"hi": 1})
        assert blocking.wait(job.id, "60s").status is Status.COMPLETED
        assert [queue.name for queue in blocking.queues()] == ["default"]
        assert blocking.why(job.id).reason == "ended"
        return blocking.result(job, "60s")


@pytest.mark.parametrize("way", ["database", "service"])
def test_events_are_heard_without_an_event_loop(tmp_path: Path, way: str) -> None:
    """A plain loop over events, which ends with its block and resumes from its position."""

    async def main() -> None:
        async with Demora(f"sqlite:///{tmp_path}/jobs.db") as service, serving(service) as url:
            app = Demora(url if way == "service" else f"sqlite:///{tmp_path}/jobs.db")
            with app.blocking:
                await asyncio.to_thread(_listen, app)

    asyncio.run(main())


def _listen(app: Demora) -> None:
    blocking = app.blocking
    with blocking.events(queue="mail") as events:
        first = blocking.enqueue("a", queue="mail", delay="1h")
        blocking.enqueue("a", queue="other", delay="1h")
        blocking.cancel(first.id)
        assert _ended(events) == first.id
    second = blocking.enqueue("a", queue="mail", delay="1h")
    blocking.cancel(second.id)
    again = blocking.events(queue="mail", after=events.position)
    assert _ended(again) == second.id
    blocking.close()  # it goes on from its position
    third = blocking.enqueue("a", queue="mail", delay="1h")
    blocking.cancel(third.id)
    while _ended(again) != third.id:  # an end may come again
        pass
    again.close()


def _ended(events: BlockingEvents) -> str:
    """The next job that ends."""
    return next(event.job.id for event in events if event.kind is EventKind.CANCELLED and event.job is not None)


async def test_a_key_or_host_name_that_cannot_be_sent_is_an_error_of_the_service(service: Demora) -> None:
    async with serving(service) as url:
        for place, key in ((url, "secret\n"), ("http://a..b", "secret")):
            unsent = connection.ServiceConnection(place, key)
            await unsent.open()
            try:
                with pytest.raises(StoreUnreachable, match="cannot be called") as asked:
                    await unsent.ask("GET", "/api/v1/jobs")
                with pytest.raises(StoreUnreachable, match="cannot be called"):
                    await unsent.stream("/api/v1/events", (), after=None, silence=1.0)
                assert not asked.value.may_pass
                assert "secret" not in str(asked.value)
            finally:
                await unsent.close()
