"""`demora doctor`: what it finds in a real database, what it must not make, and its exit code."""

import asyncio
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import Result

from demora import Demora
from demora.core.workers import WorkerRecord
from tests.cli.conftest import Run, answer, work_off
from tests.setups import postgres_url

Enqueued = Callable[..., str]


def findings(result: Result) -> dict[str, dict[str, Any]]:
    """The worst finding of each check."""
    order = ["ok", "warning", "problem"]
    found = sorted(json.loads(result.stdout)["findings"], key=lambda one: order.index(one["level"]))
    return {one["check"]: one for one in found}


def alive(**changes: Any) -> None:
    """Let a worker that knows the built-in types say that it is alive."""

    async def beat() -> None:
        async with Demora() as app:
            client = await app.open()
            fields = {"types": client.registry.types(), **changes}
            await client.store.heartbeat(WorkerRecord("ann", "host", 1, 20, **fields))

    asyncio.run(beat())


def test_a_database_with_a_worker_is_well(run: Run) -> None:
    run("migrate")
    alive()
    found = run("doctor")
    assert found.exit_code == 0
    assert found.stdout.endswith("\nproblems: none, warnings: none\n")
    assert answer(run("doctor", "--json"))["ok"] is True


def test_each_finding_says_what_it_looked_at_how_it_is_and_what_to_do(run: Run, enqueued: Enqueued) -> None:
    enqueued()
    lines = run("doctor").stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("problem"))
    assert lines[at].split(maxsplit=2) == ["problem", "workers", "no worker is alive, and jobs are ready to run"]
    assert lines[at + 1].strip() == "→ start one: demora worker --app MODULE:APP, or demora serve"


def test_a_database_that_is_not_there_is_a_problem_and_is_not_made(run: Run, folder: Path) -> None:
    found = run("doctor")
    assert found.exit_code == 1
    assert "there is no database file demora.db" in found.stdout
    assert not list(folder.iterdir())


def test_an_older_database_is_not_migrated(run: Run, folder: Path) -> None:
    run("migrate")
    db = apsw.Connection(str(folder / "demora.db"))
    db.pragma("user_version", 1)
    db.close()
    found = run("doctor", "--json")
    assert (found.exit_code, findings(found)["schema"]["level"]) == (0, "warning")
    assert apsw.Connection(str(folder / "demora.db")).pragma("user_version") == 1


def test_every_setting_that_cannot_be_used_is_named(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "demora.toml").write_text('lease = "1ms"\nhost = "localhost"\n')
    monkeypatch.setenv("DEMORA_PORT", "many")
    monkeypatch.setenv("DEMORA_CONCURENCY", "5")
    found = run("doctor")
    assert found.exit_code == 1
    said = [line.split(maxsplit=2) for line in found.stdout.splitlines() if " settings " in line]
    assert [line[0] for line in said] == ["problem", "problem", "warning"]
    assert said[0][2] == "DEMORA_PORT: must be a whole number"
    assert said[1][2] == "demora.toml: lease: must be from 100ms to 1d"
    assert "DEMORA_CONCURENCY" in said[2][2]
    assert "→ rename it to DEMORA_CONCURRENCY if you mean that, or unset it" in found.stdout


def test_a_database_url_that_no_engine_knows_is_a_finding_without_its_password(run: Run) -> None:
    found = run("doctor", "--json", "--database-url", "mysql://me:canary@host/db")
    assert (found.exit_code, findings(found)["database"]["level"]) == (1, "problem")
    assert "canary" not in found.stdout + found.stderr


def test_a_settings_file_that_cannot_be_read_is_named(run: Run, folder: Path) -> None:
    (folder / "demora.toml").write_text("lease = ")
    found = run("doctor", "--json")
    assert (found.exit_code, findings(found)["settings"]["level"]) == (1, "problem")


def test_where_settings_come_from_is_told_without_their_values(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "demora.toml").write_text('lease = "41s"\n')
    monkeypatch.setenv("DEMORA_GRACE", "43s")
    run("migrate")
    fact = findings(run("--database-url", "sqlite:///demora.db", "doctor", "--json"))["settings"]["fact"]
    for words in ("database_url by an option", "grace by DEMORA_GRACE", "lease by demora.toml: lease"):
        assert words in fact
    assert "41s" not in fact
    assert "43s" not in fact


def test_trouble_with_jobs_is_found_in_a_real_database(run: Run, enqueued: Enqueued) -> None:
    work_off(enqueued("demo.fail", "--max-retries", "0"))
    enqueued("no.such")
    enqueued("demo.echo", "--queue", "mail")
    alive(queues=("default",))
    found = run("doctor", "--json")
    assert found.exit_code == 1
    judged = {check: one["level"] for check, one in findings(found).items() if one["level"] != "ok"}
    assert judged == {"types": "problem", "queues": "problem", "dead letters": "warning"}


def test_warnings_alone_do_not_fail(run: Run, enqueued: Enqueued) -> None:
    work_off(enqueued("demo.fail", "--max-retries", "0"))
    alive()
    found = run("doctor")
    assert found.exit_code == 0
    assert found.stdout.endswith("\nproblems: none, warnings: 1\n")


def test_a_clock_that_was_set_back_is_found(run: Run, enqueued: Enqueued, folder: Path) -> None:
    enqueued()
    alive()
    db = apsw.Connection(str(folder / "demora.db"))
    db.execute("update jobs set created_at = created_at + 3600000, due_at = due_at + 3600000")
    db.close()
    assert findings(run("doctor", "--json"))["clock"]["level"] == "problem"


def test_a_damaged_file_is_found_unless_that_is_skipped(run: Run, folder: Path) -> None:
    run("enqueue", "demo.echo", json.dumps({"text": "x" * 200_000}))
    alive()
    file = folder / "demora.db"
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size - 65536)
        opened.write(b"\xff" * 65536)
    assert findings(run("doctor", "--json"))["integrity"]["level"] == "problem"
    assert "integrity" not in findings(run("doctor", "--json", "--skip-integrity"))


def test_what_others_set_cannot_forge_a_line(run: Run) -> None:
    run("migrate")
    run("pause", "mail", "--reason", "down\x1b[31m\nok forged")
    assert all(line.isprintable() for line in run("doctor").stdout.splitlines())
    assert not any(line.startswith("ok forged") for line in run("doctor").stdout.splitlines())


def test_a_server_is_looked_at_like_a_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_DATABASE_URL", postgres_url())
    monkeypatch.setenv("DEMORA_DATABASE_SCHEMA", f"t_{secrets.token_hex(6)}")
    missing = run("doctor", "--json")
    assert (missing.exit_code, findings(missing)["schema"]["level"]) == (1, "problem")
    run("migrate")
    alive()
    well = run("doctor", "--json")
    assert well.exit_code == 0
    assert {findings(well)[check]["level"] for check in ("postgresql", "database", "schema", "wake-ups")} == {"ok"}
