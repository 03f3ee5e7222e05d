"""Namespaces: the unique keys and idempotency keys of one are not seen from another."""

import asyncio
from pathlib import Path

import apsw

from demora.core.job import Unique, in_namespace
from demora.engines.sqlite import SqliteStore
from demora.engines.sqlite.connection import connections as sqlite_connections
from demora.store.jobs import Added, Query
from demora.store.store import Store
from tests.builders import job_of, key, new_job, seconds
from tests.clock import TestClock

KEEP, REPLACE = Unique("k"), Unique("k", replace=True)
SPACES = ("", "shop", "abcdefghijk1")


async def add_in(store: Store, namespace: str, **changes: object) -> Added:
    [added] = await store.add([in_namespace(new_job(**changes), namespace)])
    return added


async def number_of_jobs(store: Store) -> int:
    return len((await store.find(Query(limit=200))).jobs)


async def test_the_same_unique_key_waits_once_in_each_namespace(store: Store) -> None:
    first = [await add_in(store, space, unique=KEEP, delay=seconds(60)) for space in SPACES]
    again = [await add_in(store, space, unique=KEEP, delay=seconds(60)) for space in SPACES]
    assert [added.kept for added in first + again] == [False] * 3 + [True] * 3
    assert [added.id for added in again] == [added.id for added in first]
    assert await number_of_jobs(store) == 3


async def test_a_replacement_reaches_no_job_of_another_namespace(store: Store) -> None:
    victim = await add_in(store, "", unique=KEEP, payload=b'{"mine":1}', delay=seconds(60))
    thief = await add_in(store, "thief", unique=REPLACE, payload=b'{"stolen":1}')
    assert (thief.replaced, thief.id != victim.id) == (False, True)
    assert (await job_of(store, victim.id)).payload == {"mine": 1}
    assert (await add_in(store, "", unique=REPLACE, payload=b'{"mine":2}')).id == victim.id
    assert (await job_of(store, thief.id)).payload == {"stolen": 1}


async def test_the_same_idempotency_key_makes_a_job_in_each_namespace(store: Store) -> None:
    first = [await add_in(store, space, key=key("once")) for space in SPACES]
    assert len({added.id for added in first}) == 3
    assert not any(added.replayed for added in first)
    for space, added in zip(SPACES, first, strict=True):
        again = await add_in(store, space, key=key("once"))
        assert (again.id, again.replayed) == (added.id, True)


async def test_a_different_request_with_a_key_of_another_namespace_is_no_conflict(store: Store) -> None:
    await add_in(store, "", key=key("once", b"one"))
    assert not (await add_in(store, "shop", key=key("once", b"two"))).conflict
    assert (await add_in(store, "shop", key=key("once", b"three"))).conflict


async def test_one_call_can_add_to_several_namespaces(store: Store) -> None:
    asked_for = [in_namespace(new_job(unique=KEEP, key=key("once")), space) for space in SPACES]
    assert len({added.id for added in await store.add(asked_for)}) == 3


async def test_of_many_at_the_same_time_one_is_stored_in_each_namespace(pair: tuple[Store, Store]) -> None:
    asked_for = [(store, space) for store in pair for space in SPACES for _ in range(3)]
    added = await asyncio.gather(*(add_in(store, space, unique=KEEP, delay=seconds(60)) for store, space in asked_for))
    ids = {space: {one.id for one, (_, at) in zip(added, asked_for, strict=True) if at == space} for space in SPACES}
    assert {space: len(found) for space, found in ids.items()} == dict.fromkeys(SPACES, 1)
    assert await number_of_jobs(pair[0]) == 3


async def test_rows_and_keys_of_before_are_in_the_shared_namespace(tmp_path: Path, clock: TestClock) -> None:
    """A database file as the schema before namespaces left it."""
    path = tmp_path / "old.db"
    steps = sorted((Path(sqlite_connections.__file__).parents[1] / "schema").glob("*.sql"))[:8]
    db = apsw.Connection(str(path))
    for step in steps:
        list(db.execute(step.read_text()))
    row = "x'01900000000070008000000000000001', 'demo.echo', 'default', 0, 0, 2, ?, ?, 3, 1000, '{}', 'k'"
    columns = "id, type, queue, status, lane, rank, due_at, created_at, max_retries, retry_delay, payload, unique_key"
    db.execute(f"insert into jobs ({columns}) values ({row})", (clock.wall() + 60_000, clock.wall()))
    key_columns = "id, digest, name, scopes, created_at"
    db.execute(f"insert into api_keys ({key_columns}) values ('abcdefghijk1', x'00', 'old', '[\"submit\"]', 1)")
    db.pragma("user_version", 8)
    db.close()
    store = SqliteStore(path, clock=clock)
    await store.open()
    try:
        assert (await add_in(store, "", unique=KEEP)).kept
        assert not (await add_in(store, "shop", unique=KEEP)).kept
        [old] = (await store.api_keys.all()).keys
        assert (old.namespace, old.limits.max_queues, old.former_digest) == ("", None, None)
    finally:
        await store.close()
