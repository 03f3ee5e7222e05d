"""Names of a key on PostgreSQL: processes that record some at the same time count each other's."""

import asyncio

import asyncpg

from demora.core.access import KeyLimits, NameKind, Scope, key_text, make_key, make_secret
from demora.engines.postgres import PostgresStore
from tests.facts import eventually

ID = "abcdefghijk1"
WAITING = "select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))"


async def test_names_that_another_process_is_recording_are_waited_for_and_counted(
    store: PostgresStore, url: str, schema: str
) -> None:
    await store.api_keys.add(make_key(key_text(ID, "s" * 43), "ci", [Scope.SUBMIT]))
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute(f"select from {schema}.api_keys where id = $1 for update", ID)
            await other.execute(f"insert into {schema}.key_names values ($1, 'queue', 'theirs')", ID)
            naming = asyncio.ensure_future(store.api_keys.name(ID, {"mine"}, {"t"}, KeyLimits(max_queues=1)))

            async def settled() -> bool:
                """Whether it waits for the lock, or has gone ahead without."""
                watcher = await asyncpg.connect(url)
                try:
                    return naming.done() or bool(await watcher.fetchval(WAITING, other.get_server_pid()))
                finally:
                    await watcher.close()

            await eventually(settled)
        assert await naming is NameKind.QUEUE
    finally:
        await other.close()


async def test_a_rotation_that_is_asked_again_keeps_the_secret_before(store: PostgresStore) -> None:
    """As after an answer that was lost."""
    made = await store.api_keys.add(make_key(key_text(ID, "s" * 43), "ci", [Scope.SUBMIT]))
    secret = make_secret(key_text(ID, "t" * 43), overlap="1h")
    first = await store.api_keys.rotate(secret)
    again = await store.api_keys.rotate(secret)
    assert first == again
    assert again is not None
    assert (again.digest, again.former_digest) == (secret.digest, made.digest)
