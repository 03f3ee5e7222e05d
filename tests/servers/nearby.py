"""A service in the process of a test, on a real socket, on the store of the test's choice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from demora import Demora
from demora.api import make_api
from demora.api.http_server.connection import Limits
from demora.api.http_server.server import Server
from demora.runtime.listening import address_of, listen
from demora.settings import Settings
from demora.system.addresses import read_address


@asynccontextmanager
async def serving(app: Demora, **settings: Any) -> AsyncIterator[str]:
    """Serve an application for the duration of the block; yields the URL of the service."""
    chosen, started = Settings(**settings), asyncio.Event()
    with listen(read_address("127.0.0.1"), 0) as listener:
        api = make_api(app, chosen)
        server = Server(api, grace=chosen.grace, limits=Limits(), announce=started.set)
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        await started.wait()
        try:
            yield address_of(listener)
        finally:
            api.stop()
            server.stop()
            await running
