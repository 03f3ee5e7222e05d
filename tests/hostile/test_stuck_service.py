"""The service and its worker, as processes, while the database takes no writes."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from demora.core.states import Status
from tests.end_to_end.jobs import JOURNAL
from tests.facts import eventually
from tests.hostile.holding import holding

pytestmark = pytest.mark.slow
SLACK = 3.0  # seconds that a busy machine may add to a bound
JOBS = "/api/v1/jobs"


class Service:
    """`demora serve` on a file of its own, with a worker in it whose leases are short."""

    def __init__(self, folder: Path) -> None:
        self.file, self._output = folder / "jobs.db", folder / "output"
        (folder / "journal").touch()
        environment = os.environ | {
            "DEMORA_DATABASE_URL": f"sqlite:///{self.file}",
            "DEMORA_LEASE": "3s",
            JOURNAL: str(folder / "journal"),
        }
        command = [sys.executable, "-m", "demora", "serve", "--port", "0", "--app", "tests.end_to_end.jobs:app"]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    async def address(self) -> str:
        found = await eventually(self._address, within=60)
        assert found is not None
        return found

    async def _address(self) -> str | None:
        found = re.search(r"service at (http://\S+),", self.said())
        return found and found[1]

    def said(self) -> str:
        return self._output.read_text()


@pytest.fixture
def service() -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="demora-") as folder:
        service = Service(Path(folder))
        try:
            yield service
        finally:
            service.process.kill()
            service.process.wait(60)


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=await service.address(), timeout=60) as http:
        yield http


async def ready(http: httpx.AsyncClient, code: int) -> httpx.Response:
    return await eventually(lambda: http.get("/health/ready"), lambda answer: answer.status_code == code)


async def running(http: httpx.AsyncClient) -> str:
    """The id of a job that runs and does not end."""
    id = str((await http.post(JOBS, json={"type": "hang", "payload": {"times": 99}})).json()["id"])
    await eventually(lambda: http.get(f"{JOBS}/{id}"), lambda answer: answer.json()["status"] == Status.PROCESSING.name)
    return id


@pytest.mark.timed  # the worker must renew within 3 s after the lock is free
async def test_a_process_that_was_stopped_in_a_transaction_costs_no_running_job(
    service: Service, http: httpx.AsyncClient
) -> None:
    await ready(http, 200)
    job = await running(http)
    with holding("lock", service.file) as holder:
        began = time.monotonic()
        refused = await http.post(JOBS, json={"type": "quick"})
        assert time.monotonic() - began < 5 + SLACK
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        unhealthy = await ready(http, 503)
        assert unhealthy.json()["reason"] == "the database is locked and accepts no writes"
        assert (await http.get(f"{JOBS}/{job}")).status_code == 200
        assert (await http.get("/health/live")).status_code == 200
        if sys.platform == "linux":
            assert f"process {holder.pid} (python" in service.said()
        holder.let_go()  # after more than 5 s: all leases of 3 s have run out
    await ready(http, 200)
    added = (await http.post(JOBS, json={"type": "quick"})).json()["id"]
    await eventually(lambda: http.get(f"{JOBS}/{added}"), lambda answer: answer.json()["status"] == Status.COMPLETED.name)
    await eventually(lambda: told(service, "renewing leases works again"))
    found = (await http.get(f"{JOBS}/{job}")).json()
    assert (found["status"], found["retryCount"], found["attempts"]) == (Status.PROCESSING.name, 0, [])
    assert "its lease was lost" not in service.said()


async def told(service: Service, words: str) -> bool:
    return words in service.said()


async def test_sigterm_ends_a_service_whose_writes_hang_within_its_grace(service: Service, http: httpx.AsyncClient) -> None:
    await ready(http, 200)
    with holding("lock", service.file):
        asked = asyncio.ensure_future(http.post(JOBS, json={"type": "quick"}))
        await ready(http, 503)
        began = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(service.process.wait, 60) == 0
        assert time.monotonic() - began < 8 + SLACK
        await asyncio.wait([asked])
        if asked.exception() is None:
            assert asked.result().status_code == 503


async def test_a_worker_that_is_stopped_meanwhile_ends_although_its_job_cannot_be_handed_back(
    service: Service, http: httpx.AsyncClient
) -> None:
    await running(http)
    with holding("lock", service.file):
        began = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(service.process.wait, 60)
        assert time.monotonic() - began < 8 + 3 + SLACK  # a job that does not end has the grace for itself
    assert "its outcome could not be recorded" in service.said()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets the limits of another process")
async def test_a_service_on_a_full_disk_is_not_ready_until_there_is_room(service: Service, http: httpx.AsyncClient) -> None:
    import resource

    await ready(http, 200)
    pid, hard = service.process.pid, resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)[1]
    full = os.stat(f"{service.file}-wal").st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (full, hard))
    unhealthy = await ready(http, 503)
    assert unhealthy.json()["reason"] == "the database does not answer or refuses writes"
    assert (await http.post(JOBS, json={"type": "quick"})).status_code == 503
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    await ready(http, 200)
    added = (await http.post(JOBS, json={"type": "quick"})).json()["id"]
    await eventually(lambda: http.get(f"{JOBS}/{added}"), lambda answer: answer.json()["status"] == Status.COMPLETED.name)
