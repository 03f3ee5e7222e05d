"""Group commit: who shares a transaction, who fails alone, and how long the lock is held."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from demora.engines.sqlite.connection.connections import WAITS, BusyHandler, Waits
from demora.engines.sqlite.connection.readers import QuickReads
from demora.engines.sqlite.connection.transactions import (
    LOCK_HELD_AT_MOST,
    MOST_JOINED,
    READING,
    WRITING,
    Batches,
    Pending,
    Transaction,
)
from demora.engines.sqlite.connection.transactors import AT_ONCE, LIGHT, InlineTransactor, ThreadTransactor, Transactor
from demora.errors import StoreBusy, StoreClosed, StoreError
from demora.store.jobs import Topic


class Counted:
    """A database of one table that counts its commits."""

    def __init__(self) -> None:
        self.commits = 0
        self.woken: list[set[Topic]] = []

    def make(self) -> Batches:
        return Batches(self.make_db(), WRITING, lambda: (0, 0), lambda topics: None)

    def make_db(self) -> apsw.Connection:
        db = apsw.Connection(":memory:")
        db.execute("create table numbers (n int unique not null)")
        db.set_commit_hook(self._committed)
        return db

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
    await transactor.close()


def where(tx: Transaction, requests: Sequence[int] = (0,)) -> list[int]:
    """The thread that a call runs on, for each request."""
    return [threading.get_ident() for _ in requests]


@pytest.mark.parametrize("kind", ["reads", "joined", "heavy", "others"])
async def test_later_calls_of_a_pass_are_committed_at_its_end_if_that_is_quick(counted: Counted, kind: str) -> None:
    def batches() -> Batches:
        return Batches(counted.make_db(), READING if kind == "reads" else WRITING, lambda: (0, 0), lambda topics: None)

    def call(n: int) -> "asyncio.Future[list[int]]":
        weight = LIGHT // 4 if kind == "heavy" else 1
        return transactor.join(where, [n], weight) if kind in ("joined", "heavy") else ask(transactor, where, weight)

    transactor = ThreadTransactor(batches, counted.woken.append, "test-writer")
    await transactor.start()
    here, gains = threading.get_ident(), kind in ("reads", "joined")
    for at_once in (AT_ONCE, 0 if gains else AT_ONCE):  # once they gained by it, those of the next pass wait for each other
        calls = [call(n) for n in range(20)]
        assert [one.done() for one in calls] == [True] * at_once + [False] * (20 - at_once)
        ran = [thread for one in await asyncio.gather(*calls) for thread in one]
        assert ran[:at_once] == [here] * at_once
        assert {thread == here for thread in ran[at_once:]} == {gains}
    await transactor.close()


async def test_a_bad_read_fails_alone(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "x.db"))
    batches = Batches(db, READING, lambda: (0, 0), lambda topics: None)
    reads = (lambda tx: 1, lambda tx: tx.db.execute("select * from nothing"), lambda tx: 3)
    batch = [Pending(read, asyncio.get_running_loop().create_future()) for read in reads]
    finished, _ = batches.commit(batch)
    assert [read.result for read in finished] == [1, None, 3]
    assert [type(read.error) for read in finished] == [type(None), StoreError, type(None)]


class Joined:
    """Puts numbers, and notes how many each call puts."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def put(self, tx: Transaction, numbers: Sequence[int | None]) -> list[str]:
        self.sizes.append(len(numbers))
        return [str(put(n)(tx)) for n in numbers]

    async def ask(self, transactor: Transactor, *calls: Sequence[int | None], weight: int = 1) -> list[Any]:
        """Put the numbers of each of these calls, made at the same time, and return what became of each."""
        asked = [transactor.join(self.put, numbers, weight) for numbers in calls]
        return await asyncio.gather(*asked, return_exceptions=True)


async def test_joined_calls_run_as_one_and_each_gets_its_own_answers(transactor: Transactor) -> None:
    joined = Joined()
    calls = [[n, -n] for n in range(1, 31)]
    assert await joined.ask(transactor, *calls) == [[str(n), str(-n)] for n, _ in calls]
    assert max(joined.sizes) > 40
    assert await numbers(transactor) == sorted(n for call in calls for n in call)


async def test_a_bad_call_among_joined_ones_fails_alone(transactor: Transactor) -> None:
    calls: list[list[int | None]] = [[n, n + 100] for n in range(20)]
    calls[15] = [15, None]
    answers = await Joined().ask(transactor, *calls)
    assert isinstance(answers.pop(15), StoreError)
    assert all(isinstance(answer, list) for answer in answers)
    assert await numbers(transactor) == sorted(n for call in calls if None not in call for n in call if n is not None)


async def test_a_cancelled_caller_takes_no_joined_one_with_it(transactor: Transactor) -> None:
    joined = Joined()
    calls = [transactor.join(joined.put, [n], 1) for n in range(20)]
    calls[-2].cancel()
    await asyncio.wait(calls)
    assert [call.cancelled() or call.result() for call in calls] == [*([str(n)] for n in range(18)), True, ["19"]]
    assert await numbers(transactor) == list(range(20))


async def test_joined_calls_are_limited_in_weight(transactor: Transactor) -> None:
    joined = Joined()
    await joined.ask(transactor, *([n] for n in range(40)), weight=MOST_JOINED // 4)
    assert max(joined.sizes) == 4
    await joined.ask(transactor, *([n] for n in range(40, 60)), weight=MOST_JOINED + 1)
    assert await numbers(transactor) == list(range(60))


async def test_only_calls_of_the_same_function_are_joined(transactor: Transactor) -> None:
    one, other = Joined(), Joined()
    calls = [transactor.join((one, other)[n // 15].put, [n], 1) for n in range(30)]
    calls.append(transactor.run(put(30), 1))
    await asyncio.gather(*calls)
    assert (sum(one.sizes), sum(other.sizes)) == (15, 15)
    assert await numbers(transactor) == list(range(31))


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_ends_leaves_no_caller_waiting(counted: Counted) -> None:
    """Its connection is lost for good: not even a rollback is possible."""
    transactor = ThreadTransactor(counted.make, counted.woken.append, "test-writer")
    await transactor.start()

    def lose(tx: Transaction) -> None:
        tx.db.close(True)

    asked = [ask(transactor, call, LIGHT + 1) for call in (put(1), lose, put(2))]
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, int | StoreError)] == []
    assert isinstance(answers[1], StoreError)
    with pytest.raises(StoreClosed):
        await ask(transactor, put(3))
    async with asyncio.timeout(10):
        await transactor.close()


def test_each_wait_for_the_lock_has_all_of_its_time() -> None:
    handler = BusyHandler(WAITS._replace(lock=0.02))
    tries = 0
    while handler(tries):
        tries += 1
    assert handler(0)


async def test_a_quick_reader_that_could_not_be_opened_is_opened_by_the_next_read(counted: Counted) -> None:
    opened = list[str]()

    async def make(name: str) -> ThreadTransactor:
        opened.append(name)
        await asyncio.sleep(0)
        if len(opened) == 1:
            raise StoreError("as planted")
        reader = ThreadTransactor(counted.make, counted.woken.append, name)
        await reader.start()
        return reader

    quick = QuickReads(make)
    with pytest.raises(StoreError, match="as planted"):
        await quick.run(lambda _: 1)
    impatient = asyncio.ensure_future(quick.run(lambda _: 2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await quick.run(lambda _: 3), len(opened)) == (3, 2)
    await quick.close()
