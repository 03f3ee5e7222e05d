"""A listener to the events of a service, by hand."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp

EVENTS = "/api/v1/events"
SOON = 20.0  # seconds within which an event must come
SAMPLED = {"job.started", "job.progress"}


class Listener:
    """A listener by hand: it can hang up, and it can stop reading."""

    def __init__(
        self, api: ASGIApp, query: str, headers: Mapping[str, str], method: str = "GET", path: str = EVENTS
    ) -> None:
        self.gone, self.reads, self.came = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.reads.set()
        self.status, self.headers = 0, dict[str, str]()
        self.text, self.ended = b"", False
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "http_version": "1.1",
            "headers": [(name.lower().encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()],
        }
        self.task = asyncio.ensure_future(api(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.text += message["body"]
            self.ended = not message.get("more_body", False)
        self.came.set()

    async def until(self, wanted: bytes) -> None:
        async with asyncio.timeout(SOON):
            while wanted not in self.text:
                self.came.clear()
                await self.came.wait()

    async def hear(self, *kinds: str) -> list[dict[str, Any]]:
        """The next events, which must be of these kinds; those that only a sample shows are skipped unless asked for."""
        heard: list[dict[str, Any]] = []
        while len(heard) < len(kinds):
            await self.until(b"data: ")
            at = self.text.index(b"data: ")
            await self.until(b"\n\n")
            block, self.text = self.text[:at].rpartition(b"\n\n")[2], self.text[at:]
            data, _, self.text = self.text.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in (block + data).decode().splitlines() if not line.startswith(":"))
            event = {"id": fields["id"], "data": json.loads(fields["data"])}
            assert event["data"]["event"] == fields["event"]
            if fields["event"] in kinds or fields["event"] not in SAMPLED:
                heard.append(event)
        assert [event["data"]["event"] for event in heard] == list(kinds)
        return heard

    async def hang_up(self) -> None:
        self.gone.set()
        async with asyncio.timeout(SOON):
            await self.task


@asynccontextmanager
async def listening(api: ASGIApp, query: str = "", path: str = EVENTS, **headers: str) -> AsyncIterator[Listener]:
    listener = Listener(api, query, {name.replace("_", "-"): value for name, value in headers.items()}, path=path)
    await listener.until(b"\n\n")
    try:
        yield listener
    finally:
        await listener.hang_up()
