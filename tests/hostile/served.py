"""A service on a real socket of this machine, in the loop of the test."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from demora import Demora
from demora.runtime.service import serve
from demora.settings import Settings

DEADLINE = 30  # seconds


@asynccontextmanager
async def served(app: Demora, **settings: Any) -> AsyncIterator[str]:
    """The address of a service without a worker, which is stopped by the signal that stops it in production."""
    loop = asyncio.get_running_loop()
    address: asyncio.Future[str] = loop.create_future()
    service = asyncio.ensure_future(
        serve(app, Settings(port=0, **settings), with_worker=False, started=lambda at, _: address.set_result(at))
    )
    async with asyncio.timeout(DEADLINE):
        await asyncio.wait({service, address}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield address.result()
        finally:
            if not service.done():
                signal.raise_signal(signal.SIGTERM)
            await service
