"""The line itself, on one server and on a cluster of three."""

import secrets
from collections.abc import AsyncIterator

import pytest

from demora.core.job import Lane, Priority, QueueOrder
from demora.line.port import LineLost, Placed, PutMode
from demora.line.redis import RedisLine
from demora.line.redis.connections import command
from demora.store.line_feed import Arrangement, Entry, Place
from tests.facts import eventually
from tests.servers import valkey
from tests.setups import redis_url

NOW = 1_000_000


@pytest.fixture(params=["single", "socket", "cluster"])
async def line(request: pytest.FixtureRequest) -> AsyncIterator[RedisLine]:
    redis_url()
    servers = {"single": lambda: valkey.shared().url, "socket": lambda: valkey.shared().socket_url}
    line = RedisLine(servers.get(request.param, lambda: valkey.shared_cluster().url)())
    await line.connect(secrets.token_hex(6))
    await line.begin(1)
    yield line
    await line.close()


def place(
    id: str, *, queue: str = "q", lane: Lane = Lane.REALTIME, rank: Priority = Priority.NORMAL, due: int = NOW
) -> Place:
    return Place(id, queue, lane, rank, due)


async def taken(line: RedisLine, limit: int = 10, *, now: int = NOW, stale: int = 0, **options: object) -> list[str]:
    found = await line.take(options.pop("queues", None), limit, now=now, stale=stale, **options)  # type: ignore[arg-type]
    return [entry.id for entry in found.entries]


async def test_jobs_are_handed_out_in_the_one_order(line: RedisLine) -> None:
    ranks = [place(f"r{rank.value}", rank=rank) for rank in reversed(Priority)]
    await line.put([place("late", lane=Lane.SCHEDULED), *ranks, place("early", due=NOW - 1)], now=NOW)
    assert await taken(line) == ["r0", "r1", "early", "r2", "late", "r3"]


async def test_nothing_is_handed_out_before_it_is_due(line: RedisLine) -> None:
    await line.put([place("a", due=NOW + 5), place("b", due=NOW + 9, lane=Lane.RETRY)], now=NOW)
    found = await line.take(None, 10, now=NOW + 4, stale=0)
    assert (found.entries, found.next_due) == ([], NOW + 5)
    assert await taken(line, now=NOW + 5) == ["a"]


async def test_several_queues_are_one_line(line: RedisLine) -> None:
    places = [place(f"{n:02}", queue=f"q{n * 7 % 5}", due=NOW - 100 + n) for n in range(20)]
    await line.put(places, now=NOW)
    assert await taken(line, 7) == [f"{n:02}" for n in range(7)]
    assert await taken(line, 3, queues=["q1", "q2"]) == [p.id for p in places[7:] if p.queue in ("q1", "q2")][:3]


async def test_in_turn_a_queue_comes_before_those_named_after_it(line: RedisLine) -> None:
    await line.put([place("a", queue="x"), place("b", queue="y", due=NOW + 1)], now=NOW)
    assert await taken(line, 1, now=NOW + 1, queues=["y", "x"], in_turn=True) == ["b"]


async def test_an_id_has_one_place_however_often_it_is_put(line: RedisLine) -> None:
    await line.put([place("a", rank=Priority.LOW)], now=NOW)
    for due in (NOW + 1, NOW, NOW):
        await line.put([place("a", lane=Lane.RETRY, rank=Priority.HIGH, due=due)], now=NOW)
    places, out = await line.places()
    assert (places, out) == ([place("a", lane=Lane.RETRY, rank=Priority.HIGH)], [])


async def test_a_put_takes_back_a_job_that_was_handed_out(line: RedisLine) -> None:
    await line.put([place("a")], now=NOW)
    assert await taken(line) == ["a"]
    await line.put([place("a", due=NOW + 1)], now=NOW)
    assert await line.places() == ([place("a", due=NOW + 1)], [])


async def test_a_returned_job_wakes_no_waiter(line: RedisLine) -> None:
    assert await line.put([place("a")], now=NOW) == Placed(1, woken=True)
    assert await taken(line) == ["a"]
    assert await line.put([place("a")], now=NOW, mode=PutMode.RETURNED) == Placed(1, woken=False)
    assert await taken(line) == ["a"]


async def test_a_job_that_is_done_is_forgotten_and_any_other_is_handed_out_again(line: RedisLine) -> None:
    await line.put([place("a"), place("b")], now=NOW)
    assert await taken(line) == ["a", "b"]
    await line.done([Entry("a", "q")])
    assert await taken(line, now=NOW + 10, stale=NOW) == []
    assert await taken(line, now=NOW + 10, stale=NOW + 1) == ["b"]
    assert await taken(line, now=NOW + 10, stale=NOW + 1) == []


async def test_a_job_that_is_done_late_stays_handed_out_by_another_client(line: RedisLine) -> None:
    """The first client has leased it, settled it, and put it back before it told the line that it is done."""
    other = RedisLine(line._nodes._url)
    try:
        await other.connect(line._database)
        await other.begin(1)
        await line.put([place("a"), place("b")], now=NOW)
        assert await taken(line) == ["a", "b"]
        await line.done([Entry("a", "q"), Entry("b", "q")])
        await line.put([place("a", lane=Lane.RETRY)], now=NOW)
        assert await taken(other) == ["a"]
        await line.done([])
        assert await line.places() == ([], [Entry("a", "q")])
    finally:
        await other.close()


async def test_a_removed_job_stands_nowhere(line: RedisLine) -> None:
    await line.put([place("a"), place("b", lane=Lane.SCHEDULED), place("c")], now=NOW)
    assert await taken(line, 1) == ["a"]
    await line.remove([Entry(id, "q") for id in "ab"])
    await line.remove([Entry(id, "q") for id in "ab"])
    assert await line.places() == ([place("c")], [])


async def test_a_paused_queue_hands_out_nothing_and_has_no_next(line: RedisLine) -> None:
    usual = tuple(QueueOrder().offset(lane, rank) for lane in Lane for rank in Priority)
    await line.put([place("a"), place("b", due=NOW + 1)], now=NOW)
    await line.arrange([Arrangement("q", usual, paused=True)])
    found = await line.take(None, 10, now=NOW, stale=0)
    assert (found.entries, found.next_due) == ([], None)
    await line.arrange([Arrangement("q", usual)])
    assert await taken(line) == ["a"]


async def test_every_client_serves_queues_without_settings_as_the_arrangement_of_all_says(line: RedisLine) -> None:
    usual = {(lane, rank): QueueOrder().offset(lane, rank) for lane in Lane for rank in Priority}
    held = tuple(None if lane is Lane.SCHEDULED else offset for (lane, _), offset in usual.items())
    other = RedisLine(line._nodes._url)
    await other.connect(line._database)
    await other.begin(1)
    await line.put([place("a", lane=Lane.SCHEDULED), place("b"), place("c", lane=Lane.SCHEDULED, queue="own")], now=NOW)
    await line.arrange([Arrangement("*", held), Arrangement("own", tuple(usual.values()))])
    assert (await other.state()).paced
    assert await taken(other) == ["b", "c"]
    await line.arrange([Arrangement("*", tuple(usual.values()))])
    await other.state()
    assert await taken(other) == ["a"]
    assert "*" not in {standing.queue for standing in (await other.places())[0]}
    await other.close()


async def test_a_new_epoch_begins_with_an_empty_line(line: RedisLine) -> None:
    await line.put([place("a")], now=NOW)
    await line.checkpoint(NOW, "5", filled=True)
    await line.begin(2)
    assert await taken(line) == []
    state = await line.state()
    assert (state.epoch, state.filled, state.until) == (2, False, 0)


async def test_the_state_shows_the_checkpoint_and_a_late_checkpoint_is_refused(line: RedisLine) -> None:
    await line.checkpoint(NOW, "5:3,4", filled=True)
    state = await line.state()
    assert (state.filled, state.until, state.position) == (True, NOW, "5:3,4")
    late = RedisLine(line._nodes._url)
    try:
        await late.connect(line._database)
        await late.begin(1)
        await line.begin(2)
        with pytest.raises(LineLost):
            await late.checkpoint(NOW, "6", filled=True)
    finally:
        await late.close()
    assert not (await line.state()).filled


async def test_missing_jobs_are_put_and_the_others_keep_their_places(line: RedisLine) -> None:
    await line.put([place("a"), place("b"), place("c", lane=Lane.RETRY)], now=NOW)
    assert await taken(line, 1) == ["a"]
    await line.put([place(id) for id in "abcd"], now=NOW, mode=PutMode.MISSING)
    places, out = await line.places()
    assert ([p.id for p in places if p.lane is Lane.REALTIME], out) == (["b", "c", "d"], [Entry("a", "q")])
    assert len(places) == 3


async def test_a_new_job_keeps_the_place_that_another_process_has_given_it(line: RedisLine) -> None:
    await line.put([place("a")], now=NOW)
    assert await line.put([place("a", due=NOW + 9), place("b")], now=NOW, mode=PutMode.FRESH) == Placed(1, woken=True)
    assert (await line.places())[0] == [place("a"), place("b")]


async def test_a_lower_epoch_does_not_take_the_line_back(line: RedisLine) -> None:
    await line.begin(5)
    await line.begin(4)
    assert (await line.state()).epoch == 5


async def test_a_queue_that_vanished_is_noticed(line: RedisLine) -> None:
    await line.put([place("a")], now=NOW)
    await line._nodes.ask(*(command("DEL", key) for key in line._keys.of("q")))
    for verb in (line.take(None, 1, now=NOW, stale=0), line.put([place("b")], now=NOW)):
        with pytest.raises(LineLost):
            await verb


async def test_scripts_that_the_server_forgot_are_sent_again(line: RedisLine) -> None:
    await line.put([place("a")], now=NOW)
    for node in line._nodes._nodes.values():
        await node.client.script_flush()
    await line.put([place("b"), place("c", queue="r")], now=NOW)
    for node in line._nodes._nodes.values():
        await node.client.script_flush()
    assert await taken(line) == ["a", "b", "c"]


async def test_one_process_at_a_time_maintains_the_line(line: RedisLine) -> None:
    assert [await line.maintain(who, 60_000) for who in ("ann", "bob", "ann")] == [True, False, True]


async def test_another_process_maintains_the_line_when_the_time_of_the_first_is_over(line: RedisLine) -> None:
    assert await line.maintain("ann", 1)
    assert await eventually(lambda: line.maintain("bob", 60_000))
    assert not await line.maintain("ann", 1)


async def test_a_line_has_only_keys_of_its_own_name(line: RedisLine) -> None:
    assert all(key.startswith(f"demora:{line._database}:{{q}}:1") for key in line._keys.of("q"))
    assert len(set(line._keys.of("q"))) == 2 + len(Lane) * len(Priority)
