"""Notifications of the line: they arrive after any silence, and the subscription is renewed when its connection is lost."""

import asyncio
import re

import pytest

from demora.line import LinedStore
from demora.line.redis import connections
from demora.store.jobs import Topic
from demora.store.line_feed import Place
from tests.facts import eventually
from tests.line.conftest import Open
from tests.servers.valkey import Server

SOON = 5.0  # seconds


@pytest.fixture(autouse=True)
def _brisk(brisk: None) -> None:
    pass


async def notifies(one: LinedStore, other: LinedStore, id: str) -> None:
    """Check that a put of one store wakes a waiter of the other."""
    with other.subscribe(Topic.READY) as place:
        place.clear()
        await (await one._maintainer()).line.put([Place(id, "default", 0, 2, 0)], now=1)
        assert await asyncio.wait_for(place.wait(None), SOON)


async def test_notifications_arrive_after_a_silence_longer_than_the_timeout(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SILENCE", 0.3)
    one, other = await open_store(server.url), await open_store(server.url)

    def asked() -> int:
        found = re.search(r"cmdstat_ping:calls=(\d+)", server.ask("INFO", "commandstats"))
        return int(found[1]) if found else 0

    before = asked()
    longer = 2 * int(connections.TIMEOUT / connections.SILENCE) + 4  # of two listeners
    await eventually(lambda: asyncio.to_thread(asked), lambda now: now >= before + longer, within=20)
    await notifies(one, other, "x")


async def test_a_subscription_is_renewed_when_its_connection_is_cut(server: Server, open_store: Open) -> None:
    one, other = await open_store(server.url), await open_store(server.url)
    server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    clients = "connected and listening"

    def listening() -> str:
        return clients if server.ask("CLIENT", "LIST", "TYPE", "pubsub").count("name=demora") == 2 else ""

    assert await eventually(lambda: asyncio.to_thread(listening), bool, within=20) == clients
    await notifies(one, other, "y")
