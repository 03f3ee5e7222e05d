"""What `enqueue --wait` says of a job that waits: only what keeps it waiting."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from demora import Demora
from demora.cli.jobs import hints
from demora.client.client import Client
from demora.core.workers import WorkerRecord
from demora.store.jobs import ClaimRequest

KNOWS = ("demo.echo",)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Demora("sqlite://") as app:
        yield await app.open()


async def alive(client: Client, name: str = "w", queues: tuple[str, ...] = (), types: tuple[str, ...] = KNOWS) -> None:
    await client.store.heartbeat(WorkerRecord(name, "host", 1, 1, queues, types))


async def said(client: Client, type: str = "demo.echo", queue: str = "default") -> list[str]:
    return await hints(client, await client.enqueue(type, queue=queue))


async def test_nothing_is_said_where_a_worker_will_run_it(client: Client) -> None:
    await alive(client)
    assert await said(client, queue="mail") == []


async def test_that_no_worker_is_alive_is_said_once(client: Client) -> None:
    [hint] = await said(client, "no.such", "mail")
    assert hint.startswith("no live worker: ")


async def test_a_queue_that_nobody_serves_is_named(client: Client) -> None:
    await alive(client, queues=("mail", "slow"))
    assert await said(client, queue="slow") == []
    [hint] = await said(client)
    assert hint == "no live worker serves queue default: its jobs wait until one does (demora worker --queues default)"


async def test_a_type_that_no_worker_of_the_queue_knows_is_named(client: Client) -> None:
    await alive(client, "other", queues=("slow",), types=("no.such",))
    await alive(client)
    [hint] = await said(client, "no.such")
    assert hint.startswith("no live worker knows type no.such: ")
    assert await said(client, "no.such", "slow") == []


async def test_a_job_is_spoken_of_while_a_worker_that_does_not_know_it_hands_it_back(client: Client) -> None:
    await alive(client)
    job = await client.enqueue("no.such")
    await client.store.claim(ClaimRequest("w", 1, lease=timedelta(seconds=30)))
    [hint] = await hints(client, job)
    assert hint.startswith("no live worker knows type no.such: ")


async def test_a_paused_queue_is_named_with_the_reason(client: Client) -> None:
    await alive(client)
    await client.pause("mail", "down\x1b[31m")
    [hint] = await said(client, queue="mail")
    assert hint == "queue mail is paused (down\\x1b[31m): its jobs wait until it is resumed (demora resume mail)"
    await client.pause("slow")
    [hint] = await said(client, queue="slow")
    assert hint.startswith("queue slow is paused: ")
    assert await said(client) == []


async def test_nothing_is_said_of_a_job_that_has_ended(client: Client) -> None:
    job = await client.enqueue("demo.echo")
    await client.cancel(job.id)
    assert await hints(client, job) == []
