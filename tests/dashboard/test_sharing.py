"""Fifty open pages ask the database for no more than one."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from bench.counting import statements
from demora import Demora
from demora.api import make_api
from demora.client import shared
from demora.client.client import Client
from demora.core.access import Scope
from demora.core.spans import timestamp
from demora.dashboard import access, sessions, visit
from demora.dashboard.access import Visitor
from demora.dashboard.asgi import service_dashboard
from demora.dashboard.drawing import tell_times
from demora.dashboard.pages import failures, jobs, queues
from demora.dashboard.reading import Short
from demora.engines.sqlite import SqliteStore
from demora.runtime.front import Front
from demora.settings import Settings
from demora.store.store import Store
from demora.system.clock import SystemClock
from tests.copies import jobs_file
from tests.dashboard.conftest import BASE, Browser
from tests.dashboard.lively import make_lively
from tests.setups import postgres_store

PAGES = ("", "/jobs", "/queues", "/queues/newsletter", "/schedules", "/failures", "/system")
STORES = {
    "sqlite": lambda folder: SqliteStore(jobs_file(folder), clock=SystemClock()),
    "postgres": lambda folder: postgres_store(folder, SystemClock()),
}


class Timer:
    """The time of shared reads and sessions, turned by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(shared, "_now", lambda: self.now)
        monkeypatch.setattr(access, "Sessions", partial(sessions.Sessions, timer=lambda: self.now))


@asynccontextmanager
async def visitors(front: Front, key: str, count: int) -> AsyncIterator[list[Browser]]:
    """So many browsers that have signed in, each by itself."""
    async with AsyncExitStack() as opened:
        browsers = []
        for _ in range(count):
            http = httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE)
            browsers.append(Browser(await opened.enter_async_context(http)))
            assert (await browsers[-1].sign_in(key)).status_code == 303
        yield browsers


@pytest.mark.slow
@pytest.mark.parametrize("engine", STORES)
async def test_fifty_pages_need_no_more_statements_than_one(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FRESH", 1.0)
    monkeypatch.setattr(visit, "PATIENCE", 60.0)  # on a busy machine too, a page ends after all of its reads
    with statements() as counted:
        store: Store = STORES[engine](tmp_path)
        async with Demora(store=store) as app:
            client = await app.open()
            named = await make_lively(client)
            key = await client.keys.create("ann", ["admin"])
            timer = Timer(monkeypatch)
            front = Front(make_api(app, Settings()), service_dashboard(app, Settings()))
            ids = [job.id for job in (await client.find(limit=50)).jobs]
            paths = [*PAGES, f"/jobs?rows={','.join(ids)}", f"/jobs/{named['held']}"]
            async with visitors(front, key.text, 50) as browsers:
                for path in paths:
                    cost: dict[int, list[int]] = {1: [], 50: []}
                    for pages in (1, 50, 1, 50, 1, 50):
                        timer.now += 100
                        await refreshed(browsers, path="/schedules")  # all sessions are known
                        timer.now += 1.5
                        before = counted.copy()
                        await refreshed(browsers[:pages], path)
                        cost[pages].append(counted["statements"] - before["statements"])
                    assert 0 < min(cost[50]) <= min(cost[1]), (path, cost)  # a store also has statements of its own


async def refreshed(browsers: list[Browser], path: str) -> None:
    answers = await asyncio.gather(*(browser.live(f"/dashboard{path}") for browser in browsers))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1


async def test_a_live_block_is_shared_by_scope_and_knows_nobody(app: Demora, settings: Settings) -> None:
    client = await app.open()
    await make_lively(client)
    admin, reader = await client.keys.create("the-admin", ["admin"]), await client.keys.create("a-reader", ["read"])
    front = Front(make_api(app, settings), service_dashboard(app, settings))
    async with visitors(front, admin.text, 1) as [ann], visitors(front, reader.text, 1) as [ben]:
        for path in ("/jobs", "/queues", "/system", "/schedules"):
            anns, bens = await ann.live(f"/dashboard{path}"), await ben.live(f"/dashboard{path}")
            assert "hx-post" not in bens.text, path
            assert "Pause" in anns.text or path in ("/jobs", "/system"), path
            for cookie in (*ann.http.cookies.values(), *ben.http.cookies.values()):
                assert cookie not in anns.text + bens.text
        assert "the-admin" not in (await ben.live("/dashboard/system")).text


async def test_an_action_is_seen_at_once(browser: Browser, app: Demora) -> None:
    client = await app.open()
    await client.enqueue("demo.echo", queue="mail", delay="1h")
    assert "Resume" not in (await browser.live("/dashboard/queues")).text
    await browser.act("/dashboard/queues/mail/pause", reason="provider down")
    assert "Resume" in (await browser.live("/dashboard/queues")).text


async def test_a_caller_without_patience_gets_the_value_before(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch)
    gate, reads = asyncio.Semaphore(1), shared.SharedReads()
    found = iter(range(10))

    async def read() -> int:
        await gate.acquire()
        return next(found)

    async def ask() -> int:
        return await reads.get("count", 1.0, read, patience=0.001)

    assert await ask() == 0
    timer.now += 1
    assert [await ask(), await ask()] == [0, 0]  # the second read has begun and waits
    gate.release()
    assert await reads.get("count", 1.0, read) == 1
    timer.now += shared.OLDEST
    asked = asyncio.ensure_future(ask())
    await asyncio.wait([asked], timeout=0.01)
    assert not asked.done()  # the value before is too old
    gate.release()
    assert await asked == 2


async def test_a_first_value_that_takes_long_is_announced_instead_of_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, announced, gate = Timer(monkeypatch), list[str](), asyncio.Event()
    reads = shared.SharedReads(found=lambda: announced.append("found"))

    async def read() -> int:
        await gate.wait()
        return 1

    async def ask() -> int | None:
        return await reads.get_soon("groups", 30.0, read, patience=0.0, first=0.01)

    assert await ask() is None
    timer.now += 3600  # the read has had its time: no further caller waits
    assert await asyncio.wait_for(reads.get_soon("groups", 30.0, read, patience=0.0, first=3600.0), 10) is None
    assert announced == []
    gate.set()
    assert await reads.get("groups", 30.0, read) == 1
    await asyncio.sleep(0)
    assert (await ask(), announced) == (1, ["found"])


async def test_all_slow_reads_of_a_page_share_one_patience(app: Demora, settings: Settings) -> None:
    board, request = service_dashboard(app, settings), Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    made = await board._visit(request, Visitor("ann", frozenset({Scope.READ})), "", {}, {})
    assert 0 <= made.patience <= visit.PATIENCE
    made.began -= visit.PATIENCE
    assert made.patience == 0


async def test_a_change_outdates_what_is_quick_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, reads, found = Timer(monkeypatch), shared.SharedReads(), iter(range(20))

    async def quick() -> int:
        return next(found)

    async def slow() -> int:
        timer.now += 0.5
        return next(found)

    async def ask() -> list[int]:
        kinds = (("quick", 1.0, quick), ("rare", 30.0, quick), ("slow", 1.0, slow))
        return [await reads.get(*kind) for kind in kinds]

    assert await ask() == [0, 1, 2]
    assert await ask() == [0, 1, 2]
    reads.outdate()
    assert await ask() == [3, 1, 2]
    timer.now += 10
    assert await ask() == [4, 1, 5]


async def test_a_read_that_began_before_a_change_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    Timer(monkeypatch)
    reads, gate, found = shared.SharedReads(), asyncio.Event(), iter(range(5))

    async def read() -> int:
        await gate.wait()
        return next(found)

    asked = asyncio.ensure_future(reads.get("activity", 1.0, read))
    await asyncio.sleep(0)
    reads.outdate()
    gate.set()
    assert await asked == 0
    assert await reads.get("activity", 1.0, read) == 1


async def test_values_that_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch)
    reads = shared.SharedReads(most=100)

    async def read() -> str:
        return "x" * 1000

    for n in range(1000):
        timer.now += 1
        await reads.get(f"rows {n}", 1.0, read)
    assert len(reads._values) <= 100


async def test_only_rows_that_have_changed_are_drawn_anew(browser: Browser, client: Client) -> None:
    ids = [(await client.enqueue("a.type", name=f"the {n}th", delay="1h")).id for n in range(20)]
    path = f"/dashboard/jobs?rows={','.join(ids)}"
    before = await browser.live(path)
    drawn = jobs.draw_row.cache_info().misses
    await browser.act(f"/dashboard/jobs/{ids[7]}/cancel")
    after = await browser.live(path)
    assert jobs.draw_row.cache_info().misses == drawn + 1
    assert (before.text.count("Cancelled"), after.text.count("Cancelled")) == (1, 2)  # the word also chooses a status
    assert [after.text.count(f"the {n}th") for n in range(20)] == [1] * 20


async def test_groups_of_dead_letters_are_drawn_once(browser: Browser, client: Client) -> None:
    await make_lively(client)
    first = await browser.get("/dashboard/failures")
    drawn = failures.draw_group.cache_info().misses
    again = [await browser.get("/dashboard/failures") for _ in range(3)]
    assert failures.draw_group.cache_info().misses == drawn
    assert first.text.count('id="group-') == 3
    assert {answer.text.count('id="group-') for answer in again} == {3}


async def test_only_queues_that_have_changed_are_drawn_anew(browser: Browser, client: Client) -> None:
    for n in range(5):
        await client.enqueue("a.type", queue=f"q{n}")
    await client.enqueue("a.type", queue="q4", delay="1h")
    await client.set_pace("q4", gap="1m")
    before = await browser.get("/dashboard/queues")
    drawn = queues.draw_queue.cache_info().misses
    await browser.act("/dashboard/queues/q2/pause", reason="full")
    after = await browser.get("/dashboard/queues")
    assert queues.draw_queue.cache_info().misses == drawn + 1
    assert (before.text.count(">Paused<"), after.text.count(">Paused<")) == (0, 1)
    assert re.findall(r'id="queue-(q\d)"', after.text) == [f"q{n}" for n in range(5)]
    assert re.search(r'next <span class="countdown"><time [^>]*data-style="countdown"[^>]*>[^<]+</time>', after.text)


def test_times_are_told_when_a_kept_row_is_shown() -> None:
    at = datetime(2026, 11, 18, 8, 0, tzinfo=UTC)
    forged = f'<time datetime="{timestamp(at)}" data-style="ago"></time>'
    cells = jobs.Cells("1", forged, "a name", "mail", "normal", (forged,), "ready", Short(forged), forged, None, at)
    kept = jobs.draw_row(cells, "/dashboard", selectable=True)
    told = [tell_times([kept, kept], at + timedelta(seconds=seconds)) for seconds in (0, 75, 3 * 86_400)]
    assert [re.findall(r">([^<>]*)</time>", text) for text in told] == [["now"] * 2, ["1m 15s ago"] * 2, ["3d ago"] * 2]
    assert jobs.draw_row(cells, "/dashboard", selectable=True) is kept
    assert "data-select" not in jobs.draw_row(cells, "/dashboard", selectable=False)
