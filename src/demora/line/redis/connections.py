"""Connections to Redis or Valkey: to one server or to the nodes of a cluster, and the requirements on a server.

Every wait has a deadline, and no command is retried. Each new connection checks the server's run id: a server that was
restarted in between has lost what it held, however quickly it came back.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import redis.asyncio as driver
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    NoScriptError,
    RedisError,
    ResponseError,
)

from ...errors import BadSetting
from ...system import forks
from ..address import REDIS_FORMS, redis_dsn
from ..port import LineAway, LineLost

TIMEOUT = 1.0  # seconds to wait for a connection or an answer
IDLE = 2  # connections of a node that are kept outside of the driver's pool
SILENCE = 5.0  # seconds without a message after which a subscription is pinged
ALIVE = 1.0  # seconds after its last answer in which a connection is used without a check
OLDEST = (7, 0)
POLICY = "noeviction"
_REFUSED = (AuthenticationError, AuthorizationError, NoPermissionError)
# How the driver reports that a server cannot be reached, or holds bytes that demora never writes. If another task closes a
# connection that is being opened or written to, the driver raises AttributeError, and uvloop RuntimeError.
BROKEN = (RedisError, OSError, TimeoutError, RuntimeError, AttributeError, UnicodeDecodeError)


class Script:
    """A Lua file, called by its SHA-1 digest."""

    def __init__(self, name: str) -> None:
        self.text = (files(__package__) / "scripts" / f"{name}.lua").read_text()
        self.sha = hashlib.sha1(self.text.encode()).hexdigest()

    def call(self, keys: Sequence[str], *arguments: Any) -> "Call":
        return Call(keys[0], ("EVALSHA", self.sha, len(keys), *keys, *arguments), self)


class Call:
    """A command for the node that holds its key."""

    __slots__ = ("key", "script", "words")

    def __init__(self, key: str, words: tuple[Any, ...], script: Script | None = None) -> None:
        self.key, self.words, self.script = key, words, script

    def in_full(self) -> tuple[Any, ...]:
        """Return the command with the whole script, for a server that does not have it in its cache; it then does."""
        return self.words if self.script is None else ("EVAL", self.script.text, *self.words[2:])


def command(word: str, key: str, *arguments: Any) -> Call:
    return Call(key, (word, key, *arguments))


class Nodes:
    """The servers of a line: one server, or the nodes of a cluster that hold slots."""

    def __init__(self, url: str) -> None:
        self._url = driver_url(url)
        self._nodes: dict[str, _Node] = {}
        self._slots: list[tuple[int, int, _Node]] = []
        self._first: _Node | None = None
        self._others: list[tuple[str, int]] = []  # the last known addresses of the cluster's masters and replicas

    async def connect(self) -> str:
        """Connect, and return the run ids of all servers. If the server of the URL is away, connect by another node of the
        cluster that it belonged to."""
        try:
            return await self._connect(driver.Redis.from_url(self._url, **_OPTIONS))
        except LineAway as away:
            for host, port in self._others:
                with contextlib.suppress(LineAway):
                    return await self._connect(self._client_at(host, port))
            raise away

    async def _connect(self, client: Any) -> str:
        await self.close()
        first = self._first = _Node("", client)
        self._nodes = {"": first}
        first.run = await self._examine(first)
        if first.facts.get("cluster_enabled") == "1":
            await self._join_cluster(first)
        return " ".join(sorted(node.run for node in set(self._nodes.values())))

    async def close(self) -> None:
        nodes, self._nodes, self._slots, self._first = {*self._nodes.values(), self._first}, {}, [], None
        for node in nodes:
            if node is not None:
                await node.close()

    async def ask(self, *calls: Call) -> list[Any]:
        """Send the commands, those for one node together, and return their answers in order."""
        by_node: dict[_Node, list[int]] = {}
        for n, call in enumerate(calls):
            by_node.setdefault(self._of(call.key), []).append(n)
        try:
            if len(by_node) == 1:
                [node] = by_node
                return await node.ask(calls)
            parts = await asyncio.gather(*(node.ask([calls[n] for n in numbers]) for node, numbers in by_node.items()))
        except BROKEN as problem:
            raise translate(problem) from problem
        answers: list[Any] = [None] * len(calls)
        for numbers, part in zip(by_node.values(), parts, strict=True):
            for n, answer in zip(numbers, part, strict=True):
                answers[n] = answer
        return answers

    async def subscribe(self, channel: str) -> Any:
        """Subscribe to a channel on a connection of its own. A cluster forwards what is published on any of its nodes."""
        if self._first is None:
            raise LineAway("the line is not connected")
        subscription = self._first.client.pubsub(ignore_subscribe_messages=False)
        try:
            async with asyncio.timeout(TIMEOUT):
                await subscription.subscribe(channel)
                while (await subscription.get_message(timeout=TIMEOUT)) is None:
                    pass
        except BaseException as problem:
            await unsubscribe(subscription)
            if isinstance(problem, BROKEN):
                raise translate(problem) from problem
            raise
        return subscription

    def _of(self, key: str) -> "_Node":
        if self._first is None:
            raise LineAway("the line is not connected")
        if not self._slots:
            return self._first
        slot = key_slot(key.encode())
        for start, end, node in self._slots:
            if start <= slot <= end:
                return node
        raise LineAway(f"no node of the cluster has slot {slot}")

    async def _join_cluster(self, first: "_Node") -> None:
        try:
            ranges = await first.client.execute_command("CLUSTER SLOTS")
        except BROKEN as problem:
            raise translate(problem) from problem
        self._others = list(dict.fromkeys((host, port) for _, _, *servers in ranges for host, port, *_ in servers))
        for start, end, (host, port, *_), *_ in ranges:
            name = f"{host}:{port}"
            if name not in self._nodes:
                node = self._nodes[name] = _Node(name, self._client_at(host, port))
                node.run = await self._examine(node)
            self._slots.append((start, end, self._nodes[name]))
        del self._nodes[""]

    def _client_at(self, host: str, port: int) -> Any:
        """Return a client of another node, with the user, password and TLS options of the URL."""
        pool = driver.ConnectionPool.from_url(self._url)
        known = pool.connection_kwargs
        kept = {name: value for name, value in known.items() if name in _SHARED or name.startswith("ssl_")}
        secure = issubclass(pool.connection_class, driver.SSLConnection)
        return driver.Redis(host=host or known.get("host", "127.0.0.1"), port=port, ssl=secure, **kept, **_OPTIONS)

    async def _examine(self, node: "_Node") -> str:
        """Return the run id of a node. `BadSetting` if it can never be used."""
        try:
            for section in ("server", "memory", "cluster"):
                node.facts |= {name: str(value) for name, value in (await node.client.info(section)).items()}
        except _REFUSED as problem:
            raise BadSetting(
                "redis_url", f"the server refused us ({problem}): check user and password in the URL"
            ) from problem
        except BROKEN as problem:
            raise translate(problem) from problem
        version = node.facts.get("redis_version", "0")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise BadSetting("redis_url", f"the server is Redis {version}; demora needs Redis 7.0 or later, or Valkey")
        policy = node.facts.get("maxmemory_policy", POLICY)
        if policy != POLICY:
            raise BadSetting(
                "redis_url",
                f"the server may evict what it holds (maxmemory-policy {policy}); set it to {POLICY}: "
                f"CONFIG SET maxmemory-policy {POLICY}, and in its configuration file",
            )
        return node.facts["run_id"]


class _Node:
    """One server in one run. A connection that reaches another run of it is refused.

    Some connections are kept between calls: the driver's pool takes longer to check one than most answers take.
    """

    def __init__(self, name: str, client: Any) -> None:
        self.name, self.client, self.run = name, client, ""
        self.facts: dict[str, str] = {}
        self._idle: list[tuple[Any, float]] = []  # connections, with the time of their last answer
        client.connection_pool.connection_kwargs["redis_connect_func"] = self._check  # must precede the first connection

    async def ask(self, calls: Sequence[Call]) -> list[Any]:
        answers = await self._together([call.words for call in calls])
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            for n, answer in zip(unknown, await self._together([calls[n].in_full() for n in unknown]), strict=True):
                answers[n] = answer
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def close(self) -> None:
        self._idle.clear()
        try:
            async with asyncio.timeout(TIMEOUT):
                await self.client.aclose()
        except BROKEN:
            pass  # the server has closed it already

    async def _together(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        connection = await self._take()
        try:
            async with asyncio.timeout(TIMEOUT):
                await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
                answers = [await _answer(connection) for _ in commands]
        except BaseException:
            await connection.disconnect(nowait=True)  # the answer may still arrive
            await self._give_back(connection)
            raise
        if len(self._idle) < IDLE:
            self._idle.append((connection, time.monotonic()))
        else:
            await self._give_back(connection)
        return answers

    async def _take(self) -> Any:
        while self._idle:
            connection, answered = self._idle.pop()
            if time.monotonic() - answered < ALIVE:
                return connection
            await self._give_back(connection)
        connection = await self.client.connection_pool.get_connection()
        connection.socket_timeout = None  # all answers together have one deadline
        return connection

    async def _give_back(self, connection: Any) -> None:
        connection.socket_timeout = TIMEOUT
        await self.client.connection_pool.release(connection)

    async def _check(self, connection: AbstractConnection) -> None:
        forks.release_in_child(connection, _descriptors)
        try:
            await connection.on_connect()
            if self.run and f"run_id:{self.run}" not in await _asked(connection, "INFO", "server"):
                raise _OtherRun("the server was restarted, or is another one")
        except BaseException:
            await connection.disconnect(nowait=True)  # the driver would leave it open
            raise


def _descriptors(connection: Any) -> list[int]:
    return [] if connection._writer is None else forks.descriptors_of(connection._writer.transport)


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as refused:
        return refused


async def _asked(connection: AbstractConnection, *words: str) -> str:
    await connection.send_command(*words)
    answer = await connection.read_response()
    return answer if isinstance(answer, str) else bytes(answer).decode()


class _OtherRun(RedisError):
    """A connection reached another run of the server than the one that was filled."""


async def next_message(subscription: Any) -> str:
    """Return the next message that is published. A silent subscription is pinged; `TimeoutError` if it does not answer."""
    pinged = False
    while True:
        received = await subscription.get_message(timeout=TIMEOUT if pinged else SILENCE)
        if received is not None and received["type"] == "message":
            return str(received["data"])
        if received is None and pinged:
            raise TimeoutError
        if received is None:
            await subscription.ping()
        pinged = received is None


async def unsubscribe(subscription: Any) -> None:
    """End a subscription; its connection may be broken already."""
    with contextlib.suppress(*BROKEN):
        await subscription.aclose()


def driver_url(url: str) -> str:
    """Return the URL in the form that the driver takes. `BadSetting` if it is not the address of a server."""
    known = redis_dsn(url).url()
    try:
        driver.Redis.from_url(known)
    except (ValueError, TypeError):  # its text may repeat a part of the URL
        raise BadSetting("redis_url", f"the driver cannot read one of its parameters; {REDIS_FORMS}") from None
    return known


def translate(problem: Exception) -> LineAway:
    """Return the line's own error for one of the driver. It does not repeat the command, which contains ids."""
    if isinstance(problem, _OtherRun):
        return LineLost(str(problem))
    if isinstance(problem, TimeoutError) and not str(problem):
        return LineAway(f"no answer within {TIMEOUT:.0f} s")
    if isinstance(problem, (RuntimeError, AttributeError)):
        return LineAway("the connection was closed")
    if isinstance(problem, UnicodeDecodeError):
        return LineLost("another program has written to it")
    words = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    if isinstance(problem, ResponseError) and words.startswith("LOST"):
        return LineLost(words.removeprefix("LOST "))
    return LineAway(words)


_SHARED = ("username", "password", "socket_keepalive")
_OPTIONS: dict[str, Any] = {
    "decode_responses": True,
    "socket_timeout": TIMEOUT,
    "socket_connect_timeout": TIMEOUT,
    "retry": Retry(NoBackoff(), 0),
    "health_check_interval": 0,
    "client_name": "demora",
}
with contextlib.suppress(ImportError):  # older drivers know their version; newer ones look it up on disk for each connection
    from redis.driver_info import DriverInfo

    _OPTIONS["driver_info"] = DriverInfo()
