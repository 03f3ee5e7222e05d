"""A caller that takes all slots: what is refused, and that the culprit is named."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from demora import Demora, Status
from demora.errors import BadSetting, Invalid
from demora.handlers.builtin import unwanted
from demora.settings import load
from tests.builders import new_job
from tests.facts import eventually
from tests.hostile.commands import DEADLINE, demora, running
from tests.hostile.served import served
from tests.setups import postgres_url, redis_url

SLEEP = {"seconds": 1e9}


async def until(folder: Path, url: str, id: str, status: Status, **given: str) -> None:
    async with Demora(url) as app:
        await eventually(lambda: app.get(id), lambda job: job.status is status)


def enqueued(folder: Path, *words: str, **given: str) -> str:
    id: str = json.loads(demora(folder, "enqueue", *words, "--json", **given).stdout)["id"]
    return id


def store_in(folder: Path, setup: str) -> dict[str, str]:
    if setup == "sqlite":
        return {"DEMORA_DATABASE_URL": f"sqlite:///{folder}/jobs.db"}
    settings = {"DEMORA_DATABASE_URL": postgres_url(), "DEMORA_DATABASE_SCHEMA": "hostile_" + setup.replace("-", "_")}
    return settings if setup == "postgres" else settings | {"DEMORA_REDIS_URL": redis_url()}


@pytest.mark.slow
@pytest.mark.parametrize("setup", ["sqlite", "postgres", "lined-postgres"])
def test_why_and_doctor_name_what_takes_all_slots(tmp_path: Path, setup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = store_in(tmp_path, setup)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with running(tmp_path, "serve", "--port", "0", "--concurrency", "2", **given) as service:
        service.until(" at http://")
        hogs = [enqueued(tmp_path, "demo.sleep", json.dumps(SLEEP), "--timeout", "24h", **given) for _ in range(2)]
        for hog in hogs:
            asyncio.run(until(tmp_path, given["DEMORA_DATABASE_URL"], hog, Status.PROCESSING))
        waiting = enqueued(tmp_path, "demo.echo", **given)
        why = json.loads(demora(tmp_path, "why", waiting, "--json", **given).stdout)
        doctor = json.loads(demora(tmp_path, "doctor", "--json", "--skip-integrity", **given).stdout)
    assert why["reason"] == "slots_taken"
    assert "but all 2 slots of the workers that serve its queue default are taken (2 demo.sleep)" in why["sentence"]
    assert why["data"]["longest"][0]["id"] == hogs[0]
    assert f"the longest by {hogs[0]} (demo.sleep) since" in why["sentence"]
    [slots] = [finding for finding in doctor["findings"] if finding["check"] == "slots"]
    assert slots["level"] == "warning"  # a problem once no slot has changed hands for a minute
    assert "all 2 slots" in slots["fact"]
    assert f"{hogs[0]} (demo.sleep) for" in slots["fact"]


def test_a_timeout_over_the_limit_is_refused_over_http_in_python_and_on_the_command_line(tmp_path: Path) -> None:
    refused = demora(tmp_path, "enqueue", "demo.sleep", "--timeout", "30d")
    assert refused.returncode == 2
    assert "at most 1d is allowed here; the setting DEMORA_MAX_TIMEOUT allows more" in refused.stderr
    with running(tmp_path, "serve", "--port", "0", "--no-worker", DEMORA_MAX_TIMEOUT="1h") as service:
        address = service.until(" at http://").split(" at ")[1].split(",")[0]
        for millis, status in ((3_600_001, 422), (3_600_000, 201)):
            body: dict[str, Any] = {"type": "demo.sleep", "timeout": millis}
            answer = httpx.post(f"{address}/api/v1/jobs", json=body, timeout=DEADLINE)
            assert answer.status_code == status, answer.text
            assert status == 201 or "DEMORA_MAX_TIMEOUT" in answer.text


async def test_a_handlers_own_longer_timeout_is_the_limit_of_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_MAX_TIMEOUT", "1h")
    app = Demora("sqlite://")

    @app.job("report", timeout="3h")
    def report() -> None: ...

    async with app:
        assert (await app.enqueue("report", timeout="3h")).timeout == timedelta(hours=3)
        with pytest.raises(Invalid, match="at most 3h is allowed"):
            await app.enqueue("report", timeout="4h")
        with pytest.raises(Invalid, match=r"jobs\[1\]\.timeout: at most 1h"):
            await app.enqueue_many([("report", {}), ("demo.echo", {}, {"timeout": "2h"})])


async def test_a_stored_job_runs_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_MAX_TIMEOUT", "1s")
    app = Demora("sqlite://")
    sleep = new_job(type="mine", payload=b"{}", timeout=timedelta(days=30), max_retries=0)

    @app.job("mine", timeout="1s")
    async def mine() -> None:
        await asyncio.Event().wait()

    async with app, app.worker():
        await (await app.open()).store.add([sleep])
        job = await app.wait(sleep.id, "30s")
    assert (job.status, job.error) == (Status.FAILED, "TimedOut: the run took longer than its timeout")


# The built-in handlers


@pytest.mark.parametrize(
    ("names", "off"),
    [
        ("all", []),
        ("none", ["demo.echo", "demo.sleep", "demo.fail", "http.request"]),
        ("demo", ["http.request"]),
        ("http.request", ["demo.echo", "demo.sleep", "demo.fail"]),
        ("demo, http.request", []),
    ],
)
def test_the_setting_names_the_built_in_handlers_that_are_on(names: str, off: list[str]) -> None:
    assert unwanted(load({"DEMORA_BUILTIN_HANDLERS": names}).builtin_handlers or ()) == off


@pytest.mark.parametrize("names", ["demo.echo", "all,none", "demo,", "demora.webhook"])
def test_a_built_in_handler_that_there_is_not_is_refused(names: str) -> None:
    with pytest.raises(BadSetting, match="DEMORA_BUILTIN_HANDLERS: must be all, none"):
        load({"DEMORA_BUILTIN_HANDLERS": names})


async def test_a_built_in_handler_that_is_off_is_neither_enqueued_nor_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_BUILTIN_HANDLERS", "none")
    app = Demora("sqlite://")
    async with app, app.worker() as worker:
        for type in ("demo.echo", "demo.sleep", "demo.fail", "http.request"):
            with pytest.raises(Invalid, match=f"the built-in handler {type} is switched off"):
                await app.enqueue(type)
        client = await app.open()
        [record] = await eventually(client.workers)
        assert (record.id, record.types) == (worker.id, ("demora.action", "demora.webhook"))


@pytest.mark.parametrize(("names", "on"), [(None, False), ("all", True)])
async def test_with_api_keys_the_handlers_to_try_with_are_off_unless_named(
    monkeypatch: pytest.MonkeyPatch, names: str | None, on: bool
) -> None:
    if names is not None:
        monkeypatch.setenv("DEMORA_BUILTIN_HANDLERS", names)
    app = Demora("sqlite://")
    async with app:
        await (await app.open()).keys.create("ci", ["submit"])
        async with app.worker():
            assert ("demo.sleep" in app.registry.types(), "http.request" in app.registry.types()) == (on, True)


async def test_the_first_key_switches_them_off_in_a_service_without_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demora.worker.switching.EVERY", 0.01)
    app = Demora("sqlite://")
    async with app, served(app):
        assert "demo.sleep" in app.registry.types()
        await (await app.open()).keys.create("ci", ["submit"])
        await eventually(_types(app), lambda types: "demo.sleep" not in types)


async def test_a_defect_does_not_keep_the_first_key_from_switching_them_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("demora.worker.switching.EVERY", 0.01)
    app = Demora("sqlite://")
    async with app, app.worker():
        defects = iter([ZeroDivisionError("as planted")])
        switch = app.switch_builtins

        async def switching() -> None:
            for defect in defects:
                raise defect
            await switch()

        monkeypatch.setattr(app, "switch_builtins", switching)
        await (await app.open()).keys.create("ci", ["submit"])
        await eventually(_types(app), lambda types: "demo.sleep" not in types)
    [reported] = [record.getMessage() for record in caplog.records if "as planted" in record.getMessage()]
    assert reported.startswith("switching off built-in handlers failed")


def _types(app: Demora) -> Callable[[], Awaitable[tuple[str, ...]]]:
    async def types() -> tuple[str, ...]:
        return app.registry.types()

    return types


async def test_the_first_key_switches_them_off_in_a_worker_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demora.worker.switching.EVERY", 0.01)
    monkeypatch.setattr("demora.worker.leases.HEARTBEAT_EVERY", 0.01)
    app = Demora("sqlite://")
    async with app, app.worker():
        client = await app.open()
        await eventually(client.workers, lambda found: found and "demo.sleep" in found[0].types)
        await client.keys.create("ci", ["submit"])
        await eventually(client.workers, lambda found: "demo.sleep" not in found[0].types)
        with pytest.raises(Invalid, match="there are API keys; DEMORA_BUILTIN_HANDLERS=all switches it on"):
            await app.enqueue("demo.sleep")
