"""The simulated loop itself: time that jumps, processes that die without a word, the same order for the same seed."""

import asyncio

import pytest

from tests.sim.loop import Deadlock, SimLoop


def test_time_jumps_to_the_next_timer() -> None:
    loop = SimLoop(1)

    async def wait() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(wait()) == 3600


def test_waiting_for_what_never_comes_is_a_deadlock() -> None:
    with pytest.raises(Deadlock):
        SimLoop(1).run_until_complete(asyncio.Event().wait())


def test_a_killed_process_runs_no_further_line() -> None:
    loop, lines = SimLoop(1), []

    async def victim() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            lines.append("finally")

    async def world() -> None:
        loop.spawn("victim", victim())
        await asyncio.sleep(1)
        loop.kill("victim")
        await asyncio.sleep(100)

    loop.run_until_complete(world())
    assert lines == []
    loop.close()


def test_a_stopped_process_goes_on_when_it_is_continued() -> None:
    loop, seen = SimLoop(1), []

    async def zombie() -> None:
        await asyncio.sleep(1)
        seen.append(loop.time())

    async def world() -> None:
        loop.spawn("zombie", zombie())
        await asyncio.sleep(0.5)
        loop.pause("zombie")
        await asyncio.sleep(50)
        assert seen == []
        loop.resume("zombie")
        await asyncio.sleep(1)

    loop.run_until_complete(world())
    assert seen == [50.5]


def test_within_a_process_callbacks_run_in_order_whatever_the_seed() -> None:
    for seed in range(20):
        loop, order = SimLoop(seed), []

        async def process(loop: SimLoop = loop, order: list[int] = order) -> None:
            for n in range(5):
                loop.call_soon(order.append, n)
            await asyncio.sleep(1)

        loop.run_until_complete(process())
        assert order == [0, 1, 2, 3, 4]


def test_the_seed_decides_which_process_goes_first() -> None:
    orders = set()
    for seed in range(20):
        loop, order = SimLoop(seed), []

        async def step(name: str, order: list[str] = order) -> None:
            order.append(name)

        async def world(loop: SimLoop = loop, step: object = step) -> None:
            for name in "abc":
                loop.spawn(name, step(name))  # type: ignore[operator]
            await asyncio.sleep(1)

        loop.run_until_complete(world())
        orders.add("".join(order))
    assert len(orders) > 3
