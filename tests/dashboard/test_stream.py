"""The stream of a page: ticks when something changed, rarely, for as long as its session lasts and the service runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from demora import Demora
from demora.api import make_api
from demora.client import events as reading
from demora.client.client import Client
from demora.client.events import EventStream
from demora.core.access import Scope
from demora.dashboard import dashboard, stream, visit
from demora.dashboard.access import Access
from demora.dashboard.asgi import Dashboard, service_dashboard
from demora.runtime.front import Front
from demora.settings import Settings
from demora.wire.problems import TooManyWaits
from tests.api.listening import SOON, Listener, listening
from tests.dashboard.conftest import BASE, Browser
from tests.dashboard.lively import make_lively

HELLO, CHANGED = b"event: hello", b"event: changed"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOOK", 0.01)
    monkeypatch.setattr(reading, "PAUSE", 0.001)
    monkeypatch.setattr(stream, "TICK", 0.01)
    monkeypatch.setattr(stream, "LOOK", 0.01)


@pytest.fixture
def board(app: Demora, settings: Settings) -> Dashboard:
    return service_dashboard(app, settings)


@pytest.fixture
def front(app: Demora, settings: Settings, board: Dashboard) -> Front:
    return Front(make_api(app, settings), board)


@asynccontextmanager
async def watching(front: Front, **headers: str) -> AsyncIterator[Listener]:
    async with listening(front, path="/dashboard/stream", **headers) as listener:
        yield listener


async def ended(listener: Listener) -> None:
    async with asyncio.timeout(SOON):
        await listener.task
    assert listener.ended


async def test_a_page_says_what_it_still_reads_and_is_told_when_it_is_there(
    front: Front, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, gate = client.failure_groups, asyncio.Event()

    async def slow(**how: Any) -> Any:
        await gate.wait()
        return await groups(**how)

    monkeypatch.setattr(client, "failure_groups", slow)
    monkeypatch.setattr(visit, "FIRST_PATIENCE", 0.0)
    await make_lively(client)
    async with watching(front) as page, httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        assert "Grouping the dead letters…" in (await Browser(http).get("/dashboard/failures")).text
        await page.until(CHANGED)
        page.text = b""
        gate.set()
        await page.until(CHANGED)
        assert "ProviderTimeout" in (await Browser(http).get("/dashboard/failures")).text


async def test_a_page_is_told_that_something_changed(front: Front, client: Client) -> None:
    async with watching(front, Accept_Encoding="gzip") as page:
        assert (page.status, page.headers["content-type"]) == (200, "text/event-stream")
        assert (page.headers["x-accel-buffering"], page.headers["cache-control"]) == ("no", "no-store, no-transform")
        assert not {"content-length", "content-encoding"} & page.headers.keys()
        await page.until(CHANGED)  # there may have been a change before the reader began
        assert page.text.startswith(b":\n" + HELLO)
        page.text = b""
        await client.enqueue("demo.echo", {"secret": "of the payload"})
        await page.until(CHANGED)
        assert b"secret" not in page.text


async def test_many_changes_are_one_tick(front: Front, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "TICK", 3600.0)
    async with watching(front) as page, watching(front) as other:
        async with client.events() as events:
            for _ in range(20):
                await client.enqueue("demo.echo")
                await anext(events)
        await page.until(CHANGED)
        await other.until(CHANGED)
        assert page.text.count(CHANGED) == 1


async def test_the_more_pages_are_open_the_rarer_are_the_ticks(
    front: Front, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "FETCHED", 1 / 3600)
    async with watching(front) as page, client.events() as events:
        for _ in range(20):
            await client.enqueue("demo.echo")
            await anext(events)
        await page.until(CHANGED)
        assert page.text.count(CHANGED) == 1


async def test_all_streams_share_one_reader_and_the_last_one_stops_it(
    front: Front, board: Dashboard, client: Client
) -> None:
    before = asyncio.all_tasks()
    async with AsyncExitStack() as pages:
        opened = [await pages.enter_async_context(watching(front)) for _ in range(10)]
        await client.enqueue("demo.echo")
        for page in opened:
            await page.until(CHANGED)
        names = [task.get_name() for task in asyncio.all_tasks() - before]
        assert (names.count("demora-ticks"), names.count("demora-events"), len(board.streams)) == (1, 1, 10)
    async with asyncio.timeout(SOON):
        await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)
    assert len(board.streams) == 0


async def test_an_action_is_told_to_all_pages(front: Front, browser: Browser, client: Client, board: Dashboard) -> None:
    await client.enqueue("demo.echo", queue="mail", delay="1h")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        ann = Browser(http)
        async with watching(front) as page:
            await page.until(CHANGED)
            page.text = b""
            await ann.act("/dashboard/system/recover")  # no job changes by it
            await page.until(CHANGED)


async def test_a_silent_stream_says_that_it_is_alive(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "COMMENT_EVERY", 0.02)
    async with watching(front) as page:
        await page.until(b":\nevent: alive\ndata:\n\n:\nevent: alive")


async def test_a_stream_ends_when_the_service_stops(front: Front) -> None:
    async with watching(front) as page:
        front.stop()
        await ended(page)
    async with watching(front) as late:
        await ended(late)


@pytest.mark.parametrize("end", ["revoke", "sign out"])
async def test_a_stream_ends_with_its_session(front: Front, browser: Browser, client: Client, end: str) -> None:
    made, other = await client.keys.create("ann", ["admin"]), await client.keys.create("ben", ["read"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        await Browser(http).sign_in(other.text)
        bens = "; ".join(f"{name}={value}" for name, value in http.cookies.items())
    await browser.sign_in(made.text)
    anns = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
    async with watching(front, Cookie=anns) as page, watching(front, Cookie=bens) as kept:
        if end == "revoke":
            await client.keys.revoke(made.key.id)
        else:
            [(_, token)] = browser.http.cookies.items()
            await client.keys.end_session(token)
        await ended(page)
        assert b"event: ended" in page.text
        assert not kept.ended


async def test_without_a_session_there_is_no_stream(front: Front, browser: Browser, client: Client) -> None:
    await client.keys.create("ann", ["admin"])
    assert (await browser.get("/dashboard/stream")).status_code == 401


async def test_a_page_that_does_not_read_is_cut_off(
    front: Front, board: Dashboard, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(front) as slow:
        monkeypatch.setattr(stream, "UNREAD", 0.01)
        slow.reads.clear()
        await client.enqueue("demo.echo")
        async with asyncio.timeout(SOON):
            await slow.task
        assert len(board.streams) == 0
        slow.reads.set()


async def test_a_mounted_stream_is_short_and_follows_the_path(
    app: Demora, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("demora.dashboard.asgi.MOUNTED_LIFE", 0.05)
    web = Starlette(routes=[Mount("/a/b", dashboard(app, access=lambda _: Scope.READ))])
    async with listening(web, path="/a/b/stream") as page:
        await page.until(HELLO)
        await ended(page)
        assert b"event: again" in page.text


async def test_no_error_ends_the_reader_of_the_streams(
    front: Front, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tell, met = stream.Streams._tell, list[Exception]()

    async def fails_once(streams: stream.Streams, events: EventStream) -> None:
        if not met:
            met.append(RuntimeError("a fault of ours"))
            raise met[0]
        await tell(streams, events)

    monkeypatch.setattr(stream.Streams, "_tell", fails_once)
    async with watching(front) as page:
        await client.enqueue("demo.echo")
        await page.until(CHANGED)
    assert met
    assert "the stream of the dashboard failed" in caplog.text


async def test_no_error_ends_the_look_at_the_sessions(
    front: Front, board: Dashboard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([RuntimeError("a fault of ours"), True, False])

    async def still_allows(_: Access, request: Request) -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Access, "still_allows", still_allows)
    async with watching(front) as page:
        await ended(page)
        assert b"event: ended" in page.text
    assert "the look at the sessions of the dashboard failed" in caplog.text


async def test_a_stream_counts_as_a_request_that_waits(app: Demora, settings: Settings) -> None:
    api = make_api(app, settings)
    front = Front(api, service_dashboard(app, settings, api.waits))
    async with AsyncExitStack() as taken:
        async with watching(front) as page:
            await page.until(HELLO)
            with contextlib.suppress(TooManyWaits):
                while True:
                    taken.enter_context(api.waits.take(None))
            async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
                refused = await http.get("/dashboard/stream")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        async with watching(front) as next_one:  # the first one has left its place
            await next_one.until(HELLO)
            assert next_one.status == 200


async def test_the_head_of_a_stream_is_answered_at_once(browser: Browser, board: Dashboard) -> None:
    answer = await browser.http.head("/dashboard/stream")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "text/event-stream", b"")
