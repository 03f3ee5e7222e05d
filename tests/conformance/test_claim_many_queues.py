"""`claim` where jobs wait in very many queues: the same jobs in the same order, and the same time of the next one."""

import pytest

from demora.core.job import Priority
from demora.core.pace import PaceRequest
from demora.engines.sql.constants import MANY_HEADS, MOST_DUE
from demora.store.jobs import QueueChange
from demora.store.store import Store
from tests.builders import add_ids, claim, claim_ids, new_job, seconds
from tests.clock import TestClock
from tests.setups import Setup

MAIL, BOTH = frozenset({"mail"}), frozenset({"mail", "report"})
MANY = MANY_HEADS + 10
HOUR = seconds(3600)


@pytest.fixture
async def crowded(store: Store) -> Store:
    """A store with a delayed job in each of very many queues."""
    await store.add([new_job(queue=f"q{n}", type="mail", delay=HOUR + seconds(n)) for n in range(MANY)])
    return store


async def test_due_jobs_of_all_queues_are_claimed_in_order(crowded: Store, clock: TestClock) -> None:
    low, late = await add_ids(
        crowded,
        {"queue": "q7", "type": "mail", "priority": Priority.LOW},
        {"queue": "a", "type": "report", "delay": seconds(1)},
    )
    clock.turn(ms=1000)
    now, high, other = await add_ids(
        crowded,
        {"queue": "q7", "type": "report"},
        {"queue": "z", "type": "mail", "priority": Priority.HIGH},
        {"queue": "b", "type": "unknown"},
    )
    assert await claim_ids(crowded, 10, types=BOTH) == [high, now, late, low]
    assert await claim_ids(crowded, 10, types=BOTH) == []
    assert await claim_ids(crowded, 10) == [other]


@pytest.mark.parametrize("types", [BOTH, None])
async def test_the_next_job_is_that_of_any_queue(
    crowded: Store, setup: Setup, clock: TestClock, types: frozenset[str] | None
) -> None:
    beyond = setup.name.startswith("lined")  # the horizon of the line
    assert (await claim(crowded, types=types)).next_in == (None if beyond else HOUR)
    await add_ids(crowded, {"queue": "a", "type": "report", "delay": seconds(90)})
    assert (await claim(crowded, types=types)).next_in == seconds(90)
    clock.turn(ms=90_000)
    assert len((await claim(crowded, types=types)).jobs) == 1


async def test_a_named_queue_is_one_of_many(crowded: Store) -> None:
    first, second, _ = await add_ids(
        crowded, {"queue": "q3", "type": "mail"}, {"queue": "q4", "type": "mail"}, {"queue": "q5", "type": "mail"}
    )
    assert await claim_ids(crowded, 10, types=MAIL, queues=["q4", "q3"], in_turn=True) == [second, first]
    idle = await claim(crowded, types=MAIL, queues=["q9"])
    assert idle.next_in is not None
    assert idle.next_in <= seconds(30)  # when the leases lapse


async def test_a_paused_queue_and_a_paced_one_are_heeded_among_many(crowded: Store, clock: TestClock) -> None:
    await crowded.set_queue("q1", QueueChange(paused=True))
    await crowded.paces.set("q2", PaceRequest(gap=seconds(60), burst=1), by="test")
    [_, first, second] = await add_ids(
        crowded,
        {"queue": "q1", "type": "mail"},
        {"queue": "q2", "type": "mail", "delay": seconds(1)},
        {"queue": "q2", "type": "mail", "delay": seconds(2)},
    )
    clock.turn(ms=2000)
    assert await claim_ids(crowded, 10, types=MAIL) == [first]
    claimed = await claim(crowded, 10, types=MAIL)
    assert claimed.jobs == []
    clock.turn(ms=60_000)
    assert second in await claim_ids(crowded, 10, types=MAIL)


async def test_a_flood_of_due_jobs_hides_no_urgent_one(crowded: Store) -> None:
    await crowded.add([new_job(queue="flood", type="mail", priority=Priority.LOW) for _ in range(MOST_DUE + 5)])
    [urgent] = await add_ids(crowded, {"queue": "q8", "type": "mail", "priority": Priority.CRITICAL})
    assert await claim_ids(crowded, 1, types=MAIL) == [urgent]


async def test_jobs_of_other_types_are_passed_over_among_many_queues(crowded: Store) -> None:
    await crowded.add([new_job(queue="q6", type="unknown") for _ in range(70)])
    [wanted] = await add_ids(crowded, {"queue": "q6", "type": "mail"})
    ids: list[str] = []
    while not ids:
        ids = await claim_ids(crowded, 1, types=MAIL)
    assert ids == [wanted]
    assert len(await claim_ids(crowded, 100, types=frozenset({"unknown"}))) == 70
