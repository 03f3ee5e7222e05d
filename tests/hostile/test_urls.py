"""Hostile URLs in every place where a URL can be given: listening canaries in another process count that nobody comes."""

import contextlib
import itertools
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from demora import Demora
from demora.core.outbound.targets import Policy, read_networks, read_url
from demora.core.outbound.webhook import EndedJob, delivery
from demora.core.states import Status
from demora.engines.sqlite import SqliteStore
from demora.errors import DemoraError, Invalid
from demora.outbound.sender import Forbidden, NoAnswer, Sender
from tests.builders import add_one, job_of
from tests.copies import jobs_file
from tests.servers.names import Names
from tests.servers.receiver import Receiver, answer

FORBIDDEN = (
    *("127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255"),
    "100.64.0.1",
    *("100.127.255.255", "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192"),
    "192.0.2.1",
    *("192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16"),
)  # fmt: skip
FORBIDDEN_6 = (
    *(
        "::",
        "::1",
        "fe80::1",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "100::1",
        "2001:db8::1",
        "2001::1",
        "2001:2::1",
    ),
    *("2001:10::1", "3fff::1", "5f00::1", "4000::1"),
)
NAMES = (
    "localhost",
    "LOCALHOST",
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
    socket.gethostname(),
    "broadcasthost",
)
WIDE = str.maketrans("0123456789.", "０１２３４５６７８９。")  # noqa: RUF001


def spellings(address: str) -> Iterator[str]:
    """The ways in which one parser or another takes an IPv4 address from a host."""
    parts = [int(part) for part in address.split(".")]
    number = int.from_bytes(bytes(parts))
    a, b, c, d = parts
    yield from (address, f"{address}.", str(number), hex(number), f"0{number:o}", f"{a}.{number & 0xFFFFFF}")
    yield from (f"{a}.{b}.{c << 8 | d}", ".".join(map(hex, parts)), ".".join(f"0{part:o}" for part in parts))
    yield from (
        ".".join(f"{part:03}" for part in parts),
        f"0x{a:02x}.{b}.{c}.{d}",
        f"{hex(number)}.",
        f"%{ord(address[0]):02x}{address[1:]}",
    )
    yield from (address.translate(WIDE), address.replace(".", "。"), address.replace(".", "．"), f"[{address}]")  # noqa: RUF001
    yield from (
        f"[::ffff:{address}]",
        f"[::{address}]",
        f"[::ffff:0:{address}]",
        f"[64:ff9b::{address}]",
        f"[64:ff9b:1::{address}]",
    )
    yield f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::1]"
    yield f"[2001:0:{number >> 16:x}:{number & 0xFFFF:x}::]"
    yield from (f"user@{address}", f"example.com@{address}", f"example.com:443@{address}", f"{address}#@example.com")
    yield from (f"example.com\\@{address}", f"{address}%00.example.com", f"{address}%2eexample.com", f" {address}")


def hostile(port: int) -> list[str]:
    hosts = [spelling for address in FORBIDDEN for spelling in spellings(address)]
    hosts += [f"[{address}]" for address in FORBIDDEN_6] + ["[fe80::1%25lo]", "[::1%lo]", "[::1]@example.com"]
    hosts += [spelling for name in NAMES for spelling in (name, f"{name}.", f"{name}:{port}", f"x@{name}")]
    odd = [f"file://127.0.0.1:{port}/", f"gopher://127.0.0.1:{port}/", f"//127.0.0.1:{port}/", f"http:127.0.0.1:{port}/"]
    return odd + [f"{scheme}://{host}:{port}/" for host in hosts for scheme in ("https", "http")]


class Canaries:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.canaries"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self._line())

    def visits(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture
def canaries() -> Iterator[Canaries]:
    """They sing when somebody comes: shown before and after each test, so that silence means something."""
    canaries = Canaries()
    assert sings(canaries)
    yield canaries
    assert sings(canaries)
    canaries.close()


def sings(canaries: Canaries) -> bool:
    before = canaries.visits()
    with socket.create_connection(("127.0.0.1", canaries.port)):
        pass
    return canaries.visits() == before + 1


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Demora]:
    """Plain http is allowed, so that nothing but the table keeps it from forbidden addresses."""
    monkeypatch.setenv("DEMORA_OUTBOUND_HTTP", "true")
    monkeypatch.setenv("DEMORA_OUTBOUND_TIMEOUT", "2s")
    monkeypatch.setattr("demora.core.outbound.webhook.RETRIES", 0)
    async with Demora(store=SqliteStore(jobs_file(tmp_path))) as app:
        await (await app.open()).webhooks.create_secret()
        yield app


def test_there_are_enough_of_them() -> None:
    assert len(set(hostile(1))) >= 500


async def test_nobody_comes_from_creating_updating_or_testing(app: Demora, canaries: Canaries) -> None:
    before, client, taken = canaries.visits(), await app.open(), 0
    for url in hostile(canaries.port):
        for ask in (
            lambda url=url: app.enqueue("demo.echo", webhook_url=url),
            lambda url=url: app.enqueue("demo.echo", unique="u", if_waiting="replace", delay="1h", webhook_url=url),
            lambda url=url: app.enqueue("http.request", {"url": url}, delay="1h"),
            lambda url=url: client.set_queue("mail", webhook_url=url),
        ):
            with contextlib.suppress(Invalid):
                await ask()
                taken += 1
        with pytest.raises((DemoraError, OSError)):
            await app.deliveries.test(url, "01900000-0000-7000-8000-000000000000")
    assert canaries.visits() == before
    assert 0 < taken < 200  # names that only the resolver can tell


async def test_nobody_comes_from_delivering(app: Demora, canaries: Canaries) -> None:
    """As if each had come into the database some other way: an older version, another policy."""
    before, store = canaries.visits(), (await app.open()).store
    urls = hostile(canaries.port)
    ids = []
    for url in urls:
        cause = await add_one(store)
        ended = EndedJob(cause.id, "demo.echo", 1, Status.COMPLETED, cause.created_at, 1, url)
        asked = delivery(ended)
        assert asked is not None
        ids.append((await store.add([asked]))[0].id)
    async with app.worker(concurrency=50):
        for id in ids:
            assert (await app.wait(id, "60s")).status is Status.FAILED
    errors = [str((await job_of(store, id)).error) for id in ids]
    assert canaries.visits() == before
    assert not any("answered" in error for error in errors)


@pytest.mark.parametrize("where", ["hook.test", "two.test", "turn.test", "mapped.test"])
async def test_nobody_comes_by_a_name(canaries: Canaries, where: str) -> None:
    """Names of a DNS server that answers with forbidden addresses: always, among others, or only when asked again."""
    forbidden = ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"]
    rounds: dict[str, Any] = {
        "hook.test": [[address] for address in forbidden],
        "two.test": [["93.184.215.14", address] for address in forbidden],
        "turn.test": [["203.0.113.7"], ["127.0.0.1"]],
        "mapped.test": [["::ffff:127.0.0.1"]],
    }
    before = canaries.visits()
    async with Names(rounds) as names:
        sender = Sender(Policy(plain_http=True), resolve=names.resolve)
        for scheme, _ in itertools.product(("http", "https"), forbidden):
            with pytest.raises((Forbidden, NoAnswer)):
                await sender.send("POST", read_url(f"{scheme}://{where}:{canaries.port}/"), headers={})
    assert canaries.visits() == before


async def test_nobody_comes_by_a_name_that_turns_between_the_check_and_the_call(canaries: Canaries) -> None:
    """The first answer may be called, the second is forbidden: whoever asks twice is caught."""
    before = canaries.visits()
    async with Receiver(host="127.0.0.9") as right, Names({"turn.test": [["127.0.0.9"], ["127.0.0.1"]]}) as names:
        sender = Sender(Policy(read_networks(["127.0.0.9"], "allow")), resolve=names.resolve)
        reply = await sender.send("POST", read_url(f"http://turn.test:{right.port}/"), headers={})
        with pytest.raises(Forbidden):
            await sender.send("POST", read_url(f"http://turn.test:{canaries.port}/"), headers={})
    assert (reply.status, right.connections, canaries.visits()) == (200, 1, before)


async def test_nobody_comes_by_a_redirect(canaries: Canaries) -> None:
    before = canaries.visits()
    for status, target in itertools.product(
        (301, 302, 303, 307, 308), (f"http://127.0.0.1:{canaries.port}/", "//localhost/")
    ):
        async with Receiver(answer(status, location=target, refresh=f"0; url={target}"), host="127.0.0.9") as receiver:
            sender = Sender(Policy(read_networks(["127.0.0.9"], "allow")))
            assert (await sender.send("POST", read_url(receiver.url), headers={})).status == status
    assert canaries.visits() == before
