"""Jobs that are added in a transaction of the caller's own, with every driver."""

import asyncio
import importlib.util
import inspect
import secrets
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

from demora import Demora, Status
from demora.engines.postgres import PostgresOptions, PostgresStore, notifier
from demora.engines.postgres.connection.connections import in_schema
from demora.errors import Invalid, KeyReused, StoreError
from demora.store.jobs import Topic
from tests.builders import claim_ids, job_of
from tests.engines.postgres.callers import CALLERS, Caller, async_engine, calling, engine
from tests.facts import eventually
from tests.setups import emptied_schema
from tests.test_docs import PROJECT, blocks, code_of

PAGE = PROJECT / "docs" / "how-to" / "enqueue-in-your-transaction.md"
SOON = 3.0  # seconds: well before the safety net
THEIRS = "create table if not exists demora.orders (id int primary key)"


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return emptied_schema(tmp_path)


@pytest.fixture(autouse=True)
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "SAFETY", 60.0)
    monkeypatch.setattr(notifier, "CLOCK_STEP", 10**15)  # a clock that stands still wakes nobody


@pytest.fixture
async def app(store: PostgresStore) -> AsyncIterator[Demora]:
    app = Demora(store=store)
    async with app:
        yield app
        await asyncio.to_thread(app.blocking.close)


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest, app: Demora, url: str) -> AsyncIterator[Caller]:
    async with calling(request.param, app, url) as caller:
        yield caller


@asynccontextmanager
async def heard(url: str, schema: str) -> AsyncIterator[Any]:
    """The notifications on the channels of a schema: call it to ask what there was until now."""
    notified: list[str] = []
    connection = await asyncpg.connect(url)
    for topic in Topic:
        await connection.add_listener(
            f"demora_{schema}_{topic.value}", lambda *args: notified.append(args[2].split("_")[-1])
        )

    async def until_now() -> list[str]:
        await connection.fetchval("select 1")
        return sorted(notified)

    yield until_now
    await connection.close()


async def test_a_job_is_there_when_the_transaction_commits_and_not_before(
    caller: Caller, store: PostgresStore, url: str, schema: str
) -> None:
    async with heard(url, schema) as notified:
        job = await caller.enqueue("mail", {"to": "ä@b.c"}, queue="post", tags=["a", "b"], expires_in="1h", max_retries=7)
        assert await store.get(job.id) is None
        assert await notified() == []
        await caller.commit()
        assert await eventually(notified) == ["expiry", "ready"]
    there = await job_of(store, job.id)
    assert (there.payload, there.queue, there.tags) == ({"to": "ä@b.c"}, "post", ("a", "b"))
    assert (there.created_at, there.scheduled_at, there.expires_at) == (job.created_at, job.scheduled_at, job.expires_at)
    assert there.max_retries == job.max_retries == 7
    assert [queue.name for queue in await store.queues()] == ["post"]
    assert await claim_ids(store) == [job.id]


async def test_the_commit_wakes_the_waiters_of_the_same_process_too(caller: Caller, store: PostgresStore) -> None:
    with store.subscribe(Topic.READY) as place:
        await store.queues()  # by now the store listens
        place.clear()
        await caller.enqueue()
        assert not await place.wait(0)
        await caller.commit()
        assert await asyncio.wait_for(place.wait(None), SOON)


async def test_a_rollback_leaves_no_job_no_key_and_nobody_awake(
    caller: Caller, app: Demora, store: PostgresStore, url: str, schema: str
) -> None:
    async with heard(url, schema) as notified:
        job = await caller.enqueue("mail", {"n": 1}, key="order-7", unique="u")
        await caller.rollback()
        assert await store.get(job.id) is None
        assert await notified() == []
    other = await app.enqueue("mail", {"n": 2}, key="order-7", unique="u")
    assert other.payload == {"n": 2}


async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along(caller: Caller, store: PostgresStore) -> None:
    kept = await caller.enqueue()
    await caller.execute("savepoint mine")
    dropped = await caller.enqueue(key="k")
    await caller.execute("rollback to savepoint mine")
    again = await caller.enqueue(key="k")
    await caller.commit()
    assert again.id != dropped.id
    assert await claim_ids(store) == [kept.id, again.id]


async def test_many_jobs_are_added_in_order_and_later_ones_wait(caller: Caller, store: PostgresStore) -> None:
    now = [("demo.echo", {"n": n}) for n in range(20)]
    *jobs, later = await caller.enqueue_many([*now, ("demo.echo", None, {"delay": "1h"})])
    await caller.commit()
    assert await claim_ids(store) == [job.id for job in jobs]
    assert (await job_of(store, later.id)).scheduled_at == later.scheduled_at > later.created_at
    assert await caller.enqueue_many([]) == []


async def test_a_key_gives_the_job_it_made_in_this_transaction_or_an_earlier_one(caller: Caller, app: Demora) -> None:
    before = await app.enqueue("mail", {"n": 1}, key="a")
    assert (await caller.enqueue("mail", {"n": 1}, key="a")).id == before.id
    here = await caller.enqueue("mail", {"n": 2}, key="b")
    assert (await caller.enqueue("mail", {"n": 2}, key="b")).id == here.id
    await caller.commit()
    assert (await app.enqueue("mail", {"n": 2}, key="b")).id == here.id


async def test_a_conflict_adds_nothing_and_leaves_the_transaction_as_it_was(
    caller: Caller, app: Demora, schema: str, store: PostgresStore
) -> None:
    await app.enqueue("mail", {"n": 1}, key="a", delay="1h")
    await caller.execute(in_schema(THEIRS, schema))
    asked_for = [("mail", None, {"key": "new"}), ("mail", {"n": 2}, {"key": "a"})]
    with pytest.raises(KeyReused, match=r"'a' of jobs\[1\] was used before"):
        await caller.enqueue_many(asked_for)
    job = await caller.enqueue("other", None, key="new")
    await caller.commit()
    assert await claim_ids(store) == [job.id]


async def test_a_unique_job_is_kept_or_replaced_as_this_transaction_sees_it(
    caller: Caller, app: Demora, store: PostgresStore
) -> None:
    mine = await caller.enqueue("index", {"n": 1}, unique="shop", priority="HIGH")
    kept = await caller.enqueue("index", {"n": 2}, unique="shop")
    assert (kept.id, kept.payload, kept.priority) == (mine.id, {"n": 1}, mine.priority)
    replaced = await caller.enqueue("index", {"n": 3}, unique="shop", if_waiting="replace", key="k")
    assert (replaced.id, replaced.payload) == (mine.id, {"n": 3})
    await caller.commit()
    assert (await job_of(store, mine.id)).payload == {"n": 3}
    assert (await app.enqueue("index", unique="shop")).id == mine.id


async def test_a_job_that_has_run_is_given_for_its_key_with_its_history(caller: Caller, app: Demora) -> None:
    async def run(ctx: Any) -> None:
        ctx.log("one")
        if ctx.attempt == 1:
            raise ValueError("no")

    app.job("index", retry_delay="0s")(run)
    async with app.worker():
        job = await app.enqueue("index", {}, unique="shop", key="k")
        assert (await app.wait(job.id, "20s")).status is Status.COMPLETED
    again = await caller.enqueue("index", {}, unique="shop", key="k")
    assert again.id == job.id
    assert [line.line for line in again.log] == ["one", "one"]
    assert [attempt.error for attempt in again.attempts] == ["ValueError: no", None]


async def test_a_replacement_that_is_rolled_back_never_was(caller: Caller, app: Demora, store: PostgresStore) -> None:
    before = await app.enqueue("index", {"n": 1}, unique="shop")
    await caller.enqueue("index", {"n": 2}, unique="shop", if_waiting="replace")
    await caller.rollback()
    assert (await job_of(store, before.id)).payload == {"n": 1}


async def test_what_is_wrong_with_a_job_is_said_before_the_transaction_is_touched(caller: Caller, schema: str) -> None:
    await caller.execute(in_schema(THEIRS, schema))
    with pytest.raises(Invalid, match="delay"):
        await caller.enqueue(delay="soon")
    await caller.execute(in_schema("insert into demora.orders values (1)", schema))
    await caller.commit()


async def test_a_refusal_of_the_database_fails_the_transaction_and_says_so(
    caller: Caller, store: PostgresStore, schema: str
) -> None:
    await caller.execute(in_schema(THEIRS, schema))
    await caller.execute("set transaction read only")
    with pytest.raises(StoreError, match=r"within your transaction: .*read-only.*; no job was added: roll .* back"):
        await caller.enqueue()
    with pytest.raises(Exception, match="current transaction is aborted"):
        await caller.execute("select 1")
    with pytest.raises(StoreError, match="current transaction is aborted"):
        await caller.enqueue()
    await caller.rollback()
    assert await claim_ids(store) == []


@pytest.mark.parametrize("name", ["asyncpg", "psycopg", "psycopg-async", "sqlalchemy", "sqlalchemy-session"])
async def test_a_connection_to_another_database_is_refused(app: Demora, url: str, name: str) -> None:
    async with another_database(url) as other, calling(name, app, other) as caller:
        with pytest.raises(Invalid, match=r"another database .*'other_.* DEMORA_DATABASE_URL"):
            await caller.enqueue()
        await caller.rollback()


async def test_a_connection_that_commits_by_itself_is_refused(app: Demora, store: PostgresStore, url: str) -> None:
    refused = pytest.raises(Invalid, match="in no transaction and commits each statement by itself: begin a transaction")
    connection = await asyncpg.connect(url)
    with refused:
        await app.enqueue("demo.echo", within=connection)
    await connection.close()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as asynchronous:
        with refused:
            await app.enqueue("demo.echo", within=asynchronous)
    with psycopg.connect(url, autocommit=True) as plain, refused:
        await asyncio.to_thread(app.blocking.enqueue, "demo.echo", within=plain)
    with engine(url, isolation_level="AUTOCOMMIT").connect() as alchemist, refused:
        await asyncio.to_thread(app.blocking.enqueue, "demo.echo", within=alchemist)
    assert await store.queues() == []


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_an_async_engine_that_commits_by_itself_is_refused(app: Demora, url: str, driver: str) -> None:
    async with async_engine(url, driver, isolation_level="AUTOCOMMIT").connect() as connection:
        with pytest.raises(Invalid, match="begin a transaction"):
            await app.enqueue("demo.echo", within=connection)


async def test_what_is_no_connection_to_postgres_is_refused(app: Demora, url: str) -> None:
    with pytest.raises(Invalid, match=r"must be a connection to PostgreSQL, .* it is to sqlite"):
        await asyncio.to_thread(_enqueue_on_sqlite, app)
    pool = asyncpg.create_pool(url)
    for thing in (sqlite3.connect(":memory:"), engine(url), pool, "conn"):
        with pytest.raises(Invalid, match=r"must be a connection of asyncpg or psycopg 3, or .* of SQLAlchemy; this is "):
            await app.enqueue("demo.echo", within=thing)


def _enqueue_on_sqlite(app: Demora) -> None:
    with sqlalchemy.create_engine("sqlite://").connect() as connection:
        app.blocking.enqueue("demo.echo", within=connection)


async def test_jobs_in_sqlite_cannot_join_a_transaction(url: str) -> None:
    connection = await asyncpg.connect(url)
    async with Demora("sqlite://") as app:
        with pytest.raises(Invalid, match=r"only jobs in PostgreSQL .* in SQLite: enqueue without it once"):
            await app.enqueue("demo.echo", within=connection)
    await connection.close()


async def test_a_connection_that_blocks_is_not_used_on_an_event_loop_nor_an_async_one_without(app: Demora, url: str) -> None:
    with psycopg.connect(url) as plain, pytest.raises(Invalid, match=r"would hold up the event loop .* app\.blocking"):
        await app.enqueue("demo.echo", within=plain)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        with pytest.raises(Invalid, match=r"is async: await app\.enqueue with it"):
            await asyncio.to_thread(app.blocking.enqueue, "demo.echo", within=connection)


async def test_whoever_waits_for_a_key_in_a_thread_holds_up_nobody_else(app: Demora, url: str) -> None:
    """The first transaction holds the key, the second waits for it, and the first still gets its other jobs added."""
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        one = await asyncio.to_thread(app.blocking.enqueue, "mail", key="k", within=first)
        waiting = asyncio.ensure_future(asyncio.to_thread(app.blocking.enqueue, "mail", key="k", within=second))
        await eventually(lambda: _waits(url, second.info.backend_pid))
        try:
            await asyncio.to_thread(app.blocking.enqueue, "mail")
        finally:
            first.commit()
            assert (await waiting).id == one.id


async def _waits(url: str, pid: int) -> bool:
    connection = await asyncpg.connect(url)
    waits: bool = await connection.fetchval("select cardinality(pg_blocking_pids($1)) > 0", pid)
    await connection.close()
    return waits


async def test_the_call_is_made_on_the_thread_of_the_caller(app: Demora, url: str) -> None:
    threads: list[int] = []
    alchemist = engine(url)
    sqlalchemy.event.listen(alchemist, "before_cursor_execute", lambda *_: threads.append(threading.get_ident()))

    def enqueue() -> int:
        with alchemist.begin() as connection:
            app.blocking.enqueue("demo.echo", within=connection)
        return threading.get_ident()

    assert {await asyncio.to_thread(enqueue)} == set(threads)


async def test_a_later_job_rings_at_the_commit_although_it_was_no_head_before(
    app: Demora, url: str, schema: str, store: PostgresStore
) -> None:
    first = await app.enqueue("demo.echo", delay="1m")
    async with calling("asyncpg", app, url) as caller, heard(url, schema) as notified:
        await caller.enqueue(delay="2m")
        await app.cancel(first.id)  # now it is the head, and nobody can see it yet
        await eventually(notified, lambda topics: topics == ["ended"])
        await caller.commit()
        assert await eventually(notified, lambda topics: "ready" in topics) == ["ended", "ready"]


async def test_a_job_that_is_there_already_notifies_nobody(app: Demora, url: str, schema: str) -> None:
    await app.enqueue("mail", key="a")
    await app.enqueue("index", unique="shop")
    async with calling("asyncpg", app, url) as caller, heard(url, schema) as notified:
        await caller.enqueue("mail", key="a")
        await caller.enqueue("index", unique="shop")
        await caller.commit()
        assert await notified() == []


async def test_without_notify_nothing_is_notified(url: str, schema: str) -> None:
    store = PostgresStore(url, PostgresOptions(schema=schema, connections=2, notify=False))
    async with Demora(store=store) as app, calling("asyncpg", app, url) as caller, heard(url, schema) as notified:
        job = await caller.enqueue()
        await caller.commit()
        assert await claim_ids(store) == [job.id]
        assert await notified() == []


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_stricter_isolation_fails_instead_of_adding_twice(app: Demora, url: str, isolation: str) -> None:
    async with calling("psycopg", app, url) as caller:
        await caller.execute(f"set transaction isolation level {isolation}")
        await caller.execute("select count(*) from pg_class")  # what follows sees the database as it is now
        await app.enqueue("index", unique="shop")
        with pytest.raises(StoreError, match="could not serialize access"):
            await caller.enqueue("index", unique="shop")


async def test_a_role_of_few_rights_can_add_jobs_within_its_transaction(
    caller: Caller, app: Demora, url: str, schema: str, store: PostgresStore
) -> None:
    role, [grants] = f"r_{secrets.token_hex(4)}", blocks(PAGE, "sql")
    admin = await asyncpg.connect(url)
    theirs = grants.replace("to shop;", f"to {role};").replace("on schema demora", f"on schema {schema}")
    await admin.execute(f"create role {role}; " + in_schema(theirs, schema))
    try:
        await caller.execute(f"set local role {role}")
        job = await caller.enqueue(key="k")
        other = await caller.enqueue("index", unique="u")
        assert (await caller.enqueue("index", unique="u", if_waiting="replace")).id == other.id
        assert (await caller.enqueue("index", unique="u")).id == other.id
        await caller.commit()
        assert set(await claim_ids(store)) == {job.id, other.id}
    finally:
        await admin.execute(f"drop owned by {role}; drop role {role}")
        await admin.close()


async def test_the_examples_of_the_page_run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greenlet = importlib.util.find_spec("greenlet")  # without it SQLAlchemy cannot be async
    examples = [block for block in blocks(PAGE, "py") if greenlet or "sqlalchemy.ext.asyncio" not in block]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    async with another_database(url) as shop_url:
        monkeypatch.setenv("DEMORA_DATABASE_URL", shop_url)
        connection = await asyncpg.connect(shop_url)
        await connection.execute("create table orders (id int primary key)")
        names: dict[str, Any] = {"__name__": "__main__"}
        for number, block in enumerate(examples, 1):
            if inspect.iscoroutine(running := eval(code_of(block, f"block {number}"), names)):
                await running
        for id, order in enumerate((names["order"], names["order_on_a_connection"], names["order_in_a_session"]), 11):
            await asyncio.to_thread(order, id)
        orders = {row["id"] for row in await connection.fetch("select id from orders")}
        await connection.close()
        await _expect_jobs_for(names["app"], orders)
        names["engine"].dispose()
    sys.modules.pop("shop")
    assert {1, 2, 3, 4, 11, 12, 13} <= orders


async def _expect_jobs_for(app: Demora, orders: set[int]) -> None:
    async with app:
        jobs = (await app.find(limit=100)).jobs
        assert {job.payload["order"] for job in jobs} == orders
        async with app.worker():
            first = next(job for job in jobs if job.payload["order"] == 1)
            assert await app.result(first.id, "20s") == "confirmed order 1"
        await asyncio.to_thread(app.blocking.close)


@asynccontextmanager
async def another_database(url: str) -> AsyncIterator[str]:
    admin, name = await asyncpg.connect(url), f"other_{secrets.token_hex(4)}"
    await admin.execute(f"create database {name}")
    try:
        yield url.rsplit("/", 1)[0] + f"/{name}"
    finally:
        await admin.execute(f"drop database {name} with (force)")
        await admin.close()
