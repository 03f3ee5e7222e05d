"""Names with a thousand addresses, name servers and hosts that hang, and errors that would tell of the inner network."""

import asyncio
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from demora import Context, Demora, Job
from demora.core.outbound.targets import Policy, read_networks, read_url
from demora.core.states import Status
from demora.engines.sqlite import SqliteStore
from demora.outbound.lookups import Lookups
from demora.outbound.sender import MOST_DIALLED, Crowded, NoAnswer, Sender
from demora.outbound.turns import HostTurns
from demora.testing import Sandbox
from tests.copies import jobs_file
from tests.facts import eventually
from tests.servers.names import Names
from tests.servers.receiver import HANG, Receiver, answer

LOCAL = Policy(read_networks(["127.0.0.0/8", "::1"], "allow"))

_dialled: list[Any] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _dialled is not None:
        _dialled.append(arguments[1])


sys.addaudithook(_note)


@contextmanager
def dials() -> Iterator[list[Any]]:
    """The addresses that this process dials meanwhile, as the interpreter itself reports them."""
    global _dialled
    seen: list[Any] = []
    _dialled = seen
    try:
        yield seen
    finally:
        _dialled = None


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def a_thousand(_host: str, _port: int) -> list[str]:
    return [f"127.1.{n // 250}.{n % 250 + 1}" for n in range(1000)]


async def send(sender: Sender, url: str) -> int:
    return (await sender.send("POST", read_url(url), headers={})).status


# Addresses


async def test_of_a_name_with_a_thousand_addresses_four_are_dialled_once_each() -> None:
    port = closed_port()
    with dials() as seen, pytest.raises(NoAnswer, match="refused"):
        await send(Sender(LOCAL, resolve=a_thousand), f"http://many.test:{port}/")
    at_port = [address for address in seen if address[1] == port]
    assert len(at_port) == len(set(at_port)) == MOST_DIALLED == 4


async def test_an_address_of_the_other_family_is_among_those_dialled() -> None:
    async def mixed(_host: str, _port: int) -> list[str]:
        return [*(await a_thousand("", 0))[:20], "::1"]

    async with Receiver(host="::1") as receiver:
        assert await send(Sender(LOCAL, resolve=mixed), f"http://mixed.test:{receiver.port}/") == 200


async def test_a_name_whose_first_address_is_dead_is_still_called() -> None:
    async with Receiver() as receiver, Names({"two.test": [["127.0.0.8", "127.0.0.1"]]}) as names:
        assert await send(Sender(LOCAL, resolve=names.resolve), f"http://two.test:{receiver.port}/") == 200


# What an error says


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "::1"]])
async def test_an_error_names_the_host_and_the_fault_and_no_address(addresses: list[str]) -> None:
    async with Names({"inner.test": [addresses]}) as names:
        with pytest.raises(NoAnswer) as refused:
            await send(Sender(LOCAL, resolve=names.resolve), f"http://inner.test:{closed_port()}/")
    said = str(refused.value)
    assert "inner.test" in said
    assert "refused" in said
    assert not any(address in said for address in addresses)


async def test_no_job_tells_what_address_its_host_resolved_to(tmp_path: Path) -> None:
    addresses = ["127.0.0.1", "10.1.2.3"]
    async with (
        Names({"inner.test": [["127.0.0.1"]], "private.test": [["10.1.2.3"]]}) as names,
        Receiver(lambda _: HANG) as hanging,
        Demora(store=SqliteStore(jobs_file(tmp_path))) as app,
    ):
        app.sender = Sender(LOCAL, resolve=names.resolve)
        impatient = Sender(LOCAL, timeout=timedelta(milliseconds=100), resolve=names.resolve)
        urls = {
            "refused": f"https://inner.test:{closed_port()}/",
            "must not be called": "https://private.test/",
            "did not answer": f"http://inner.test:{hanging.port}/",
        }
        async with app.worker():
            for fault, url in urls.items():
                app.sender = impatient if fault == "did not answer" else app.sender
                job = await app.wait((await app.enqueue("http.request", {"url": url}, max_retries=0)).id, "60s")
                told = f"{job.error} {job.attempts}"
                assert job.status is Status.FAILED
                assert fault in told
                assert not any(address in told for address in addresses)


# Look-ups


class SlowNames:
    """A resolver whose names under `slow` hang until it is told to go on."""

    def __init__(self) -> None:
        self.go_on, self.asked = threading.Event(), Counter[str]()

    def ask(self, host: str, _port: int) -> list[str]:
        self.asked[host] += 1
        if host.startswith("slow"):
            self.go_on.wait(60)
        return ["127.0.0.1"]


@pytest.fixture
def slow() -> Iterator[SlowNames]:
    names = SlowNames()
    yield names
    names.go_on.set()


async def test_a_name_that_hangs_holds_one_thread_and_no_other_name_waits(slow: SlowNames) -> None:
    lookups = Lookups(2, slow.ask)
    hanging = [asyncio.ensure_future(lookups.resolve("slow.test", 443)) for _ in range(50)]
    await eventually(lambda: asyncio.sleep(0, slow.asked["slow.test"]))
    for n in range(20):
        assert await asyncio.wait_for(lookups.resolve(f"quick{n}.test", 443), 60) == ["127.0.0.1"]
    assert slow.asked["slow.test"] == 1
    slow.go_on.set()
    assert await asyncio.gather(*hanging) == [["127.0.0.1"]] * 50
    assert await lookups.resolve("slow.test", 443) == ["127.0.0.1"]
    assert slow.asked["slow.test"] == 2  # what was known then is not kept


async def test_a_name_that_hung_past_its_callers_still_holds_only_one_thread(slow: SlowNames) -> None:
    lookups = Lookups(4, slow.ask)
    sender = Sender(LOCAL, timeout=timedelta(milliseconds=50), resolve=lookups.resolve)
    for _ in range(6):
        with pytest.raises(NoAnswer, match="did not answer"):
            await send(sender, "https://slow.test/")
    assert slow.asked["slow.test"] == 1


async def test_a_look_up_that_was_given_up_in_the_queue_is_never_made(slow: SlowNames) -> None:
    lookups = Lookups(1, slow.ask)
    first = asyncio.ensure_future(lookups.resolve("slow.test", 443))
    await eventually(lambda: asyncio.sleep(0, slow.asked["slow.test"]))
    queued = [asyncio.ensure_future(lookups.resolve(f"queued{n % 2}.test", 443)) for n in range(4)]
    await asyncio.sleep(0)
    for task in (queued[0], queued[1], queued[2]):  # of queued1.test one caller stays
        task.cancel()
    await asyncio.gather(*queued[:3], return_exceptions=True)
    slow.go_on.set()
    assert await first == ["127.0.0.1"]
    assert await queued[3] == ["127.0.0.1"]
    assert (slow.asked["queued0.test"], slow.asked["queued1.test"]) == (0, 1)


async def test_names_that_hang_do_not_hold_up_plain_handlers_or_the_threads_of_the_loop(
    slow: SlowNames, tmp_path: Path
) -> None:
    async with Demora(store=SqliteStore(jobs_file(tmp_path))) as app:
        app.sender = Sender(LOCAL, resolve=Lookups(2, slow.ask).resolve)
        app.job("plain")(lambda: "done")
        async with app.worker(concurrency=40):
            for n in range(30):
                await app.enqueue("http.request", {"url": f"https://slow{n}.test/"})
            await eventually(lambda: asyncio.sleep(0, slow.asked.total()), lambda asked: asked == 2)
            assert (await app.wait((await app.enqueue("plain")).id, "60s")).result == "done"
            assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), 60) == 7
            slow.go_on.set()


# Hosts


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("https://[2606:4700::1]/", "https://[2606:4700:0::1]/"),
        ("https://[2606:4700::1]/", "https://[2606:4700:0:0:0:0:0:0001]:443/a"),
        ("https://[2606:4700::A]/", "https://[2606:4700::a]/"),
        ("https://Example.COM/", "https://example.com/"),
        ("https://XN--BCHER-KVA.example/", "https://xn--bcher-kva.example/"),
    ],
)
def test_a_host_has_one_spelling(one: str, same: str) -> None:
    assert read_url(one).host == read_url(same).host


async def test_the_calls_of_a_host_are_counted_whatever_its_spelling() -> None:
    async with Receiver(lambda _: HANG, host="::1") as hanging:
        sender = Sender(LOCAL, turns=HostTurns(1))
        sender.turns.leave_room(2)  # of which none is for waiting
        held = asyncio.ensure_future(send(sender, f"http://[::1]:{hanging.port}/"))
        await eventually(lambda: asyncio.sleep(0, len(hanging.received)))
        with pytest.raises(Crowded):
            await send(sender, f"http://[0:0:0::1]:{hanging.port}/")
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)


class Crowd:
    """Jobs that call one host whose places are all taken by calls that the test makes, in a sandbox whose time it turns."""

    def __init__(self, app: Demora, sandbox: Sandbox, receiver: Receiver) -> None:
        self.app, self.sandbox, self.receiver = app, sandbox, receiver
        self.claims = Counter[str]()
        turns = HostTurns(4, monotonic=lambda: sandbox.clock.boot() / 1000, chance=Random(7).random)
        app.sender = Sender(LOCAL, timeout=timedelta(hours=1), turns=turns)
        app.middleware(self._count)

    async def _count(self, ctx: Context, call_next: Any) -> Any:
        self.claims[ctx.id] += 1
        return await call_next()

    async def take_all_places(self) -> list["asyncio.Task[int]"]:
        held = [asyncio.ensure_future(send(self.app.sender, self.receiver.url)) for _ in range(4)]
        await eventually(lambda: asyncio.sleep(0, len(self.receiver.received)), lambda count: count == 4)
        return held


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    app = Demora()
    app.configure(concurrency=8)  # too few for calls that wait in a slot, which would take real time
    with Sandbox(app, now=datetime(2030, 1, 1, tzinfo=UTC)) as sandbox:
        async with app, Receiver(lambda _: HANG) as receiver:
            yield Crowd(app, sandbox, receiver)


async def test_a_job_is_claimed_a_few_times_while_its_host_is_busy_for_twenty_minutes(crowd: Crowd) -> None:
    held = await crowd.take_all_places()
    jobs = [await crowd.app.enqueue("http.request", {"url": crowd.receiver.url}) for _ in range(50)]
    await crowd.sandbox.advance("20m")
    assert set(crowd.claims) == {job.id for job in jobs}
    assert max(crowd.claims.values()) <= 8  # 1,200 when each came back every second
    for call in held:
        call.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    crowd.receiver.how = answer()
    done = await crowd.sandbox.advance("1h")
    assert {job.id for job in done.jobs if job.status is Status.COMPLETED} == {job.id for job in jobs}
    assert crowd.claims.total() <= 50 * 10


async def test_a_call_waits_for_a_place_that_is_free_in_a_moment() -> None:
    async with Receiver() as receiver:
        sender = Sender(LOCAL, per_host=2)
        assert await asyncio.gather(*(send(sender, receiver.url) for _ in range(4))) == [200] * 4


async def test_a_caller_who_gives_up_waiting_leaves_the_place_to_the_next() -> None:
    turns, go_on, order = HostTurns(1), asyncio.Event(), []
    turns._waiting_room = 3

    async def call(name: str, event: asyncio.Event | None = None) -> None:
        async with turns.at("a.test"):
            order.append(name)
            if event is not None:
                await event.wait()

    first = asyncio.ensure_future(call("first", go_on))
    await asyncio.sleep(0)
    gone, last = (asyncio.ensure_future(call(name)) for name in ("gone", "last"))
    await asyncio.sleep(0)
    go_on.set()
    await first  # hands its place to the one that is cancelled before it knows
    gone.cancel()
    await asyncio.gather(gone, last, return_exceptions=True)
    assert order == ["first", "last"]
    await call("again")


async def test_a_host_that_hangs_does_not_take_all_slots_of_a_small_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMORA_OUTBOUND_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("DEMORA_OUTBOUND_TIMEOUT", "4m")
    async with (
        Receiver(lambda _: HANG) as hanging,
        Receiver(host="127.0.0.2") as other,
        Demora(store=SqliteStore(jobs_file(tmp_path))) as app,
        app.worker(concurrency=4, grace="0s"),
    ):
        held = [await app.enqueue("http.request", {"url": hanging.url}) for _ in range(20)]
        await eventually(lambda: asyncio.sleep(0, len(hanging.received)), lambda count: count == 3)
        job: Job = await app.enqueue("http.request", {"url": other.url})
        assert (await app.wait(job.id, "30s")).status is Status.COMPLETED
        assert len(hanging.received) == 3
        assert len(held) == 20
