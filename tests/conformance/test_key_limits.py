"""What a keyring keeps of the limits of keys: rotate_key, limit_key, name_for_key and waiting_for_key."""

import asyncio

import pytest

from demora.core.access import ApiKey, KeyLimits, NameKind, Scope, check_limits, key_text, make_key, make_secret
from demora.core.job import Unique, in_namespace
from demora.core.verdict import Raised
from demora.store.api_keys import ApiKeyStore
from demora.store.store import Store
from tests.builders import claim_one, new_job, run_one, seconds, settle
from tests.clock import TestClock

ID, OTHER = "abcdefghijk1", "abcdefghijk2"
LIMITS = check_limits(max_queues=3, max_types=2)


@pytest.fixture
def ring(store: Store) -> ApiKeyStore:
    return store.api_keys


async def add(ring: ApiKeyStore, id: str = ID, *, life: float | None = None, limits: KeyLimits | None = None) -> ApiKey:
    text = key_text(id, "s" * 43)
    return await ring.add(make_key(text, "ci", [Scope.SUBMIT], None if life is None else seconds(life), limits=limits))


async def test_namespace_and_limits_are_found_as_they_were_made(ring: ApiKeyStore) -> None:
    limits = check_limits(max_queues=1, max_types=0, max_waiting=3, rate=4, queues=["a.*"], types=["b", "*"])
    made = await add(ring, limits=limits)
    assert (made.namespace, made.limits) == (ID, limits)
    assert (await ring.find(ID)).key == made == (await ring.all()).keys[0]


async def test_other_limits_take_the_place_of_the_old_ones(ring: ApiKeyStore) -> None:
    made = await add(ring, limits=LIMITS)
    changed = await ring.limit(ID, KeyLimits(rate=5))
    assert changed is not None
    assert (changed.limits, changed.digest) == (KeyLimits(rate=5), made.digest)
    assert (await ring.find(ID)).key == changed
    assert await ring.limit(OTHER, LIMITS) is None


async def test_a_rotation_changes_the_secret_and_nothing_else(ring: ApiKeyStore, clock: TestClock) -> None:
    made = await add(ring, life=90, limits=LIMITS)
    clock.turn(5)
    secret = make_secret(key_text(ID, "t" * 43), overlap="30s")
    rotated = await ring.rotate(secret)
    assert rotated is not None
    assert (rotated.digest, rotated.former_digest) == (secret.digest, made.digest)
    assert rotated.former_until == clock.now() + seconds(30)
    unchanged = (rotated.id, rotated.name, rotated.scopes, rotated.namespace, rotated.limits, rotated.expires_at)
    assert unchanged == (made.id, made.name, made.scopes, made.namespace, made.limits, made.expires_at)
    assert (await ring.find(ID)).key == rotated


async def test_without_an_overlap_the_old_secret_is_gone(ring: ApiKeyStore, clock: TestClock) -> None:
    await add(ring)
    rotated = await ring.rotate(make_secret(key_text(ID, "t" * 43), expires_in="1h"))
    assert rotated is not None
    assert (rotated.former_digest, rotated.former_until) == (None, None)
    assert rotated.expires_at == clock.now() + seconds(3600)


async def test_a_second_rotation_ends_the_first_overlap(ring: ApiKeyStore) -> None:
    await add(ring)
    first = make_secret(key_text(ID, "t" * 43), overlap="1h")
    await ring.rotate(first)
    rotated = await ring.rotate(make_secret(key_text(ID, "u" * 43), overlap="1h"))
    assert rotated is not None
    assert rotated.former_digest == first.digest


async def test_a_key_that_is_not_in_force_gets_no_new_secret(ring: ApiKeyStore, clock: TestClock) -> None:
    await add(ring, life=60)
    await add(ring, OTHER)
    await ring.revoke(OTHER)
    clock.turn(60)
    for id in (ID, OTHER, "abcdefghijk3"):
        before = (await ring.find(id)).key
        assert await ring.rotate(make_secret(key_text(id, "t" * 43))) is None
        assert (await ring.find(id)).key == before


async def test_what_changes_one_key_leaves_the_others_as_they_are(ring: ApiKeyStore) -> None:
    await add(ring)
    other = await add(ring, OTHER, limits=LIMITS)
    await ring.limit(ID, KeyLimits(rate=5))
    await ring.rotate(make_secret(key_text(ID, "t" * 43), overlap="1h", expires_in="1h"))
    await ring.revoke(ID)
    await ring.forget(ID)
    assert (await ring.all()).keys == [other]


async def test_names_are_recorded_up_to_the_limit(ring: ApiKeyStore) -> None:
    await add(ring)
    assert await ring.name(ID, {"a", "b"}, {"t"}, LIMITS) is None
    assert await ring.name(ID, {"a", "c"}, {"t", "u"}, LIMITS) is None
    assert await ring.name(ID, {"d"}, {"t"}, LIMITS) is NameKind.QUEUE
    assert await ring.name(ID, {"a"}, {"v"}, LIMITS) is NameKind.TYPE
    assert await ring.name(ID, {"a", "b", "c"}, {"t", "u"}, LIMITS) is None


async def test_of_names_that_are_too_many_none_is_recorded(ring: ApiKeyStore) -> None:
    await add(ring)
    assert await ring.name(ID, {"a"}, {"t", "u", "v"}, LIMITS) is NameKind.TYPE
    assert await ring.name(ID, {"b", "c", "d"}, {"t"}, LIMITS) is None


async def test_names_on_record_stay_allowed_under_a_lower_limit(ring: ApiKeyStore) -> None:
    await add(ring)
    await ring.name(ID, {"a", "b", "c"}, {"t"}, LIMITS)
    lower = KeyLimits(max_queues=1, max_types=1)
    assert await ring.name(ID, {"b"}, {"t"}, lower) is None
    assert await ring.name(ID, {"d"}, {"t"}, lower) is NameKind.QUEUE


async def test_without_a_limit_no_name_is_counted(ring: ApiKeyStore) -> None:
    await add(ring)
    many = {f"q{n}" for n in range(50)}
    assert await ring.name(ID, many, many, KeyLimits(max_queues=0)) is None
    assert await ring.name(ID, {"a", "b", "c"}, {"t", "u"}, LIMITS) is None


async def test_keys_are_counted_apart_and_forgotten_with_their_names(ring: ApiKeyStore) -> None:
    await add(ring)
    await add(ring, OTHER)
    for id in (ID, OTHER):
        assert await ring.name(id, {"a", "b", "c"}, {"t"}, LIMITS) is None
    await ring.revoke(ID)
    assert await ring.forget(ID)
    assert await ring.name(ID, {"d"}, {"t"}, LIMITS) is None  # there is no such key: nothing to count
    await add(ring)
    assert await ring.name(ID, {"e", "f", "g"}, {"t"}, LIMITS) is None
    assert await ring.name(OTHER, {"d"}, {"t"}, LIMITS) is NameKind.QUEUE


async def test_calls_at_the_same_time_do_not_pass_the_limit_together(pair: tuple[Store, Store]) -> None:
    rings = [store.api_keys for store in pair]
    await add(rings[0])
    limits = KeyLimits(max_queues=5)
    calls = [ring.name(ID, {f"{n}-{m}"}, {"t"}, limits) for n, ring in enumerate(rings) for m in range(8)]
    answers = await asyncio.gather(*calls)
    assert (answers.count(None), answers.count(NameKind.QUEUE)) == (5, 11)


async def test_waiting_jobs_count_for_the_key_that_submitted_them(store: Store, clock: TestClock) -> None:
    ring = store.api_keys
    mine = [in_namespace(new_job(delay=seconds(n)), ID, ID) for n in range(4)]
    await store.add([*mine, in_namespace(new_job(), OTHER, OTHER), new_job()])
    assert [await ring.waiting(id, most=100) for id in (ID, OTHER, "")] == [4, 1, 0]
    assert await ring.waiting(ID, most=3) == 3


async def test_a_job_counts_while_it_waits_and_also_between_two_attempts(store: Store, clock: TestClock) -> None:
    ring = store.api_keys
    await store.add([in_namespace(new_job(), ID, ID)])
    run = await claim_one(store)
    assert await ring.waiting(ID, most=10) == 0
    await settle(store, run, Raised("ValueError: no"))
    assert await ring.waiting(ID, most=10) == 1
    clock.turn(60)
    await run_one(store)
    assert await ring.waiting(ID, most=10) == 0


async def test_a_job_that_is_replaced_counts_for_the_key_that_replaced_it(store: Store) -> None:
    ring = store.api_keys
    for id in (ID, OTHER):
        await store.add([in_namespace(new_job(unique=Unique("k", replace=True), delay=seconds(60)), "shared", id)])
    assert [await ring.waiting(id, most=10) for id in (ID, OTHER)] == [0, 1]
