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
from demora.engines.postgres.connection import migrating
from demora.errors import SchemaTooNew
from demora.proof import check
from tests.end_to_end.processes import World
from tests.facts import eventually
from tests.setups import postgres_url

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STEPS = "src/demora/engines/postgres/schema"
STEPS_OF_TODAY = sorted(path.name for path in (ROOT / STEPS).iterdir())
NEWER = STEPS_OF_TODAY[1:]  # what was added to the first schema
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
    """The source of the newest version that lacks a step of the schema."""
    version = version_before(request.param)
    if version is None:
        pytest.skip(f"no version had exactly the steps before {request.param}: several came at once, or it is new")
    with tarfile.open(fileobj=io.BytesIO(git("archive", version, "src"))) as archive:
        archive.extractall(tmp_path / "earlier", filter="data")
    return tmp_path / "earlier" / "src"


def version_before(step: str) -> str | None:
    """The commit before a step came to the main line, or else before it was added, if that has exactly the earlier steps as
    they are today. The main line goes first: a commit of a branch may be halfway through a change."""
    for how in (("--first-parent", "-m"), ()):
        added = git("log", "--diff-filter=A", "--format=%H", "-1", *how, "--", f"{STEPS}/{step}").decode().strip()
        if added and has_steps_of_today(f"{added}^", until=step):
            return f"{added}^"
    return None


def has_steps_of_today(commit: str, *, until: str) -> bool:
    names = [Path(name).name for name in git("ls-tree", "--name-only", commit, f"{STEPS}/").decode().split()]
    return names == [name for name in STEPS_OF_TODAY if name < until] and all(
        sql(git("show", f"{commit}:{STEPS}/{name}").decode()) == sql((ROOT / STEPS / name).read_text()) for name in names
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
    assert (await migrating.stored_version(world.database_url, options) or 0) < migrating.newest()
    under_way = asyncio.ensure_future(migrate())
    await producer.some()
    assert (await under_way)["schema"] == migrating.newest()
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


async def test_an_older_demora_opens_a_newer_schema_if_all_newer_steps_are_online(
    world: World, options: PostgresOptions, earlier: Path, app: Demora, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate()
    monkeypatch.setenv("PYTHONPATH", str(earlier))
    known = len(list((earlier / "demora/engines/postgres/schema").iterdir()))
    newer = [step for step in migrating.schema_steps("demora") if step.number > known]
    if (earlier / "demora/engines/sql/steps.py").exists() and all(step.online for step in newer):
        worker, client = world.start_worker(), await app.open()
        assert (await client.wait((await client.enqueue("quick")).id, timeout="20s")).status is Status.COMPLETED
        assert await world.terminate(worker) == 0
        return
    assert await asyncio.to_thread(world.start_worker().wait, 30) != 0
    known = migrating.newest()
    assert str(SchemaTooNew(known, known)).split(str(known))[0] in world.output.read_text()
