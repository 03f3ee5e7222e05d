"""No wake-up between two stores of an engine is lost: an event while one of them begins to listen, or while the other sends.

What happens between the look of a waiter and its wait is in `tests/conformance/test_subscribe.py`, for all set-ups."""

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from demora.engines.postgres import notifier as postgres
from demora.engines.postgres.connection.connections import Session
from demora.engines.sqlite import notifier as sqlite
from demora.store.jobs import Topic
from tests.builders import add_one, seconds
from tests.facts import eventually
from tests.setups import postgres_store

SOON = 5.0  # seconds


@pytest.fixture(autouse=True)
def _no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "SAFETY", 3600.0)


async def heard(rung: asyncio.Event) -> None:
    await asyncio.wait_for(rung.wait(), SOON)


@pytest.fixture
async def pair(tmp_path: Path) -> Any:
    """A notifier that listens, and one that notifies, on one SQLite file."""
    listener, sender = sqlite.Notifier(tmp_path / "jobs.db"), sqlite.Notifier(tmp_path / "jobs.db")
    yield listener, sender
    listener.close()
    sender.close()


async def test_sqlite_a_sender_that_has_just_listed_the_sockets_reaches_a_new_one(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_FRESH", 0.2)  # so that the sender's listing is not too old by chance
    (listener, sender), rung = pair, asyncio.Event()
    sender.notify([Topic.READY])
    listener.listen(Topic.READY, rung.set)
    sender.notify([Topic.READY])
    await heard(rung)


async def test_sqlite_a_socket_that_is_made_while_the_folder_is_listed_is_found_by_the_next_notification(
    pair: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (listener, sender), rung, listdir = pair, asyncio.Event(), os.listdir
    folder = sqlite.sockets_folder(tmp_path / "jobs.db")
    folder.mkdir()
    os.utime(folder, ns=(1, 1))
    monkeypatch.setattr(sqlite, "_GRAIN", 0)
    monkeypatch.setattr(sqlite, "_FRESH", 0.0)

    def list_and_then_listen(path: Any) -> list[str]:
        listed = listdir(path)
        listener.listen(Topic.READY, rung.set)
        return listed

    monkeypatch.setattr(os, "listdir", list_and_then_listen)
    sender.notify([Topic.READY])
    monkeypatch.setattr(os, "listdir", listdir)
    sender.notify([Topic.READY])
    await heard(rung)


async def test_postgres_a_look_waits_until_the_store_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a job that is added after the look and before the LISTEN wakes nobody."""
    add_listener, reached, go = asyncpg.Connection.add_listener, asyncio.Event(), asyncio.Event()

    async def held(connection: Any, *asked: Any) -> None:
        reached.set()
        await go.wait()
        await add_listener(connection, *asked)

    monkeypatch.setattr(asyncpg.Connection, "add_listener", held)
    one, other = postgres_store(tmp_path), postgres_store(tmp_path)
    await one.open()
    await other.open()
    try:
        with one.subscribe(Topic.READY) as place:
            looking = asyncio.create_task(one.queues())
            await asyncio.wait_for(reached.wait(), SOON)
            listens = asyncio.create_task(one._notifier.ready())
            for _ in range(3):
                await other.queues()
            assert not listens.done()
            assert not looking.done()
            go.set()
            await asyncio.gather(looking, listens)
            place.clear()
            await add_one(other)
            assert await asyncio.wait_for(place.wait(None), SOON)
    finally:
        await one.close()
        await other.close()


async def test_postgres_what_was_missed_before_the_store_listens_again_wakes_its_waiters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PAUSE", 0.01)
    add_listener, reached, go = asyncpg.Connection.add_listener, asyncio.Event(), asyncio.Event()

    async def held(connection: Any, *asked: Any) -> None:
        reached.set()
        await go.wait()
        await add_listener(connection, *asked)

    one, other = postgres_store(tmp_path), postgres_store(tmp_path)
    await one.open()
    await other.open()
    try:
        with one.subscribe(Topic.READY) as place:
            await one.queues()
            monkeypatch.setattr(asyncpg.Connection, "add_listener", held)
            monkeypatch.setattr(postgres, "CLOCK_LOOK", 0.01)
            lost = one._notifier._listening
            assert lost is not None
            one._notifier._listening = asyncio.ensure_future(one._notifier._listen())  # as after a cut
            lost.cancel()
            await asyncio.wait_for(reached.wait(), SOON)
            await add_one(other, delay=seconds(1))
            place.clear()
            go.set()
            assert await asyncio.wait_for(place.wait(None), SOON)
    finally:
        await one.close()
        await other.close()


async def test_postgres_a_topic_that_comes_while_others_are_sent_is_sent_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, reached, go = Session.rows, asyncio.Event(), asyncio.Event()

    async def held(session: Session, statement: str, **what: Any) -> Any:
        answer = await rows(session, statement, **what)
        if statement == "notify" and not reached.is_set():
            reached.set()
            await go.wait()
        return answer

    one, other = postgres_store(tmp_path), postgres_store(tmp_path)
    await one.open()
    await other.open()
    try:
        with one.subscribe(Topic.ENDED) as place:
            await one.queues()
            added = await add_one(other, delay=seconds(60))
            await eventually(lambda: asyncio.sleep(0, other._notifier._sending is None), within=SOON)
            place.clear()
            monkeypatch.setattr(Session, "rows", held)
            await add_one(other)
            await asyncio.wait_for(reached.wait(), SOON)
            await other.cancel([added.id])
            go.set()
            assert await asyncio.wait_for(place.wait(None), SOON)
    finally:
        await one.close()
        await other.close()
