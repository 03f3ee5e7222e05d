"""Remote workers that go away while the service answers them: nothing is leased to a worker that cannot know of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from demora import Demora, Status
from demora.api.operations import workers as protocol
from demora.client.workers.remote_workers import RemoteWorkers
from tests.facts import eventually
from tests.servers.nearby import serving
from tests.servers.proxy import before


@pytest.fixture
async def app() -> AsyncIterator[Demora]:
    async with Demora("sqlite://") as app:
        yield app


@pytest.fixture
async def url(app: Demora) -> AsyncIterator[str]:
    async with serving(app) as url:
        yield url


class Line:
    """A connection of a worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, body: object) -> None:
        text = json.dumps(body)
        head = f"POST /api/v1/workers{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())

    async def answer(self) -> dict[str, object]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        read: dict[str, object] = json.loads(await self.reader.readexactly(size))
        return read


async def connected(url: str) -> tuple[Line, str]:
    """A connection, and the id of a worker that is registered on it."""
    port = int(url.rstrip("/").rpartition(":")[2])
    line = Line(*await asyncio.open_connection("127.0.0.1", port))
    line.send("", {"name": "ann", "types": ["a"], "slots": 2})
    return line, str((await line.answer())["workerId"])


def asleep(workers: RemoteWorkers, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set when a claim has found nothing and waits."""
    noted, sleep = asyncio.Event(), workers._sleep

    async def sleeping(*args: object) -> None:
        noted.set()
        await sleep(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(workers, "_sleep", sleeping)
    return noted


async def test_a_worker_that_goes_away_while_it_waits_gets_no_job(
    app: Demora, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, worker = await connected(url)
    waits = asleep((await app.open()).remote_workers, monkeypatch)
    line.send(f"/{worker}/claim", {"wait": 30_000})
    await waits.wait()
    line.writer.transport.abort()
    job = await app.enqueue("a")
    await eventually(_noticed)
    back = await eventually(lambda: app.get(job.id), lambda job: job.status is Status.QUEUED)
    assert back.attempt == 0


async def test_jobs_are_handed_back_if_the_worker_went_away_during_the_claim(
    app: Demora, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, worker = await connected(url)
    job, store = await app.enqueue("a"), (await app.open()).store
    claiming, go_on, claim = asyncio.Event(), asyncio.Event(), store.claim

    async def slow(*args: object, **options: object) -> object:
        claimed = await claim(*args, **options)  # type: ignore[arg-type]
        claiming.set()
        await go_on.wait()
        return claimed

    monkeypatch.setattr(store, "claim", slow)
    line.send(f"/{worker}/claim", {})
    await claiming.wait()
    assert (await app.get(job.id)).status is Status.PROCESSING
    line.writer.transport.abort()
    await eventually(_noticed)
    go_on.set()
    back = await eventually(lambda: app.get(job.id), lambda job: job.status is Status.QUEUED)
    assert (back.attempt, back.token) == (0, 1)


async def test_jobs_are_handed_back_if_their_answer_cannot_be_written(
    app: Demora, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker reads nothing of a large answer, and goes away in the middle of it."""
    line, worker = await connected(url)
    jobs = await app.enqueue_many([("a", {"text": "x" * 1_000_000})] * 12)
    line.writer.transport.pause_reading()  # type: ignore[attr-defined]
    line.send(f"/{worker}/claim", {"limit": 100})
    await eventually(lambda: app.get(jobs[-1].id), lambda job: job.status is Status.PROCESSING)
    line.writer.transport.abort()
    for job in jobs:
        back = await eventually(lambda id=job.id: app.get(id), lambda job: job.status is Status.QUEUED)  # type: ignore[misc]
        assert back.attempt == 0


async def test_a_claim_whose_answer_is_lost_late_takes_no_job_from_its_repetition(
    app: Demora, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker gives up on a large answer and claims again, before the service notices that the first one is lost."""
    over, take_back = asyncio.Event(), protocol._take_back

    async def noted(*args: Any) -> None:
        await take_back(*args)
        over.set()

    monkeypatch.setattr(protocol, "_take_back", noted)
    line, worker = await connected(url)
    jobs = await app.enqueue_many([("a", {"text": "x" * 1_000_000})] * 12)
    line.writer.transport.pause_reading()  # type: ignore[attr-defined]
    line.send(f"/{worker}/claim", {"limit": 100, "claimId": "one"})
    await eventually(lambda: app.get(jobs[-1].id), lambda job: job.status is Status.PROCESSING)
    again, _ = await connected(url)
    again.send(f"/{worker}/claim", {"limit": 100, "claimId": "one"})
    handed: list[dict[str, object]] = (await again.answer())["jobs"]  # type: ignore[assignment]
    assert {one["id"] for one in handed} == {job.id for job in jobs}
    line.writer.transport.abort()
    await over.wait()
    again.send(f"/{worker}/renew", {"jobs": [{"id": one["id"], "token": one["token"]} for one in handed]})
    assert (await again.answer())["lost"] == []


async def test_a_service_that_stops_answers_the_claims_that_wait(app: Demora, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(app) as url:
        line, worker = await connected(url)
        waits = asleep((await app.open()).remote_workers, monkeypatch)
        line.send(f"/{worker}/claim", {"wait": 30_000})
        await waits.wait()
    assert await line.answer() == {"jobs": []}


async def test_an_answer_that_is_lost_burns_no_attempt(app: Demora, url: str) -> None:
    job = await app.enqueue("a")
    async with before(f"{url}/") as (proxy, through):
        line, worker = await connected(through)
        proxy.cut_at(1)
        line.send(f"/{worker}/claim", {"claimId": "one"})
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await line.answer()
        assert proxy.cuts == 1
        again, _ = await connected(through)
        again.send(f"/{worker}/claim", {"claimId": "one"})
        [handed] = (await again.answer())["jobs"]  # type: ignore[misc]
    assert (handed["id"], handed["attempt"], handed["token"]) == (job.id, 1, 1)


async def _noticed() -> bool:
    """Whether the service has noticed that the worker is gone."""
    return not any(task.get_coro().__name__ == "disconnected" for task in asyncio.all_tasks())  # type: ignore[union-attr]


@pytest.mark.parametrize("verb", ["heartbeat", "workers"])
async def test_a_claim_that_arrives_while_its_worker_is_removed_finds_no_worker(
    app: Demora, url: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The claim is held while it looks its worker up, or records that it is alive, until the worker has been removed."""
    line, worker = await connected(url)
    client = await app.open()
    workers, arrived, go_on, act = client.remote_workers, asyncio.Event(), asyncio.Event(), getattr(client.store, verb)

    async def slow(*args: object, **options: object) -> object:
        found = await act(*args, **options)
        if not arrived.is_set():
            arrived.set()
            await go_on.wait()
        return found

    known = await workers.worker(worker, None)
    for remembered in (workers._beats, workers._known)[: 1 if verb == "heartbeat" else 2]:
        remembered.clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(client.store, verb, slow)
    line.send(f"/{worker}/claim", {"wait": 30_000})
    await arrived.wait()
    await workers.remove(known)
    go_on.set()
    assert (await line.answer())["type"] == "urn:demora:problem:no-such-worker"
    assert worker not in {one.id for one in await client.workers()}
