"""Paces through the client: previews, and queues that are left out of the pace of all queues."""

from collections.abc import AsyncIterator

import pytest

from demora import Demora
from demora.client.client import Client
from demora.engines.sqlite import SqliteStore
from tests.builders import add_ids, seconds
from tests.clock import TestClock


@pytest.fixture
async def client(clock: TestClock) -> AsyncIterator[Client]:
    async with Demora(store=SqliteStore(clock=clock)) as app:
        yield await app.open()


async def test_a_preview_of_a_new_pace_sets_none_and_names_no_queue(client: Client) -> None:
    preview = await client.preview_pace("mail", gap="1m", burst=2)
    assert (preview.pace.burst, preview.releases, preview.held) == (2, [], 0)
    assert (await client.pacing("mail"), await client.pace_changes("mail"), await client.queues()) == (None, [], [])


async def test_a_preview_says_when_the_held_jobs_would_go_and_changes_nothing(client: Client, clock: TestClock) -> None:
    begun, before = clock.now(), await client.set_pace("mail", gap="10m", burst=1)
    await add_ids(client.store, *[{"queue": "mail", "delay": seconds(1)}] * 3)
    clock.turn(2)
    preview = await client.preview_pace("mail", gap="1m")
    assert (len(preview.releases), preview.held) == (3, 3)
    assert preview.releases == [clock.now(), begun + seconds(60), begun + seconds(120)]
    now = await client.pacing("mail")
    assert now is not None
    assert (now.pace, len(await client.pace_changes("mail"))) == (before.pace, 1)


async def test_a_queue_without_a_pace_is_left_out_of_a_later_pace_of_all_queues_until_it_follows_again(
    client: Client,
) -> None:
    for _ in range(2):
        await client.take_pace_off("mail")
    [change] = await client.pace_changes("mail")
    assert change.is_off
    await client.set_pace("*", gap="1m", burst=1)
    assert await client.pacing("mail") is None
    await client.use_default_pace("mail")
    found = await client.pacing("mail")
    assert found is not None
    assert found.inherited
    await client.take_pace_off("mail")
    assert await client.pacing("mail") is None


async def test_to_take_off_a_pace_of_all_queues_that_never_was_does_nothing(client: Client) -> None:
    await client.take_pace_off("*")
    assert (await client.queues(), await client.pace_changes("*")) == ([], [])
