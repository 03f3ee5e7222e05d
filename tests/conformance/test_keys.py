"""`store.api_keys`: add, all, find, revoke, forget and use."""

import asyncio

import pytest

from demora.core.access import ApiKey, NewKey, Scope, key_text, make_key
from demora.errors import StoreError
from demora.store.api_keys import ApiKeyStore, KeyList, KeyLookup
from demora.store.store import Store
from tests.builders import seconds
from tests.clock import TestClock

MINUTE = seconds(60)


def new_key(id: str = "abcdefghijk1", *, life: float | None = None, scopes: tuple[Scope, ...] = (Scope.READ,)) -> NewKey:
    return make_key(key_text(id, "s" * 43), "ci", scopes, None if life is None else seconds(life))


@pytest.fixture
def ring(store: Store) -> ApiKeyStore:
    return store.api_keys


async def test_a_key_is_found_as_it_was_made(ring: ApiKeyStore, clock: TestClock) -> None:
    asked = make_key(key_text("abcdefghijk1", "Z9" * 21 + "x"), "née Ω", Scope, "90d")
    made = await ring.add(asked)
    assert made == ApiKey(asked.id, asked.digest, "née Ω", tuple(Scope), clock.now(), clock.now() + seconds(90 * 86400))
    assert await ring.find(asked.id) == KeyLookup(made, True, clock.now())


async def test_a_look_says_whether_there_is_any_key_at_all(ring: ApiKeyStore, clock: TestClock) -> None:
    assert await ring.find("") == await ring.find("abcdefghijk1") == KeyLookup(None, False, clock.now())
    await ring.add(new_key())
    assert await ring.find("") == await ring.find("abcdefghijk2") == KeyLookup(None, True, clock.now())


async def test_a_look_is_told_the_time_of_the_database(ring: ApiKeyStore, clock: TestClock) -> None:
    await ring.add(new_key(life=60))
    clock.turn(61)
    found = await ring.find("abcdefghijk1")
    assert found.key is not None
    assert (found.now, found.key.in_force(found.now)) == (clock.now(), False)
    assert (await ring.all()).now == clock.now()


async def test_keys_are_listed_from_the_oldest(ring: ApiKeyStore, clock: TestClock) -> None:
    assert await ring.all() == KeyList([], clock.now())
    for id in ("zzzzzzzzzzzz", "aaaaaaaaaaaa", "mmmmmmmmmmmm"):
        await ring.add(new_key(id))
        clock.turn(1)
    assert [key.id for key in (await ring.all()).keys] == ["zzzzzzzzzzzz", "aaaaaaaaaaaa", "mmmmmmmmmmmm"]


async def test_an_id_that_is_taken_is_refused_and_nothing_changes(ring: ApiKeyStore) -> None:
    made = await ring.add(new_key())
    with pytest.raises(StoreError):
        await ring.add(make_key(key_text(made.id, "t" * 43), "other", [Scope.ADMIN]))
    assert (await ring.find(made.id)).key == made


async def test_a_revoked_key_stays_on_record_with_the_time_of_the_first_revocation(
    ring: ApiKeyStore, clock: TestClock
) -> None:
    await ring.add(new_key())
    revoked = await ring.revoke("abcdefghijk1")
    assert revoked is not None
    assert revoked.revoked_at == clock.now()
    clock.turn(5)
    assert await ring.revoke("abcdefghijk1") == revoked == (await ring.find("abcdefghijk1")).key


async def test_there_is_nothing_to_revoke_forget_or_use_where_there_is_no_key(ring: ApiKeyStore) -> None:
    await ring.add(new_key())
    assert await ring.revoke("abcdefghijk2") is None
    assert not await ring.forget("abcdefghijk2")
    assert not await ring.use("abcdefghijk2", unless_within=MINUTE)
    assert (await ring.find("abcdefghijk1")).key == (await ring.all()).keys[0]


async def test_only_a_key_that_is_no_longer_in_force_is_forgotten(ring: ApiKeyStore, clock: TestClock) -> None:
    await ring.add(new_key("revoked11111"))
    await ring.add(new_key("expired11111", life=60))
    await ring.revoke("revoked11111")
    assert not await ring.forget("expired11111")
    assert await ring.forget("revoked11111")
    assert not await ring.forget("revoked11111")
    clock.turn(60)
    assert await ring.forget("expired11111")
    assert not (await ring.find("")).any


async def test_a_use_is_noted_once_in_a_while(ring: ApiKeyStore, clock: TestClock) -> None:
    await ring.add(new_key())
    assert await ring.use("abcdefghijk1", unless_within=MINUTE)
    noted = clock.now()
    clock.turn(59)
    assert not await ring.use("abcdefghijk1", unless_within=MINUTE)
    assert (await ring.all()).keys[0].last_used_at == noted
    clock.turn(1)
    assert await ring.use("abcdefghijk1", unless_within=MINUTE)
    assert (await ring.all()).keys[0].last_used_at == clock.now()


async def test_of_uses_at_the_same_time_one_is_noted(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await one.api_keys.add(new_key())
    uses = [ring.use("abcdefghijk1", unless_within=MINUTE) for ring in (one.api_keys, other.api_keys) for _ in range(4)]
    assert sorted(await asyncio.gather(*uses)) == [False] * 7 + [True]


async def test_a_revocation_is_seen_through_any_store(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await one.api_keys.add(new_key())
    revoked = await other.api_keys.revoke("abcdefghijk1")
    assert (await one.api_keys.find("abcdefghijk1")).key == revoked


async def test_keys_outlive_the_process(pair: tuple[Store, Store]) -> None:
    one, other = pair
    made = await one.api_keys.add(new_key(life=60, scopes=(Scope.SUBMIT, Scope.OPERATE)))
    await one.close()
    assert (await other.api_keys.all()).keys == [made]
