"""The guarded sender, against real servers on this machine and a DNS server of the tests."""

import asyncio
import gzip
import ssl
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from demora.core.outbound.targets import Policy, read_networks, read_url
from demora.outbound import sender
from demora.outbound.sender import MOST_READ, Crowded, Forbidden, NoAnswer, Sender, ServerReply
from tests.facts import eventually
from tests.servers.names import Names
from tests.servers.receiver import HANG, Receiver, answer

LOCAL = Policy(read_networks(["127.0.0.0/8"], "allow"))
SHORT = timedelta(milliseconds=200)


async def call(url: str, policy: Policy = LOCAL, **more: Any) -> ServerReply:
    sent = {name: more.pop(name) for name in ("headers", "body") if name in more}
    return await Sender(policy, **more).send("POST", read_url(url), **{"headers": {}} | sent)


async def test_a_request_arrives_as_asked_for_and_its_answer_comes_back() -> None:
    async with Receiver(answer(201, b"made", etag='"1"', set_cookie="a=b")) as receiver:
        reply = await call(receiver.url + "?q=%20%2f", headers={"X-A": "1", "Content-Type": "text/plain"}, body=b"hello")
    assert (reply.status, reply.body, reply.cut, reply.headers["etag"]) == (201, b"made", False, '"1"')
    [seen] = receiver.received
    assert (seen.method, seen.path, seen.body) == ("POST", "/hook?q=%20%2f", b"hello")
    assert (seen.headers["x-a"], seen.headers["host"]) == ("1", f"127.0.0.1:{receiver.port}")
    assert seen.headers["accept-encoding"] == "identity"


async def test_nothing_is_sent_to_this_machine_unless_a_setting_opens_it() -> None:
    async with Receiver() as receiver:
        with pytest.raises(Forbidden, match="this machine"):
            await call(receiver.url, Policy(plain_http=True))
    assert receiver.connections == 0


async def test_plain_http_is_not_sent_outside_of_an_opened_network() -> None:
    async with Names({"a.test": [["93.184.215.14"]]}) as names:
        with pytest.raises(Forbidden, match="plain http"):
            await call("http://a.test/", resolve=names.resolve)


async def test_a_name_that_leads_to_a_forbidden_address_among_others_is_not_called() -> None:
    async with Receiver() as receiver, Names({"two.test": [["127.0.0.1", "10.0.0.1"]]}) as names:
        with pytest.raises(Forbidden, match="leads to an address that is private"):
            await call(f"http://two.test:{receiver.port}/", resolve=names.resolve)
    assert receiver.connections == 0


async def test_a_name_is_asked_for_once_and_what_it_says_later_does_not_count() -> None:
    rounds = [["127.0.0.1"], ["127.0.0.2"]]
    async with Receiver() as right, Receiver(host="127.0.0.2") as other, Names({"turn.test": rounds}) as names:
        other_port = other.port
        reply = await call(f"http://turn.test:{right.port}/", resolve=names.resolve)
        assert reply.status == 200
        assert set(names.asked.values()) == {1}
        assert right.received[0].headers["host"] == f"turn.test:{right.port}"
    assert (right.connections, other.connections, other_port > 0) == (1, 0, True)


async def test_an_address_that_was_not_checked_is_not_dialled() -> None:
    """The last line: even if what resolves names for the library were changed under our feet."""
    from demora.outbound.sender import _exchange, _Guard

    async with Receiver() as receiver:
        guard = _Guard(read_url(receiver.url), Policy(), [])
        with pytest.raises(Forbidden, match="not checked"):
            await _exchange(guard, "POST", {}, b"")
    assert receiver.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    async with Receiver() as canary, Receiver(answer(status, location=canary.url)) as receiver:
        assert (await call(receiver.url)).status == status
    assert (receiver.connections, canary.connections) == (1, 0)


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as proxy, Receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert (await call(receiver.url)).status == 200
    assert (proxy.connections, receiver.connections) == (0, 1)


async def test_at_most_64_kib_are_read() -> None:
    async with Receiver(answer(200, b"x" * (MOST_READ + 1))) as receiver:
        reply = await call(receiver.url)
    assert (len(reply.body), reply.cut) == (MOST_READ, True)
    async with Receiver(answer(200, b"x" * MOST_READ)) as receiver:
        assert not (await call(receiver.url)).cut


async def test_what_is_packed_is_not_unpacked() -> None:
    packed = gzip.compress(b"\0" * 10_000_000)
    async with Receiver(answer(200, packed, content_encoding="gzip")) as receiver:
        assert (await call(receiver.url)).body == packed[:MOST_READ]


async def test_an_answer_without_end_is_cut() -> None:
    endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 4096 + b"\r\n"
    async with Receiver(endless + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 40) as receiver:
        assert (await call(receiver.url)).cut


async def drip(_: object) -> bytes:
    await asyncio.sleep(3600)
    return b""


@pytest.mark.parametrize("how", [lambda _: HANG, drip], ids=["hang", "drip"])
async def test_one_deadline_ends_every_wait(how: Callable[..., Any]) -> None:
    async with Receiver(how) as receiver:
        with pytest.raises(NoAnswer, match=r"within 0\.2 s"):
            await call(receiver.url, timeout=SHORT)


async def test_the_deadline_stands_over_the_name_too() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(NoAnswer, match="did not answer"):
        await call("https://slow.test/", timeout=SHORT, resolve=never)


@pytest.mark.parametrize(
    "said", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", b"SSH-2.0-x\r\n"]
)
async def test_what_is_no_answer_is_said_to_be_none_without_repeating_the_url(said: bytes) -> None:
    async with Receiver(lambda _: said) as receiver:
        with pytest.raises(NoAnswer) as problem:
            await call(receiver.url + "?token=canary")
    assert "canary" not in str(problem.value)


async def test_a_closed_port_and_a_name_without_addresses_are_no_answer() -> None:
    async with Receiver() as receiver:
        url = receiver.url
    with pytest.raises(NoAnswer, match="could not be called"):
        await call(url)
    async with Names({}) as names:
        with pytest.raises(NoAnswer, match="cannot be resolved"):
            await call("https://none.test/", resolve=names.resolve)


async def test_a_host_has_so_many_calls_at_a_time_and_another_host_does_not_wait_for_it() -> None:
    async with Receiver(lambda _: HANG) as hanging, Receiver(host="127.0.0.2") as other:
        sender = Sender(LOCAL, per_host=2)
        held = [asyncio.ensure_future(sender.send("POST", read_url(hanging.url), headers={})) for _ in range(2)]
        await eventually(lambda: asyncio.sleep(0, len(hanging.received)), lambda count: count == 2)
        with pytest.raises(Crowded, match=r"127\.0\.0\.1 already has 2 requests in flight"):
            await sender.send("POST", read_url(hanging.url), headers={})
        assert (await sender.send("POST", read_url(other.url), headers={})).status == 200
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        hanging.how = answer()
        assert (await sender.send("POST", read_url(hanging.url), headers={})).status == 200


@pytest.fixture
def tls(tmp_path: Any) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate of its own making."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=hook.test"]
    made += ["-addext", "subjectAltName=DNS:hook.test"]
    try:
        subprocess.run([*made, "-keyout", key, "-out", cert], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(tls: ssl.SSLContext) -> None:
    async with Receiver(tls=tls) as receiver:
        with pytest.raises(NoAnswer, match=r"Certificate|SSL"):
            await call(receiver.url)
    assert receiver.received == []


async def test_a_certificate_must_be_for_the_name_and_not_for_the_address(
    tls: ssl.SSLContext, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    sender._tls.cache_clear()
    try:
        async with (
            Receiver(tls=tls) as receiver,
            Names({name: [["127.0.0.1"]] for name in ("hook.test", "other.test")}) as names,
        ):
            reply = await call(f"https://hook.test:{receiver.port}/", resolve=names.resolve)
            assert (reply.status, receiver.received[0].headers["host"]) == (200, f"hook.test:{receiver.port}")
            for host in ("other.test", "127.0.0.1"):
                with pytest.raises(NoAnswer, match="certificate is not valid for"):
                    await call(f"https://{host}:{receiver.port}/", resolve=names.resolve)
        assert len(receiver.received) == 1
    finally:
        sender._tls.cache_clear()


def test_demora_starts_without_the_library_that_sends() -> None:
    code = "import sys, demora, demora.cli, demora.worker; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
