"""The sessions of browsers, read from the database at most once a second, all that are in use in one call."""

import asyncio
import math
import time
from collections.abc import Callable

import msgspec

from ..api.access import FRESH
from ..app import Demora
from ..client.api_keys import FoundSessions
from ..core.access import ApiKey

IN_USE = 20.0  # seconds after its last request for which a session is read together with others
MOST = 1000  # sessions that are read in one call


class VisitorSession(msgspec.Struct, frozen=True):
    """The key of a session, None if there is no such session or it has ended, and whether any key exists."""

    key: ApiKey | None
    any: bool


class Sessions:
    """Finds sessions. One that ends, as when its key is revoked, is found for at most a second more."""

    def __init__(self, app: Demora, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._app, self._timer = app, timer
        self._asked: dict[str, float] = {}  # when a session that exists was last asked for, the latest at the end
        self._found, self._read_at = FoundSessions({}, any=True), -math.inf
        self._reading: asyncio.Task[FoundSessions] | None = None

    async def find(self, token: str) -> VisitorSession:
        """Return the key of the session with this token."""
        found = await self._fresh(token)
        key = found.keys.get(token)
        if key is not None:
            self._asked.pop(token, None)
            self._asked[token] = self._timer()
        return VisitorSession(key, found.any)

    def forget(self, token: str) -> None:
        """Read the sessions anew, because this one was opened or ended here."""
        self._asked.pop(token, None)
        self._read_at = -math.inf

    async def _fresh(self, token: str) -> FoundSessions:
        """Return what was read within the last second, if that says how things are with this session; else read it."""
        while self._timer() - self._read_at >= FRESH or not (token in self._found.keys or not self._found.any):
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._read(token))
                return await asyncio.shield(self._reading)
            await asyncio.wait([self._reading])  # it may read this session too
        return self._found

    async def _read(self, token: str) -> FoundSessions:
        at = self._timer()  # before the read: a slow read must shorten the time in the cache, not extend it
        used = [one for one, asked in self._asked.items() if at - asked < IN_USE][-MOST:]
        found = await (await self._app.open()).keys.find_sessions({token, *used})
        self._found, self._read_at = found, at
        self._asked = {one: asked for one, asked in self._asked.items() if one in found.keys}
        return found
