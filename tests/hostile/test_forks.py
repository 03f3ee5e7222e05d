"""A handler that forks the service: it goes on, and its child keeps nothing of it in use."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.facts import eventually
from tests.hostile.commands import DEADLINE, Process, running
from tests.setups import postgres_url, redis_url

APP = ("--app", "tests.hostile.forking:app")
pytestmark = pytest.mark.slow


def served(service: Process) -> str:
    return service.until(" at http://").split(" at http://")[1].split(",")[0]


def ran(address: str, type: str) -> Any:
    """What a job of this type returned, over HTTP alone."""
    with httpx.Client(base_url=f"http://{address}/api/v1", timeout=DEADLINE) as http:
        id = http.post("/jobs", json={"type": type, "maxRetries": 0}).json()["id"]
        job = http.get(f"/jobs/{id}/wait", params={"timeout": 30000}).json()
    assert job["status"] == "COMPLETED", job
    return job["result"]


def gone(pid: int) -> Callable[[], Any]:
    """Whether a process has ended, whether or not its parent has reaped it."""

    async def look() -> bool:
        return await asyncio.to_thread(_is_gone, pid)

    return look


def _is_gone(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def sockets(pid: int) -> set[str]:
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return {link for link in found if link.startswith("socket:")}


def listeners(address: str) -> set[str]:
    """The sockets that listen on the port of an address."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f":{int(address.rpartition(':')[2]):04X}"
    found = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(port)}
    assert found
    return found


def settings(folder: Path, setup: str) -> dict[str, str]:
    given = {"PYTHONWARNINGS": "default"}
    if setup == "sqlite":
        return given
    own = {"DEMORA_DATABASE_URL": postgres_url(), "DEMORA_DATABASE_SCHEMA": "hostile_forks", "DEMORA_REDIS_URL": redis_url()}
    return given | own


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the descriptors of another process")
@pytest.mark.parametrize("setup", ["sqlite", "lined-postgres"])
@pytest.mark.parametrize("type", ["fork.raw", "fork.process"])
def test_a_service_whose_handler_forked_goes_on_and_can_be_started_again_on_its_port(
    tmp_path: Path, type: str, setup: str
) -> None:
    given, child = settings(tmp_path, setup), 0
    try:
        with running(tmp_path, "serve", "--port", "0", *APP, **given) as service:
            address = served(service)
            child = ran(address, type)
            assert ran(address, "demo.echo") == {}
            theirs, ours, listening = sockets(child), sockets(service.process.pid), listeners(address)
            said = service.end()
            assert service.process.returncode == 0
        assert said.count("this process was forked by job") == 1
        assert not theirs & listening
        # Two loops have a pair each, which the child leaves alone; a socket may be in the making at the moment of the fork.
        assert len(theirs & ours) <= 6, (theirs, ours)
        with running(tmp_path, "serve", "--port", address.rpartition(":")[2], *APP, **given) as again:
            assert served(again) == address
            assert ran(address, "demo.echo") == {}
            os.kill(child, 0)  # it lives
            os.kill(child, signal.SIGTERM)  # which ends it, and not the service
            asyncio.run(eventually(gone(child)))
            assert ran(address, "demo.echo") == {}
    finally:
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at the state of another process")
@pytest.mark.parametrize("type", ["fork.returns", "fork.async"])
def test_a_child_that_returns_from_the_handler_ends_and_runs_no_jobs(tmp_path: Path, type: str) -> None:
    with running(tmp_path, "serve", "--port", "0", *APP, **settings(tmp_path, "sqlite")) as service:
        address = served(service)
        children = [ran(address, type) for _ in range(3)]
        assert 0 not in children
        for child in children:
            asyncio.run(eventually(gone(child)))
        assert ran(address, "demo.echo") == {}
        service.end()
        assert service.process.returncode == 0
