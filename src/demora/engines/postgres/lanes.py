"""Connections apart from those of all other calls: for searches, and for quick looks that must never wait for one."""

import asyncio

import msgspec

from ...errors import StoreClosed
from ..options import PostgresOptions
from .connections import Clock, Pool


class Lane:
    """A few connections of one kind of reads. They are made when they are first needed."""

    def __init__(self, url: str, options: PostgresOptions, clock: Clock, *, connections: int) -> None:
        self._pool = Pool(url, msgspec.structs.replace(options, connections=connections), clock)
        self._opening: asyncio.Task[None] | None = None
        self._closed = False

    async def opened(self) -> Pool:
        """The pool. If it cannot be opened, the next call tries anew."""
        if self._closed:
            raise StoreClosed
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._pool.open())
        opening = self._opening
        if not opening.done():
            await asyncio.wait([opening])
        try:
            opening.result()
        except BaseException:
            if self._opening is opening:
                self._opening = None
                await self._pool.close()
            raise
        return self._pool

    async def close(self) -> None:
        """Disconnect, and end what is being read."""
        self._closed = True
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait([opening])
            await self._pool.close(at_once=True)
