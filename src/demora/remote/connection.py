"""Sends requests to a demora service, repeats those that are safe to repeat, and turns its problems into errors."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import DemoraError, StoreClosed, StoreError, StoreUnreachable
from .problems import error_of

if TYPE_CHECKING:
    import aiohttp

PATIENCE = 10.0  # seconds within which a failed request is sent again
ANSWER_WITHIN = 30.0  # seconds that the service has for an answer, besides the wait that a caller asks for
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries
MOST_PAUSE = 10.0  # seconds that a Retry-After is followed
_GATEWAY = frozenset({502, 503, 504})

T = TypeVar("T")
QueryPairs = Sequence[tuple[str, str]]


class ServiceAnswer(msgspec.Struct, frozen=True):
    """An answer that is no error. `repeated` says that an earlier try may have been carried out too."""

    status: int
    body: bytes
    repeated: bool = False

    def decode(self, shape: type[T]) -> T:
        """Return the body as a value of this shape."""
        try:
            return msgspec.json.decode(self.body, type=shape)
        except msgspec.DecodeError as problem:
            raise StoreError(f"the answer of the service cannot be read; is it a demora service? {problem}") from None


class _Failed(Exception):
    """A try that failed. `done` says that the request may have been carried out, `pause` how long the service asks to
    wait; None if it does not ask."""

    def __init__(self, error: DemoraError, *, done: bool, pause: float | None = None) -> None:
        super().__init__(error)
        self.error, self.done, self.pause = error, done, pause


class ServiceConnection:
    """A connection to one service, for one event loop. The service gets `api_key` with every request.

    A request that the service did not carry out is sent again for some seconds: when the service cannot be reached, is
    overloaded, or limits the rate. A request whose answer was lost is sent again only if the caller says that repeating it
    is safe.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url, self._key = url.rstrip("/"), api_key
        self._session: aiohttp.ClientSession | None = None
        self._end: AsyncGenerator[None] | None = None

    def sibling(self) -> "ServiceConnection":
        """Return another connection to the same service, for another thread."""
        return ServiceConnection(self.url, self._key)

    async def open(self) -> None:
        """Prepare to send requests. The first request connects."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "demora"} | ({} if self._key is None else {"Authorization": f"Bearer {self._key}"}),
            )
            self._session._retry_connection = False  # otherwise aiohttp silently sends some requests again
            self._end = _closing(self._session)
            await anext(self._end)

    async def close(self) -> None:
        end, self._session, self._end = self._end, None, None
        if end is not None:
            await end.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: QueryPairs = (),
        facts: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = True,
        wait: float = 0.0,
    ) -> ServiceAnswer:
        """Send a request and return the answer. Raises the error that the service answered.

        `facts` are attributes of that error that the service does not send back, such as the id of the job. `wait` is how
        many seconds the service is asked to wait. Without `repeat`, a request whose answer is lost raises `StoreError`.
        """
        now, pause, repeated = asyncio.get_running_loop().time, FIRST_PAUSE, False
        until = now() + PATIENCE
        while True:
            try:
                answer = await self._try(method, path, body, query, headers or {}, facts or {}, ANSWER_WITHIN + wait)
                return msgspec.structs.replace(answer, repeated=repeated)
            except _Failed as failed:
                repeated = repeated or failed.done
                wanted = pause * (0.5 + random.random() / 2) if failed.pause is None else min(failed.pause, MOST_PAUSE)
                if (failed.done and not repeat) or now() + wanted > until:
                    raise failed.error from failed.error.__cause__
            except DemoraError as error:
                error.repeated = repeated
                raise
            await asyncio.sleep(wanted)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def stream(self, path: str, query: QueryPairs, *, after: str | None, silence: float) -> AsyncIterator[bytes]:
        """Open a stream of server-sent events after a position, and return its lines. Raises the error that the service
        answered. The iterator ends with the stream, and raises `StoreError` if it breaks off or is silent for too long."""
        import aiohttp

        if self._session is None:
            raise StoreClosed
        headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": after})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_WITHIN, sock_read=silence)
        try:
            answer = await self._session.get(
                self.url + path, params=query, headers=headers, allow_redirects=False, timeout=timeout
            )
            if answer.status != 200:
                async with answer:
                    raise error_of(answer.status, await answer.read(), {})
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as problem:
            raise StoreUnreachable(f"the service {self.url} cannot be reached: {_said(problem)}", may_pass=True) from problem
        except ValueError:
            raise _unusable(self.url) from None
        return self._lines(answer)

    async def _lines(self, answer: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
        import aiohttp

        try:
            async with answer:
                async for line in answer.content:
                    yield line.rstrip(b"\r\n")
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as problem:
            raise StoreError(f"the stream of the service {self.url} broke off: {_said(problem)}") from problem

    async def _try(
        self,
        method: str,
        path: str,
        body: bytes | None,
        query: QueryPairs,
        headers: Mapping[str, str],
        facts: Mapping[str, Any],
        limit: float,
    ) -> ServiceAnswer:
        import aiohttp

        if self._session is None:
            raise StoreClosed
        content = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method,
                self.url + path,
                params=query,
                data=body,
                headers={**headers, **content},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=limit),
            ) as answer:
                read, status = await answer.read(), answer.status
                after = answer.headers.get("Retry-After", "")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            away = StoreUnreachable(f"the service {self.url} cannot be reached: {_said(problem)}", may_pass=True)
            away.__cause__ = problem
            raise _Failed(away, done=False) from problem
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as problem:
            lost = StoreError(
                f"the service {self.url} did not answer ({_said(problem)}), and the request may or may not have been "
                "carried out"
            )
            lost.__cause__ = problem
            raise _Failed(lost, done=True) from problem
        except ValueError:
            raise _unusable(self.url) from None
        if status < 300:
            return ServiceAnswer(status, read)
        error = error_of(status, read, facts)
        if after.isdecimal() and status in (429, 503):  # then the service has done nothing
            raise _Failed(error, done=False, pause=float(after))
        if status in _GATEWAY:
            raise _Failed(error, done=True)
        raise error


def _unusable(url: str) -> StoreUnreachable:
    """The error for a request that aiohttp refuses to send. Its own text may repeat the key."""
    words = f"the service {url} cannot be called: its host name is not valid, or the API key has a line break in it"
    return StoreUnreachable(words, may_pass=False)


def _said(problem: BaseException) -> str:
    """Describe an error without the URL, which may have a query."""
    inner = getattr(problem, "os_error", None) or problem
    return getattr(inner, "strerror", None) or type(inner).__name__


async def _closing(session: "aiohttp.ClientSession") -> AsyncGenerator[None]:
    """Close a session when the generator is closed. asyncio closes generators before it ends a loop, so a program that uses
    an application without a block leaves no open session behind."""
    try:
        yield
    finally:
        await session.close()
