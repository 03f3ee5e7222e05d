"""Sessions are read from the database at most once a second, all that are in use in one call."""

import asyncio
from collections.abc import Collection

import pytest

from demora import Demora
from demora.client.api_keys import FoundSessions
from demora.client.client import Client
from demora.dashboard import sessions
from demora.dashboard.sessions import Sessions


class Counted:
    """The sessions of an application, a timer that is turned by hand, and the calls to the database."""

    def __init__(self, app: Demora, client: Client) -> None:
        self.now, self.calls = 0.0, list[set[str]]()
        self.sessions = Sessions(app, timer=lambda: self.now)
        find = client.keys.find_sessions

        async def counted(tokens: Collection[str]) -> FoundSessions:
            self.calls.append(set(tokens))
            return await find(tokens)

        client.keys.find_sessions = counted  # type: ignore[method-assign]


@pytest.fixture
def counted(app: Demora, client: Client, monkeypatch: pytest.MonkeyPatch) -> Counted:
    monkeypatch.setattr(sessions, "FRESH", 1.0)
    return Counted(app, client)


async def opened(client: Client, count: int) -> list[str]:
    key = (await client.keys.create("ann", ["read"])).key
    return [await client.keys.open_session(key) for _ in range(count)]


async def test_all_sessions_in_use_are_read_in_one_call_a_second(counted: Counted, client: Client) -> None:
    tokens = await opened(client, 50)
    for token in tokens:
        assert (await counted.sessions.find(token)).key
    before = len(counted.calls)
    for _ in range(3):
        counted.now += 1.0
        found = await asyncio.gather(*(counted.sessions.find(token) for token in tokens))
        assert all(one.key for one in found)
    assert [len(call) for call in counted.calls[before:]] == [50, 50, 50]


async def test_a_session_ends_within_a_second_after_its_key(counted: Counted, client: Client) -> None:
    [token] = await opened(client, 1)
    found = await counted.sessions.find(token)
    assert found.key is not None
    await client.keys.revoke(found.key.id)
    counted.now += 0.9
    assert (await counted.sessions.find(token)).key
    counted.now += 0.1
    assert (await counted.sessions.find(token)).key is None


async def test_a_session_that_was_ended_here_is_gone_at_once(counted: Counted, client: Client) -> None:
    [token] = await opened(client, 1)
    await counted.sessions.find(token)
    await client.keys.end_session(token)
    counted.sessions.forget(token)
    assert (await counted.sessions.find(token)).key is None


async def test_tokens_that_lead_nowhere_are_not_kept(counted: Counted, client: Client) -> None:
    [token] = await opened(client, 1)
    for n in range(20):
        assert (await counted.sessions.find(f"guess {n}")).key is None
    counted.now += 1.0
    await counted.sessions.find(token)
    assert counted.calls[-1] == {token}


async def test_without_any_key_one_call_a_second_serves_all(counted: Counted, client: Client) -> None:
    for n in range(20):
        assert not (await counted.sessions.find(f"browser {n}")).any
    assert len(counted.calls) == 1
    await client.keys.create("ann", ["read"])
    counted.now += 1.0
    assert (await counted.sessions.find("browser 1")).any
