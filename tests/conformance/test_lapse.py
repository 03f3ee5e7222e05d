"""A lapse is retried as the type of the job wants it: the cap and the jitter count as they do after a failure."""

from datetime import timedelta

import pytest

from demora.client.client import Client
from demora.core.verdict import RetryState
from demora.handlers.registry import Defaults, Handler, Registry
from demora.store.store import Store
from tests.builders import LEASE, add_one, claim_one, job_of, seconds
from tests.clock import TestClock


def client_of(store: Store, **usual: object) -> Client:
    registry = Registry()
    registry.register(Handler("mail.send", lambda: None, Defaults(**usual)))  # type: ignore[arg-type]
    return Client(store, registry)


async def waits(store: Store, clock: TestClock, client: Client, take: str) -> list[timedelta]:
    """How long the job waits after each of four runs whose worker was lost."""
    job = await add_one(store, type="mail.send", max_retries=9, retry_delay=seconds(60))
    found = []
    for _ in range(4):
        await claim_one(store)
        if take == "recover":
            clock.turn(LEASE.total_seconds() + 1)
            await client.recover()
        else:
            await client.give_up("ann")
        found.append((await job_of(store, job.id)).due_at - clock.now())
        clock.turn(3600)
    return found


@pytest.mark.parametrize("take", ["recover", "give_up"])
async def test_a_cap_of_the_type_holds_after_a_lapse(store: Store, clock: TestClock, take: str) -> None:
    client = client_of(store, retry_cap=seconds(60))
    assert await waits(store, clock, client, take) == [seconds(60)] * 4


@pytest.mark.parametrize("take", ["recover", "give_up"])
async def test_without_a_cap_of_its_own_a_type_waits_longer_each_time(store: Store, clock: TestClock, take: str) -> None:
    client = client_of(store)
    assert await waits(store, clock, client, take) == [seconds(60), seconds(120), seconds(240), seconds(480)]


async def test_the_jitter_of_the_type_shortens_the_wait_after_a_lapse(store: Store, clock: TestClock) -> None:
    client = client_of(store, jitter=0.5, retry_cap=seconds(60))
    found = await waits(store, clock, client, "recover")
    assert all(seconds(30) <= wait <= seconds(60) for wait in found)
    assert len(set(found)) > 1


def test_a_type_that_is_not_known_is_retried_as_usual() -> None:
    retry_state = RetryState(2)
    assert Registry().retry_state("mail.send", retry_state) is retry_state
