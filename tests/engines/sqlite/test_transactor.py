"""Group commit: who shares a transaction, who fails alone, and how long the lock is held."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from demora.engines.sqlite.connection.connections import WAITS, Waits
from demora.engines.sqlite.connection.transactions import (
    AT_ONCE,
    LIGHT,
    LOCK_HELD_AT_MOST,
    Batches,
    InlineTransactor,
    Pending,
    ThreadTransactor,
    Transaction,
    Transactor,
)
from demora.errors import StoreBusy, StoreClosed, StoreError
from demora.store.jobs import Topic


class Counted:
    """A database of one table that counts its commits."""

    def __init__(self) -> None:
        self.commits = 0
        self.woken: list[set[Topic]] = []

    def make(self) -> Batches:
        db = apsw.Connection(":memory:")
        db.execute("create table numbers (n int unique not null)")
        db.set_commit_hook(self._committed)
        return Batches(db, "begin", lambda: (0, 0), lambda topics: None)

    def _committed(self) -> bool:
        self.commits += 1
        return False


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture(params=["thread", "inline"])
async def transactor(request: pytest.FixtureRequest, counted: Counted) -> AsyncIterator[Transactor]:
    if request.param == "inline":
        transactor: Transactor = InlineTransactor(counted.make(), counted.woken.append)
    else:
        transactor = ThreadTransactor(counted.make, counted.woken.append, "test-writer")
        await transactor.start()
    yield transactor
    await transactor.close()


def put(n: int | None, topic: Topic | None = None):
    def call(tx: Transaction) -> int | None:
        if topic:
            tx.wake(topic)
        tx.db.execute("insert into numbers values (?)", (n,))
        return n

    return call


def ask(transactor: Transactor, call: Callable[[Transaction], Any], weight: int = 1) -> "asyncio.Future[Any]":
    return transactor.run(call, weight)


async def numbers(transactor: Transactor) -> list[int]:
    return await ask(transactor, lambda tx: [n for (n,) in tx.db.execute("select n from numbers order by n")])


async def test_calls_made_at_the_same_time_share_transactions(transactor: Transactor, counted: Counted) -> None:
    assert await asyncio.gather(*(ask(transactor, put(n)) for n in range(100))) == list(range(100))
    assert counted.commits <= 20
    assert await numbers(transactor) == list(range(100))


@pytest.mark.parametrize("bad", [None, 3], ids=["null", "duplicate"])
async def test_a_bad_call_fails_alone_with_a_store_error(transactor: Transactor, bad: int | None) -> None:
    calls = [ask(transactor, put(n)) for n in (1, 2, 3, bad, 4)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[3], StoreError)
    assert isinstance(answers[3].__cause__, apsw.ConstraintError)
    assert await numbers(transactor) == [1, 2, 3, 4]


async def test_a_bad_call_leaves_nothing_of_itself(transactor: Transactor) -> None:
    def half(tx: Transaction) -> None:
        put(7)(tx)
        raise KeyError("half done")

    for calls in ([half], [put(1), half, put(2)]):
        answers = await asyncio.gather(*(ask(transactor, call) for call in calls), return_exceptions=True)
        assert isinstance(answers[calls.index(half)], KeyError)
    assert await numbers(transactor) == [1, 2]


async def test_only_what_was_written_wakes(transactor: Transactor, counted: Counted) -> None:
    calls = [ask(transactor, put(n, topic)) for n, topic in [(1, Topic.READY), (1, Topic.ENDED), (2, None)]]
    await asyncio.gather(*calls, return_exceptions=True)
    assert set().union(*counted.woken) == {Topic.READY}


async def test_a_cancelled_awaiter_does_not_withdraw_its_write(transactor: Transactor) -> None:
    ask(transactor, put(1)).cancel()
    assert await numbers(transactor) == [1]


async def test_closing_finishes_what_was_asked_and_refuses_the_rest(transactor: Transactor) -> None:
    asked = [ask(transactor, put(n)) for n in range(20)]
    await transactor.close()
    assert [call.result() for call in asked] == list(range(20))
    with pytest.raises(StoreClosed):
        await ask(transactor, put(99))


async def test_a_batch_gives_up_the_lock_after_its_share(counted: Counted) -> None:
    def slow(tx: Transaction) -> None:
        until = time.perf_counter() + LOCK_HELD_AT_MOST
        while time.perf_counter() <= until:
            pass

    loop = asyncio.get_running_loop()
    batch = [Pending(call, loop.create_future()) for call in (put(1), slow, put(2))]
    finished, _ = counted.make().commit(batch)
    assert (len(finished), len(batch)) == (2, 1)


async def test_a_light_call_that_comes_alone_is_committed_on_the_spot(counted: Counted) -> None:
    transactor = ThreadTransactor(counted.make, counted.woken.append, "test-writer")
    await transactor.start()
    here = threading.get_ident()
    assert await ask(transactor, lambda tx: threading.get_ident()) == here
    assert await ask(transactor, lambda tx: threading.get_ident(), weight=LIGHT + 1) != here
    together = await asyncio.gather(*(ask(transactor, lambda tx: threading.get_ident()) for _ in range(20)))
    assert together[:AT_ONCE] == [here] * AT_ONCE
    assert here not in together[AT_ONCE:]
    await transactor.close()


async def test_calls_are_run_in_the_order_they_were_made(transactor: Transactor) -> None:
    seen: list[int] = []
    calls = [ask(transactor, lambda tx, n=n: seen.append(n), weight) for n, weight in enumerate([1, 1000, 1, 1, 1000] * 5)]
    await asyncio.gather(*calls)
    assert seen == list(range(25))


def two_on_one_file(folder: Path, waits: Waits = WAITS) -> list[Batches]:
    connections = [apsw.Connection(str(folder / "x.db")) for _ in range(2)]
    return [Batches(db, "begin immediate", lambda: (0, 0), lambda topics: None, waits=waits) for db in connections]


async def test_nothing_is_done_on_the_spot_while_another_holds_the_lock(tmp_path: Path) -> None:
    keeper, other = two_on_one_file(tmp_path)
    assert keeper.begin_at_once()
    assert not other.begin_at_once()
    keeper.commit([])
    assert other.begin_at_once()


async def test_a_file_that_stays_locked_is_said_to_be_busy(tmp_path: Path) -> None:
    keeper, other = two_on_one_file(tmp_path, Waits(lock=0.05))
    keeper.begin_at_once()
    pending = Pending(put(1), asyncio.get_running_loop().create_future())
    other.commit([pending])
    assert isinstance(pending.error, StoreBusy)


async def test_only_calls_whose_time_is_up_are_refused(tmp_path: Path) -> None:
    keeper, other = two_on_one_file(tmp_path, Waits(lock=60))
    keeper.begin_at_once()
    old, new = (Pending(put(n), asyncio.get_running_loop().create_future()) for n in range(2))
    old.asked -= 60
    batch = [old, new]
    finished, _ = other.commit(batch)
    assert (finished, batch) == ([old], [new])
    assert isinstance(old.error, StoreBusy)
    assert new.error is None
