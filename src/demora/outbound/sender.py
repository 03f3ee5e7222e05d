"""The guarded sender: every request that demora sends to another server for a caller goes through it.

It resolves a name once and checks every address of it against the policy, and checks the dialled address again when the
socket is created. It follows no redirects, reads no proxy variables and decompresses nothing. One deadline covers all.
"""

import asyncio
import functools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.outbound.targets import Address, Policy, Target, address_in, objection
from ..errors import DemoraError
from .lookups import lookups
from .turns import Crowded, HostTurns

if TYPE_CHECKING:
    import aiohttp

MOST_READ = 64 * 1024  # bytes of an answer
MOST_ADDRESSES = 32  # of one name that are checked
MOST_DIALLED = 4  # of these, in one call

__all__ = ("MOST_READ", "Crowded", "Forbidden", "NoAnswer", "Sender", "ServerReply")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Forbidden(DemoraError):
    """The policy forbids the target. A retry is useless unless a setting or a name changes."""


class NoAnswer(DemoraError):
    """The server cannot be reached or did not answer in time."""


class ServerReply(msgspec.Struct, frozen=True):
    """The response of a server: header names in lower case, and at most 64 KiB of the raw body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool

    def text(self, most: int = MOST_READ) -> str:
        """Return the start of the body as text; invalid bytes are replaced."""
        return self.body[:most].decode("utf-8", "replace").replace("\0", "�")


class Sender:
    """Sends requests, at most `per_host` at a time to one host. `resolve` returns the addresses of a name."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        timeout: timedelta = timedelta(seconds=15),
        per_host: int = 4,
        resolve: Resolve | None = None,
        turns: HostTurns | None = None,
    ) -> None:
        self.policy, self.turns = policy or Policy(), turns or HostTurns(per_host)
        self._timeout, self._resolve = timeout.total_seconds(), resolve or lookups().resolve

    def leave_room(self, slots: int) -> None:
        """Make sure that no host takes all slots of a worker."""
        self.turns.leave_room(slots)

    async def send(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> ServerReply:
        """Send one request and return the reply, whatever its status. Raises `Forbidden`, `NoAnswer` or `Crowded`."""
        async with self.turns.at(target.host):
            try:
                async with asyncio.timeout(self._timeout):
                    guard = _Guard(target, self.policy, await self._addresses(target))
                    return await _exchange(guard, method, headers, body)
            except TimeoutError:
                raise NoAnswer(f"{target.origin} did not answer within {self._timeout:g} s") from None

    async def _addresses(self, target: Target) -> list[Address]:
        """Return the addresses to dial. Raises `Forbidden` if the policy forbids any of them, because any may be chosen."""
        if target.address is not None:
            found: list[Address] = [target.address]
        else:
            try:
                texts = await self._resolve(target.host, target.port)
            except (OSError, UnicodeError) as problem:
                raise NoAnswer(f"the name {target.host} cannot be resolved: {_said(problem)}") from None
            found = [address for text in texts[:MOST_ADDRESSES] if (address := address_in(text)) is not None]
        if not found:
            raise NoAnswer(f"the name {target.host} has no address")
        for address in found:
            refusal = objection(target, address, self.policy)
            if refusal is not None:
                raise Forbidden(refusal)
        return _chosen(found)


def _chosen(addresses: Sequence[Address]) -> list[Address]:
    """Return the first few addresses, of both families if there are two, because one may not work from here."""
    first = [address for address in addresses if address.version == addresses[0].version]
    others = [address for address in addresses if address.version != addresses[0].version]
    return [address for address in chain(*zip_longest(first, others)) if address is not None][:MOST_DIALLED]


class _Guard:
    """Restricts a request to the checked addresses, and checks each address again when it is dialled."""

    def __init__(self, target: Target, policy: Policy, addresses: Sequence[Address]) -> None:
        self.target, self._policy, self._addresses = target, policy, addresses
        self.refusal: str | None = None

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[Any]:
        return [
            {
                "hostname": host,
                "host": str(address),
                "port": self.target.port,
                "family": socket.AF_INET if address.version == 4 else socket.AF_INET6,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in self._addresses
        ]

    async def close(self) -> None:
        pass

    def socket(self, info: Any) -> socket.socket:
        """Create the socket for an address, after a check. aiohttp calls this for literal addresses too."""
        family, kind, protocol, _, (host, port, *_) = info
        address = address_in(host)
        if address is None or address not in self._addresses or port != self.target.port:
            self.refusal = f"refused to call {self.target.host} at an address that was not checked"
        else:
            self.refusal = objection(self.target, address, self._policy)
        if self.refusal is not None:
            raise OSError(self.refusal)
        return socket.socket(family, kind, protocol)


async def _exchange(guard: _Guard, method: str, headers: Mapping[str, str], body: bytes | None) -> ServerReply:
    import aiohttp
    import yarl

    try:
        async with (
            _session(guard) as session,
            session.request(
                method,
                yarl.URL(str(guard.target), encoded=True),
                headers={"Accept-Encoding": "identity", **headers},
                data=body,
                allow_redirects=False,
            ) as answer,
        ):
            read, cut = await _read(answer.content)
            if cut:
                answer.close()
            named = {name.lower(): value for name, value in reversed(list(answer.headers.items()))}
            return ServerReply(answer.status, named, read, cut)
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        if guard.refusal is not None:
            raise Forbidden(guard.refusal) from None
        raise NoAnswer(f"{guard.target.origin} could not be called: {_said(problem)}") from None


def _session(guard: _Guard) -> "aiohttp.ClientSession":
    """Return a session for one request: no connection outlives the check of its address."""
    import aiohttp

    connector = aiohttp.TCPConnector(
        resolver=guard,  # type: ignore[arg-type]  # has its two methods
        socket_factory=guard.socket,
        use_dns_cache=False,
        interleave=MOST_DIALLED,  # after a failed round aiohttp drops this many of each family, and dials the rest again
        force_close=True,
        limit=1,
        ssl=_tls(),
    )
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_read=None, sock_connect=None),
        headers={"User-Agent": "demora"},
        skip_auto_headers=("Content-Type",),
        read_bufsize=MOST_READ,
    )


async def _read(content: Any) -> tuple[bytes, bool]:
    """Read the body up to the limit. Returns it and whether there was more."""
    read = bytearray()
    async for part in _parts(content):
        read += part
        if len(read) > MOST_READ:
            return bytes(read[:MOST_READ]), True
    return bytes(read), False


async def _parts(content: Any) -> AsyncIterator[bytes]:
    while part := await content.read(MOST_READ + 1):
        yield part


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _said(problem: BaseException) -> str:
    """Describe an error without its URL or address: the caller must not learn which internal address a name has."""
    inner = getattr(problem, "os_error", problem)
    name = type(inner).__name__
    for kind, words in _WORDS:
        if isinstance(inner, kind):
            return words
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"{name}: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError):
        return f"{name}: {inner.reason}" if inner.reason else name
    if isinstance(inner, socket.gaierror) and inner.strerror:
        return f"{name}: {inner.strerror}"
    if isinstance(inner, OSError) and inner.errno is not None and inner.errno > 0:
        return f"{name}: {os.strerror(inner.errno)}"
    return name


_WORDS = (
    (ConnectionRefusedError, "the connection was refused"),
    (TimeoutError, "the connection timed out"),
    ((ConnectionResetError, BrokenPipeError), "the connection was closed before an answer came"),
)
