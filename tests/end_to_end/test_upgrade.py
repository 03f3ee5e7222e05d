"""An upgrade without a pause: processes of an earlier demora go on while a newer one migrates the schema under them."""

import asyncio
import io
import json
import os
import re
import secrets
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import demora
from demora import Demora, Status
from demora.engines.options import PostgresOptions
from demora.engines.postgres import connections
from demora.errors import SchemaTooNew
from demora.proof import check
from tests.end_to_end.processes import World
from tests.facts import eventually
from tests.setups import postgres_url

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STEPS = "src/demora/engines/postgres/schema"
NEWER = sorted(path.name for path in (ROOT / STEPS).iterdir())[1:]  # what was added to the first schema
NOW = str(Path(demora.__file__).parents[1])
SOME = 20

PRODUCE = """
import asyncio, sys
from demora import Demora
async def main():
    told = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    async with Demora() as app:
        while not told.done():
            print((await app.enqueue("quick")).id, flush=True)
            await asyncio.sleep(0.01)
asyncio.run(main())
"""


@pytest.fixture(params=NEWER)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The source as it was before a step of the schema was added, or before the step came to the main line: whichever had
    the earlier steps as they are today. A commit that is still at work on a step is no version."""
    found = ["log", "--diff-filter=A", "--format=%H", "-1"]
    added = [git(*found, *how, "--", f"{STEPS}/{request.param}").decode().strip() for how in ((), ("--first-parent", "-m"))]
    before = [f"{commit}^" for commit in added if commit]
    if not before:
        pytest.skip(f"{request.param} is not in the history yet")
    [version, *_] = [one for one in before if has_steps_of_today(one, until=request.param)]
    with tarfile.open(fileobj=io.BytesIO(git("archive", version, "src"))) as archive:
        archive.extractall(tmp_path / "earlier", filter="data")
    return tmp_path / "earlier" / "src"


def has_steps_of_today(commit: str, *, until: str) -> bool:
    names = [Path(name).name for name in git("ls-tree", "--name-only", commit, f"{STEPS}/").decode().split()]
    earlier = [name for name in names if name < until]
    return all(
        sql(git("show", f"{commit}:{STEPS}/{name}").decode()) == sql((ROOT / STEPS / name).read_text()) for name in earlier
    )


def sql(text: str) -> str:
    """The statements of a step, without comments."""
    return " ".join(re.sub(r"--.*", "", text).split())


def git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as missing:
        pytest.skip(f"no history of the source to go back in: {missing}")


@pytest.fixture
def options(world: World, monkeypatch: pytest.MonkeyPatch) -> PostgresOptions:
    """A schema of its own, audited, for all processes of this test."""
    options = PostgresOptions(schema=f"t_{secrets.token_hex(6)}", connections=2)
    world.database_url = postgres_url()
    settings = {"DATABASE_URL": world.database_url, "DATABASE_SCHEMA": options.schema, "AUDIT": "true"}
    for name, value in settings.items():
        monkeypatch.setenv(f"DEMORA_{name}", value)
    return options


class Producer:
    """A process that adds jobs without a pause, and tells their ids."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", PRODUCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ids: list[str] = []

    async def some(self) -> None:
        """Return once it has added some more."""
        assert self._process.stdout is not None
        for _ in range(SOME):
            self.ids.append((await asyncio.to_thread(self._process.stdout.readline)).decode().strip())
        assert self.ids[-1], "the producer ended"

    async def stop(self) -> None:
        """Let it end by itself, which it does only if nothing failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self.ids += (await asyncio.to_thread(self._process.stdout.read)).decode().split()
        assert await asyncio.to_thread(self._process.wait) == 0

    def kill(self) -> None:
        with self._process:  # closes its pipes
            self._process.kill()


@pytest.fixture
def producer(earlier: Path, options: PostgresOptions, monkeypatch: pytest.MonkeyPatch) -> Iterator[Producer]:
    with monkeypatch.context() as then:
        then.setenv("PYTHONPATH", str(earlier))
        producer = Producer()
    yield producer
    producer.kill()


@pytest.fixture
def old_worker(
    world: World, earlier: Path, options: PostgresOptions, monkeypatch: pytest.MonkeyPatch
) -> "subprocess.Popen[bytes]":
    with monkeypatch.context() as then:
        then.setenv("PYTHONPATH", str(earlier))
        return world.start_worker()


@pytest.fixture
async def app(options: PostgresOptions) -> AsyncIterator[Demora]:
    """The present demora, not yet open."""
    app = Demora()
    yield app
    await app.close()


async def migrate() -> dict[str, int]:
    command = [sys.executable, "-m", "demora", "migrate", "--json"]
    process = await asyncio.create_subprocess_exec(*command, env=os.environ | {"PYTHONPATH": NOW}, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    answer: dict[str, int] = json.loads(said)
    return answer


async def test_older_workers_and_producers_go_on_while_the_schema_is_migrated(
    world: World, options: PostgresOptions, producer: Producer, old_worker: "subprocess.Popen[bytes]", app: Demora
) -> None:
    async def ended_by_old() -> int:
        return sum(event.pid == old_worker.pid for event in world.events("end"))

    await producer.some()
    await eventually(ended_by_old)
    assert (await connections.stored_version(world.database_url, options) or 0) < connections.newest()
    under_way = asyncio.ensure_future(migrate())
    await producer.some()
    assert (await under_way)["schema"] == connections.newest()
    before = await ended_by_old()
    await producer.some()
    await eventually(ended_by_old, lambda ended: ended >= before + SOME)
    await producer.stop()

    new_worker = world.start_worker()
    client = await app.open()
    await eventually(client.workers, lambda workers: len(workers) == 2)
    assert await world.terminate(old_worker) == 0
    last = await client.enqueue("quick")
    for id in [*producer.ids, last.id]:
        assert (await client.wait(id, timeout="20s")).status is Status.COMPLETED
    assert {event.id: event.pid for event in world.events("end")}[last.id] == new_worker.pid
    assert check([], await client.evidence()).violations == []


async def test_an_older_demora_does_not_open_a_newer_schema(
    world: World, options: PostgresOptions, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate()
    monkeypatch.setenv("PYTHONPATH", str(earlier))
    assert await asyncio.to_thread(world.start_worker().wait, 30) != 0
    known = connections.newest()
    assert str(SchemaTooNew(known, known)).split(str(known))[0] in world.output.read_text()
