"""Two processes that make the first webhook secret at the same moment."""

import asyncio

import asyncpg

from demora.core.outbound.webhook import Secret
from demora.engines.postgres import PostgresStore
from demora.engines.postgres.connection.connections import in_schema
from tests.facts import eventually

WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%webhook_secrets%'"
MAKE = "insert into demora.webhook_secrets (id, secret, created_at) values ('first', $1, 1)"


async def test_the_second_finds_the_secret_of_the_first(store: PostgresStore, url: str, schema: str) -> None:
    other, watching = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute(in_schema(MAKE, schema), b"1" * 32)
            second = asyncio.create_task(store.webhooks.ensure_secret(Secret(b"2" * 32)))
            await eventually(lambda: watching.fetchval(WAITING), bool)
        assert await second is None
        assert [one.secret.key for one in (await store.webhooks.signing()).secrets] == [b"1" * 32]
    finally:
        await other.close()
        await watching.close()
