"""Workers over HTTP that the service refuses: what can pass is waited for, and the worker says what cannot."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from demora import Context, Demora, Status
from demora.core.access import KeyLimits, Scope
from demora.errors import ServiceRefused, WorkerDied
from demora.remote import connection
from demora.runtime.supervisor import REFUSED
from demora.wire import worker_protocol
from demora.worker import Worker
from tests.api.keys import UNKNOWN, key_for, revoke
from tests.facts import eventually
from tests.remote.test_python_worker import APP
from tests.servers.nearby import serving

LEASE = timedelta(seconds=3)
TYPES = ("example.sum", "example.sleep", "example.fail")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Demora]:
    (tmp_path / "shop.py").write_text(APP)
    app = Demora(f"sqlite:///{tmp_path}/jobs.db")
    app.configure(lease=LEASE)
    async with app:
        yield app


@pytest.fixture
async def url(service: Demora) -> AsyncIterator[str]:
    async with serving(service, lease=LEASE) as url:
        yield url


class Ended(NamedTuple):
    code: int
    said: str


class Command:
    """A `demora worker --url …` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ended(self) -> Ended:
        """The exit code, and all that it said."""
        said, _ = await asyncio.wait_for(self._process.communicate(), 60)
        assert self._process.returncode is not None
        return Ended(self._process.returncode, said.decode())

    async def stop(self) -> Ended:
        self._process.terminate()
        return await self.ended()


@asynccontextmanager
async def command(folder: Path, url: str, key: str | None, *options: str) -> AsyncIterator[Command]:
    program = "import sys; from demora.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEMORA_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "worker", "--url", url, "--app", "shop:app", *options),
        cwd=folder,
        env=environment | ({} if key is None else {"DEMORA_API_KEY": key}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def bound_key(service: Demora, **limits: Sequence[str] | int) -> str:
    bound = KeyLimits(**limits)  # type: ignore[arg-type]
    return (await (await service.open()).keys.create("bound", [Scope.WORK], limits=bound)).text


@pytest.mark.slow
async def test_a_key_that_may_only_work_serves_named_queues(service: Demora, url: str, tmp_path: Path) -> None:
    async with command(tmp_path, url, await key_for(service, Scope.WORK), "--queues", "mail") as worker:
        job = await service.enqueue("example.sum", {"numbers": [1, 2]}, queue="mail")
        assert (await service.wait(job.id, "60s")).result == 3
        assert (await worker.stop()).code == 0


@pytest.mark.slow
async def test_a_key_bound_to_the_types_of_the_application_is_enough(service: Demora, url: str, tmp_path: Path) -> None:
    key = await bound_key(service, queues=("mail",), types=TYPES)
    async with command(tmp_path, url, key, "--queues", "mail") as worker:
        job = await service.enqueue("example.sum", {"numbers": [1, 2]}, queue="mail")
        assert (await service.wait(job.id, "60s")).result == 3
        [known] = await (await service.open()).workers()
        assert sorted(known.types) == sorted(TYPES)
        ended = await worker.stop()
    assert ended.code == 0
    assert "http.request (the API key does not allow them)" in ended.said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        ("unknown", ["this API key is not valid", "set DEMORA_API_KEY to a key with the scope work"]),
        ("none", ["an API key is required", "set DEMORA_API_KEY to a key with the scope work"]),
        ("wrong scope", ["lacks the scope work", "set DEMORA_API_KEY to a key with the scope work"]),
        ("other types", ["may not use 'example.fail'", "it may use example.sum", "demora keys limit"]),
        ("queues", ["may not use 'all queues'", "it may use mail", "--queues"]),
        ("two processes", ["this API key is not valid"]),
    ],
)
async def test_a_worker_that_is_refused_says_what_to_do_and_ends(
    service: Demora, url: str, tmp_path: Path, kind: str, sentences: Sequence[str]
) -> None:
    await key_for(service, Scope.ADMIN)
    key = {
        "wrong scope": await key_for(service, Scope.READ),
        "other types": await bound_key(service, types=("example.sum",)),
        "queues": await bound_key(service, queues=("mail",)),
        "none": None,
    }.get(kind, UNKNOWN)
    options = ["--processes", "2"] if kind == "two processes" else []
    async with command(tmp_path, url, key, *options) as worker:
        ended = await worker.ended()
    assert ended.code == REFUSED
    for sentence in sentences:
        assert sentence in ended.said
    assert "Traceback" not in ended.said


async def test_a_worker_whose_key_is_revoked_stops(service: Demora, url: str) -> None:
    key = await key_for(service, Scope.WORK)
    async with Demora(url, api_key=key) as app:
        running = asyncio.Event()

        @app.job("rest")
        async def rest() -> None:
            running.set()
            await asyncio.sleep(600)

        worker = Worker(app, grace="100ms")
        working = asyncio.ensure_future(worker.run())
        await service.enqueue("rest")
        await running.wait()
        await revoke(service, key)
        assert await working == 1
    assert worker.refused
    assert "set DEMORA_API_KEY" in (worker.trouble or "")


async def test_a_block_with_a_worker_that_is_refused_ends(service: Demora, url: str) -> None:
    await key_for(service, Scope.ADMIN)
    async with Demora(url, api_key=UNKNOWN) as app:
        with pytest.raises(WorkerDied, match="this API key is not valid"):
            async with app.worker():
                await asyncio.sleep(600)


async def test_a_worker_over_its_rate_waits_and_goes_on(service: Demora, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.0)
    key, refused, ask = await bound_key(service, rate=1), list[Exception](), connection.ServiceConnection.ask

    async def counted(*args: Any, **options: Any) -> Any:
        try:
            return await ask(*args, **options)
        except ServiceRefused as problem:
            refused.append(problem)
            raise

    async def often() -> bool:
        return len(refused) >= 3

    monkeypatch.setattr(connection.ServiceConnection, "ask", counted)
    async with Demora(url, api_key=key) as app:

        @app.job("rest")
        async def rest() -> None:
            await eventually(often)

        async with app.worker():
            job = await service.enqueue("rest", max_retries=20, retry_delay="10ms")
            assert (await service.wait(job.id, "60s")).status is Status.COMPLETED
    assert {problem.status for problem in refused} == {429}  # type: ignore[attr-defined]


@pytest.mark.parametrize("lines", [200, 201, 500])
async def test_a_handler_may_log_as_many_lines_as_it_likes(service: Demora, url: str, lines: int) -> None:
    async with Demora(url) as app:

        @app.job("noisy")
        async def noisy(ctx: Context) -> int:
            for number in range(lines):
                ctx.log(f"line {number}")
            return lines

        async with app.worker():
            ended = await service.wait((await service.enqueue("noisy", max_retries=0)).id, "60s")
    assert (ended.status, ended.result, len(ended.attempts)) == (Status.COMPLETED, lines, 1)
    said = [line.line for line in ended.log]
    assert said[:200] == [f"line {number}" for number in range(200)]
    assert len(said) == min(lines, 201)


async def test_a_handler_that_logs_much_and_runs_on_keeps_its_lease(service: Demora, url: str) -> None:
    async with Demora(url) as app:
        go_on = asyncio.Event()

        @app.job("noisy")
        async def noisy(ctx: Context) -> int:
            for number in range(300):
                ctx.log(f"line {number} " + "x" * 900)
            await go_on.wait()
            return 1

        async with app.worker():
            jobs = await service.enqueue_many([("noisy", None, {"max_retries": 0})] * 8)
            for job in jobs:
                await eventually(lambda id=job.id: service.get(id), lambda job: len(job.log) == 201)  # type: ignore[misc]
            go_on.set()
            for job in jobs:
                ended = await service.wait(job.id, "60s")
                assert (ended.status, len(ended.log)) == (Status.COMPLETED, 201)


async def test_a_report_that_the_service_refuses_costs_neither_lease_nor_outcome(
    service: Demora, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a service with other limits than the worker's."""
    refused: list[BaseException] = []
    monkeypatch.setattr(worker_protocol, "MOST_LINES", 2)
    monkeypatch.setattr("demora.system.notices.report_refused", refused.append)

    async def noticed() -> bool:
        return bool(refused)

    async with Demora(url) as app:

        @app.job("noisy")
        async def noisy(ctx: Context) -> int:
            for number in range(3):
                ctx.log(f"line {number}")
            await eventually(noticed)
            return 1

        async with app.worker():
            ended = await service.wait((await service.enqueue("noisy", max_retries=0)).id, "60s")
    assert (ended.status, ended.log) == (Status.COMPLETED, ())


async def test_an_outcome_that_the_service_refuses_fails_its_job_and_no_other(
    service: Demora, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = worker_protocol.pack

    def strict(value: object, field: str) -> bytes:
        if value == "too large":
            raise worker_protocol.Invalid(field, "is too large here")
        return pack(value, field)

    monkeypatch.setattr(worker_protocol, "pack", strict)
    async with Demora(url) as app:

        @app.job("say")
        async def say(what: str) -> str:
            return what

        jobs = await service.enqueue_many([("say", {"what": what}) for what in ("fine", "too large", "fine")])
        async with app.worker():
            ended = [await service.wait(job.id, "60s") for job in jobs]
    assert [job.status.name for job in ended] == ["COMPLETED", "FAILED", "COMPLETED"]
    assert "the service refused its outcome" in (ended[1].error or "")
    assert [len(job.attempts) for job in ended] == [1, 1, 1]
