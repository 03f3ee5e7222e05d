"""The sessions of browsers that signed in with a key: open_session, find_sessions, end_session and database_id."""

import pytest

from demora.core.access import NewSecret, Scope, key_text, make_secret
from demora.store.api_keys import ApiKeyStore, SessionsLookup
from demora.store.store import Store
from tests.builders import seconds
from tests.clock import TestClock
from tests.conformance.test_keys import new_key

ONE, OTHER = bytes([1]) * 32, bytes([2]) * 32
HOUR = seconds(3600)


@pytest.fixture
def ring(store: Store) -> ApiKeyStore:
    return store.api_keys


async def test_a_session_leads_to_its_key(ring: ApiKeyStore, clock: TestClock) -> None:
    key = await ring.add(new_key(scopes=(Scope.OPERATE,)))
    await ring.open_session(ONE, key.id, expires_in=HOUR)
    assert await ring.find_sessions([ONE, OTHER]) == SessionsLookup({ONE: key}, True, clock.now())
    assert await ring.find_sessions([OTHER]) == SessionsLookup({}, True, clock.now())


async def test_many_sessions_are_found_in_one_call(ring: ApiKeyStore) -> None:
    keys = [await ring.add(new_key(f"abcdefghijk{n}")) for n in range(3)]
    digests = [bytes([n]) * 32 for n in range(9)]
    for n, digest in enumerate(digests):
        await ring.open_session(digest, keys[n % 3].id, expires_in=HOUR)
    found = await ring.find_sessions(digests)
    assert found.keys == {digest: keys[n % 3] for n, digest in enumerate(digests)}
    assert (await ring.find_sessions([])).keys == {}


async def test_without_a_key_there_is_no_session(ring: ApiKeyStore, clock: TestClock) -> None:
    assert await ring.find_sessions([ONE]) == SessionsLookup({}, False, clock.now())


async def test_a_session_expires(ring: ApiKeyStore, clock: TestClock) -> None:
    key = await ring.add(new_key())
    await ring.open_session(ONE, key.id, expires_in=HOUR)
    clock.turn(3599)
    assert (await ring.find_sessions([ONE])).keys == {ONE: key}
    clock.turn(1)
    assert (await ring.find_sessions([ONE])).keys == {}


async def test_a_session_shows_that_its_key_was_revoked(ring: ApiKeyStore, clock: TestClock) -> None:
    key = await ring.add(new_key())
    await ring.open_session(ONE, key.id, expires_in=HOUR)
    await ring.revoke(key.id)
    found = await ring.find_sessions([ONE])
    assert not found.keys[ONE].in_force(found.now)


async def test_a_forgotten_key_ends_its_sessions_and_no_others(ring: ApiKeyStore) -> None:
    gone, kept = await ring.add(new_key()), await ring.add(new_key("abcdefghijk2"))
    await ring.open_session(ONE, gone.id, expires_in=HOUR)
    await ring.open_session(OTHER, kept.id, expires_in=HOUR)
    await ring.revoke(gone.id)
    await ring.forget(gone.id)
    await ring.add(new_key())  # a new key with the same id does not take over its sessions
    assert (await ring.find_sessions([ONE])).keys == {}
    assert (await ring.find_sessions([OTHER])).keys == {OTHER: kept}


def new_secret(overlap: str | None = None) -> NewSecret:
    return make_secret(key_text("abcdefghijk1", "t" * 43), overlap=overlap)


async def test_a_rotation_ends_the_sessions_of_its_key_and_no_others(ring: ApiKeyStore) -> None:
    rotated, kept = await ring.add(new_key()), await ring.add(new_key("abcdefghijk2"))
    await ring.open_session(ONE, rotated.id, expires_in=HOUR)
    await ring.open_session(OTHER, kept.id, expires_in=HOUR)
    key = await ring.rotate(new_secret())
    assert key is not None
    assert (await ring.find_sessions([ONE, OTHER])).keys == {OTHER: kept}
    later = bytes([3]) * 32
    await ring.open_session(later, key.id, expires_in=HOUR)
    assert (await ring.find_sessions([later])).keys == {later: key}


@pytest.mark.parametrize(("life", "left"), [(3600, 60), (30, 30)])
async def test_after_a_rotation_sessions_end_with_the_overlap_at_the_latest(
    ring: ApiKeyStore, clock: TestClock, life: int, left: int
) -> None:
    key = await ring.add(new_key())
    await ring.open_session(ONE, key.id, expires_in=seconds(life))
    await ring.rotate(new_secret("60s"))
    clock.turn(left - 1)
    assert ONE in (await ring.find_sessions([ONE])).keys
    clock.turn(1)
    assert (await ring.find_sessions([ONE])).keys == {}


async def test_signing_out_ends_one_session(ring: ApiKeyStore) -> None:
    key = await ring.add(new_key())
    for digest in (ONE, OTHER):
        await ring.open_session(digest, key.id, expires_in=HOUR)
    assert await ring.end_session(ONE)
    assert not await ring.end_session(ONE)
    assert (await ring.find_sessions([ONE])).keys == {}
    assert (await ring.find_sessions([OTHER])).keys == {OTHER: key}


async def test_the_id_of_a_database_is_made_once(ring: ApiKeyStore) -> None:
    first = await ring.database_id()
    assert len(first) >= 32
    assert await ring.database_id() == first
