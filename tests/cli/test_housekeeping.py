"""Purge and recover: old jobs go, and what a dead worker held is settled without a worker."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from demora import Demora
from demora.core.workers import WorkerRecord
from demora.store.jobs import ClaimRequest
from tests.cli.conftest import Run, Start, answer, await_start, read_until, work_off

Enqueued = Callable[..., str]


def claimed_by(worker: str, *, lease: timedelta = timedelta(hours=1)) -> None:
    """Let a worker that is registered claim everything, and then do nothing more."""

    async def claim() -> None:
        async with Demora() as app:
            store = (await app.open()).store
            await store.heartbeat(WorkerRecord(worker, "host", 1, 1))
            await store.claim(ClaimRequest(worker, 10, lease=lease))

    asyncio.run(claim())


def change_rows(folder: Path, sql: str) -> None:
    db = apsw.Connection(str(folder / "demora.db"))
    db.execute(sql)
    db.close()


def _hex(id: str) -> str:
    return id.replace("-", "").upper()


def test_purge_deletes_what_ended_so_long_ago(run: Run, enqueued: Enqueued, folder: Path) -> None:
    old, young, failed = enqueued(), enqueued(), enqueued("demo.fail", "--max-retries", "0")
    work_off(old, young, failed)
    words = ("purge", "--status", "COMPLETED", "--older-than", "7d", "--yes")
    assert run(*words).stdout == "deleted 0 jobs\n"
    change_rows(folder, f"update jobs set completed_at = completed_at - {8 * 86_400_000} where hex(id) <> '{_hex(young)}'")
    assert answer(run(*words, "--dry-run", "--json"))["matched"] == 1
    assert run(*words, "--queue", "mail").stdout == "deleted 0 jobs\n"
    assert answer(run(*words, "--json")) == {"matched": 1, "done": 1, "skipped": 0, "more": False, "dryRun": False}
    assert {job["id"] for job in answer(run("jobs", "--json"))["jobs"]} == {failed, young}


@pytest.mark.parametrize(
    "words", [("--status", "COMPLETED"), ("--older-than", "1h"), ("--status", "QUEUED", "--older-than", "1h")]
)
def test_purge_wants_to_know_which_end_and_how_long_ago(run: Run, words: tuple[str, ...]) -> None:
    run("migrate")
    assert run("purge", *words, "--yes").exit_code == 2


def test_recover_settles_lapsed_leases_and_says_so(run: Run, enqueued: Enqueued) -> None:
    id = enqueued("demo.echo", "--max-retries", "0")
    claimed_by("bob", lease=timedelta(0))
    assert run("recover").stdout == f"{id} was held by bob and is FAILED now\n"
    assert run("recover").stdout == "there is no lapsed lease to settle\n"


def test_recover_leaves_leases_that_hold(run: Run, enqueued: Enqueued) -> None:
    id = enqueued()
    claimed_by("bob")
    assert answer(run("recover", "--json")) == {"recovered": []}
    assert answer(run("job", id, "--json"))["status"] == "PROCESSING"


def test_a_worker_can_be_declared_dead_and_every_promise_still_holds(
    run: Run, enqueued: Enqueued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMORA_AUDIT", "true")
    id = enqueued("demo.echo", "--retry-delay", "0s")
    claimed_by("bob")
    assert run("recover", "--worker", "ann").stdout == "there is no lapsed lease to settle, and ann holds no job\n"
    found = answer(run("recover", "--worker", "bob", "--yes", "--json"))
    assert found == {"recovered": [{"id": id, "workerId": "bob", "status": "RETRYING"}]}
    assert answer(run("workers", "--json")) == {"workers": []}
    work_off(id)
    assert run("verify").exit_code == 0, run("verify").stdout


def test_a_worker_that_seems_alive_is_not_given_up_unasked(run: Run, enqueued: Enqueued) -> None:
    enqueued()
    claimed_by("bob")
    refused = run("recover", "--worker", "bob")
    assert (refused.exit_code, "add --yes" in refused.stderr, "--dry-run" in refused.stderr) == (2, True, False)
    assert "bob was seen" in refused.stderr


@pytest.mark.slow
def test_a_worker_that_was_killed_need_not_be_waited_for(run: Run, start: Start, enqueued: Enqueued) -> None:
    id = enqueued("demo.sleep", '{"seconds": 600}', "--retry-delay", "0s")
    worker = start("worker", "--lease", "1h")
    await_start(id)
    worker.kill()
    worker.wait(30)
    dead = answer(run("job", id, "--json"))["workerId"]
    assert answer(run("recover", "--json")) == {"recovered": []}
    assert run("recover", "--worker", dead, "--yes").stdout == f"{id} was held by {dead} and is RETRYING now\n"
    read_until(start("worker"), "started")
    await_start(id)
    assert answer(run("job", id, "--json"))["attempts"][0]["error"].startswith("WorkerGivenUp: ")


@pytest.mark.slow
def test_a_worker_that_lives_hears_that_it_was_given_up(run: Run, start: Start, enqueued: Enqueued) -> None:
    id = enqueued("demo.sleep", '{"seconds": 600}', "--retry-delay", "1h")
    worker = start("worker")
    await_start(id)
    run("recover", "--worker", answer(run("job", id, "--json"))["workerId"], "--yes")
    assert f"job {id} (demo.sleep): its lease was lost" in read_until(worker, "lease was lost")
    assert answer(run("job", id, "--json"))["status"] == "RETRYING"


def test_a_worker_that_seems_alive_is_declared_dead_only_with_consent(run: Run, enqueued: Enqueued) -> None:
    id = enqueued()
    claimed_by("bob")
    assert run("recover", "--worker", "bob").exit_code == 2
    assert answer(run("job", id, "--json"))["status"] == "PROCESSING"
