"""Rates: of each key, and of failed authentications by address, in bounded memory."""

from collections.abc import AsyncIterator

import pytest
from starlette.datastructures import Headers

from demora import Demora
from demora.api import access as guard_module
from demora.api.access import FRESH, Guard
from demora.core.access import Scope, check_limits
from demora.settings import Settings
from demora.wire.problems import BadKey, NoKey, TooManyFailures, TooManyRequests, WrongScope
from tests.api.keys import UNKNOWN, bearer, id_of, key_for

NOTHING = Headers({})
SETTINGS = Settings(key_rate=5, failed_auth_rate=2, trusted_proxies=("127.0.0.1",))
PEER, OTHER = "192.0.2.1", "192.0.2.2"


class Timer:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def app() -> AsyncIterator[Demora]:
    async with Demora("sqlite://") as app:
        yield app


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def guard(app: Demora, timer: Timer) -> Guard:
    return Guard(app, SETTINGS, open_without_keys=True, timer=timer)


async def failed(guard: Guard, tries: int, headers: Headers = NOTHING, peer: str | None = PEER) -> list[type[Exception]]:
    """What each of so many requests was refused with."""
    refused = []
    for _ in range(tries):
        with pytest.raises((NoKey, BadKey, TooManyFailures)) as why:
            await guard.admit(headers, Scope.READ, peer)
        refused.append(why.type)
    return refused


async def test_a_key_may_make_a_burst_and_then_so_many_a_second(app: Demora, guard: Guard, timer: Timer) -> None:
    key = Headers(bearer(await key_for(app, Scope.READ)))
    for _ in range(10):
        await guard.admit(key, Scope.READ)
    with pytest.raises(TooManyRequests) as refused:
        await guard.admit(key, Scope.READ)
    assert refused.value.retry_after == 1
    timer.now += 1
    for _ in range(5):
        await guard.admit(key, Scope.READ)
    with pytest.raises(TooManyRequests):
        await guard.admit(key, Scope.READ)


async def test_a_request_for_which_the_key_has_not_the_scope_counts_too(app: Demora, guard: Guard) -> None:
    key = Headers(bearer(await key_for(app, Scope.READ)))
    for _ in range(10):
        with pytest.raises(WrongScope):
            await guard.admit(key, Scope.ADMIN)
    with pytest.raises(TooManyRequests):
        await guard.admit(key, Scope.READ)


async def test_keys_are_counted_apart_and_can_have_rates_of_their_own(app: Demora, guard: Guard) -> None:
    keys = (await app.open()).keys
    for rate, allowed in ((None, 10), (1, 2), (20, 40)):
        made = await keys.create("test", [Scope.READ], limits=check_limits(rate=rate))
        for _ in range(allowed):
            await guard.admit(Headers(bearer(made.text)), Scope.READ)
        with pytest.raises(TooManyRequests):
            await guard.admit(Headers(bearer(made.text)), Scope.READ)
    free = await keys.create("test", [Scope.READ], limits=check_limits(rate=0))
    for _ in range(100):
        await guard.admit(Headers(bearer(free.text)), Scope.READ)


@pytest.mark.parametrize(
    "headers", [NOTHING, Headers(bearer(UNKNOWN)), Headers({"authorization": "Basic x"})], ids=["none", "unknown", "no form"]
)
async def test_failed_authentications_are_limited_by_address(
    app: Demora, guard: Guard, timer: Timer, headers: Headers
) -> None:
    await key_for(app, Scope.READ)
    refused = await failed(guard, 25, headers)
    assert (TooManyFailures in refused[:20], set(refused[20:])) == (False, {TooManyFailures})
    assert TooManyFailures not in await failed(guard, 20, headers, OTHER)
    timer.now += 1
    refused = await failed(guard, 3, headers)
    assert [one is TooManyFailures for one in refused] == [False, False, True]


async def test_a_valid_key_is_let_in_whatever_else_comes_from_its_address(app: Demora, guard: Guard, timer: Timer) -> None:
    used = Headers(bearer(await key_for(app, Scope.READ)))
    await guard.admit(used, Scope.READ, PEER)
    await failed(guard, 30, Headers(bearer(UNKNOWN)))
    await guard.admit(used, Scope.READ, PEER)
    new = Headers(bearer(await key_for(app, Scope.READ)))  # one that was never seen here before
    await guard.admit(new, Scope.READ, PEER)
    timer.now += FRESH
    await failed(guard, 30, Headers(bearer(UNKNOWN)))
    await guard.admit(used, Scope.READ, PEER)


async def test_only_a_trusted_proxy_may_say_who_calls(app: Demora, guard: Guard) -> None:
    await key_for(app, Scope.READ)
    for n in range(30):
        await failed(guard, 1, Headers({"x-forwarded-for": f"198.51.100.{n}"}))
    assert set(await failed(guard, 1, Headers({"x-forwarded-for": "203.0.113.1"}))) == {TooManyFailures}
    behind = [Headers({"x-forwarded-for": f"198.51.100.{n}"}) for n in range(30)]
    assert all([await failed(guard, 1, one, "127.0.0.1") == [NoKey] for one in behind])
    assert (await failed(guard, 25, behind[0], "127.0.0.1"))[-1] is TooManyFailures
    assert await failed(guard, 1, behind[1], "127.0.0.1") == [NoKey]


async def test_addresses_of_one_ipv6_network_are_one_caller(app: Demora, guard: Guard) -> None:
    await key_for(app, Scope.READ)
    refused = [one for n in range(25) for one in await failed(guard, 1, peer=f"2001:db8::{n:x}")]
    assert refused.count(TooManyFailures) == 5
    assert await failed(guard, 1, peer="2001:db8:0:1::1") == [NoKey]


async def test_only_so_many_addresses_are_remembered(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "MOST_REMEMBERED", 10)
    await key_for(app, Scope.READ)
    guard = Guard(app, SETTINGS, open_without_keys=True)
    for n in range(200):
        await failed(guard, 1, peer=f"192.0.2.{n}")
    assert len(guard._failures) == 10


async def test_rates_of_zero_are_no_limits(app: Demora, timer: Timer) -> None:
    guard = Guard(app, Settings(key_rate=0, failed_auth_rate=0), open_without_keys=True, timer=timer)
    key = Headers(bearer(await key_for(app, Scope.READ)))
    for _ in range(3000):
        await guard.admit(key, Scope.READ)
    assert TooManyFailures not in await failed(guard, 300)


async def test_without_any_key_nothing_is_limited(guard: Guard) -> None:
    for _ in range(100):
        await guard.admit(NOTHING, Scope.ADMIN, PEER)


async def test_a_new_secret_is_accepted_at_once_also_where_the_old_one_was_seen(app: Demora, guard: Guard) -> None:
    keys = (await app.open()).keys
    old = await key_for(app, Scope.READ)
    await guard.admit(Headers(bearer(old)), Scope.READ)
    new = await keys.rotate(id_of(old))
    await guard.admit(Headers(bearer(new.text)), Scope.READ)
    with pytest.raises(BadKey):
        await guard.admit(Headers(bearer(old)), Scope.READ)
