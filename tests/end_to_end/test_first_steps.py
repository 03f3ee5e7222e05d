"""The first steps of a user of each source system, with its own requests, against real processes and nothing else set.

That the gap is held to is in `test_paced_settings.py`.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hostile.commands import DEADLINE, Process, demora, running

pytestmark = pytest.mark.slow

HANDLERS = """
import asyncio
from demora import Demora

app = Demora()

@app.job("email.send")
async def send(to: str) -> str:
    return f"sent to {to}"

@app.job("email.refused")
async def refused(to: str) -> str:
    raise ConnectionError("the server refused it")

@app.job("report.build")
async def build(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "built"
"""
SEND_EMAIL = {"name": "Send Email", "type": "email.send", "payload": {"to": "user@example.com"}, "priority": "HIGH"}
JOBS = "/api/v1/jobs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps")
    (folder / "mail.py").write_text(HANDLERS)
    return folder


@pytest.fixture(scope="module")
def http(folder: Path) -> Iterator[httpx.Client]:
    """A client of `demora serve`, which also runs the jobs."""
    with running(folder, "serve", "--app", "mail:app", "--port", "0") as service:
        found = re.search(r"http://127\.0\.0\.1:\d+", service.until("http://127.0.0.1:"))
        assert found is not None
        with httpx.Client(base_url=found[0], timeout=DEADLINE, trust_env=False) as http:
            yield http


def follow(http: httpx.Client, id: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask for a job, as a client of the source would, until this is true of it."""
    deadline = time.monotonic() + DEADLINE
    while not until(job := http.get(f"{JOBS}/{id}").json()):
        assert time.monotonic() < deadline, job
    return dict(job)


def has_ended(job: dict[str, Any]) -> bool:
    return job["status"] in ("COMPLETED", "FAILED", "CANCELLED")


# The Task Scheduler Service


def test_a_job_is_created_as_in_the_source_and_runs(http: httpx.Client) -> None:
    answer = http.post(JOBS, json=SEND_EMAIL)
    assert (answer.status_code, answer.json()["priority"]) == (201, "HIGH")
    job = follow(http, answer.json()["id"], has_ended)
    assert (job["status"], job["result"], job["retryCount"]) == ("COMPLETED", "sent to user@example.com", 0)
    assert job["startedAt"] <= job["completedAt"]


def test_a_scheduled_job_runs_at_its_time_and_not_before(http: httpx.Client) -> None:
    at = datetime.now(UTC) + timedelta(seconds=1)
    answer = http.post(JOBS, json={**SEND_EMAIL, "scheduledAt": at.isoformat()})
    job = follow(http, answer.json()["id"], has_ended)
    assert job["status"] == "COMPLETED"
    assert datetime.fromisoformat(job["startedAt"]) >= at.replace(microsecond=at.microsecond // 1000 * 1000)


def test_a_failing_job_is_retried_and_becomes_a_dead_letter(http: httpx.Client) -> None:
    asked = {**SEND_EMAIL, "type": "email.refused", "maxRetries": 3, "retryDelay": 20}
    job = follow(http, http.post(JOBS, json=asked).json()["id"], has_ended)
    assert (job["status"], job["retryCount"], len(job["attempts"])) == ("FAILED", 3, 4)
    assert "the server refused it" in job["error"]
    assert job["id"] in [letter["id"] for letter in http.get("/api/v1/dead-letters").json()["jobs"]]


def test_a_waiting_job_is_cancelled(http: httpx.Client) -> None:
    asked = {**SEND_EMAIL, "scheduledAt": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    id = http.post(JOBS, json=asked).json()["id"]
    assert http.post(f"{JOBS}/{id}/cancel").status_code == 200
    assert http.get(f"{JOBS}/{id}").json()["status"] == "CANCELLED"


def test_the_statistics_are_those_of_the_queue_manager(http: httpx.Client) -> None:
    asked = {**SEND_EMAIL, "queue": "counted", "scheduledAt": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    http.post(JOBS, json=asked)
    stats = http.get("/api/v1/stats", params={"fresh": "true"}).json()
    assert {"priority", "delayed", "processing", "dlq"} <= stats.keys()
    assert stats["queues"]["counted"] == {"priority": 0, "delayed": 1, "processing": 0, "dlq": 0}


# The gap manager


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, httpx.Client]]:
    """A service with the variables of the gap manager, and a client of it."""
    folder = tmp_path_factory.mktemp("gaps")
    (folder / "mail.py").write_text(HANDLERS)
    variables = {"DELAYED_JOB_GAP_SECONDS": "120", "MAX_DELAYED_JOBS_PER_CYCLE": "3"}
    with running(folder, "serve", "--app", "mail:app", "--port", "0", **variables) as service:
        found = re.search(r"http://127\.0\.0\.1:\d+", service.until("http://127.0.0.1:"))
        assert found is not None
        with httpx.Client(base_url=found[0], timeout=DEADLINE, trust_env=False) as http:
            yield service, http


def announce(http: httpx.Client, queue: str, delay: int | None = None) -> str:
    asked = {"type": "email.send", "payload": {"to": "CORP789"}, "queue": queue} | ({"delay": delay} if delay else {})
    return str(http.post(JOBS, json=asked).json()["id"])


def pace_of(http: httpx.Client, queue: str) -> dict[str, Any]:
    return dict(http.get(f"/api/v1/queues/{queue}").json()["pace"])


def held_in(http: httpx.Client, queue: str) -> list[str]:
    """Three jobs that are due together: those two that the pace holds once the first has run."""
    first, *others = [announce(http, queue, 1) for _ in range(3)]
    assert follow(http, first, has_ended)["status"] == "COMPLETED"
    return others


def test_of_jobs_that_are_due_together_one_is_released_and_the_others_wait_for_the_stagger(
    gapped: tuple[Process, httpx.Client],
) -> None:
    service, http = gapped
    held_in(http, "ai")
    pace = pace_of(http, "ai")
    assert (pace["totalDelayed"], pace["readyNow"], pace["waitingForGap"]) == (2, 2, 2)
    assert 0 < pace["nextReleaseInSeconds"] <= 30
    assert 0 <= pace["timeSinceLastReleaseSeconds"] < 30
    assert "the pace of ai released 1" in service.until("the pace of ai released")


def test_a_real_time_job_runs_while_delayed_ones_are_held(gapped: tuple[Process, httpx.Client]) -> None:
    _, http = gapped
    held = held_in(http, "news")
    assert follow(http, announce(http, "news"), has_ended)["status"] == "COMPLETED"
    assert [http.get(f"{JOBS}/{id}").json()["status"] for id in held] == ["QUEUED", "QUEUED"]


def test_each_queue_has_a_gap_of_its_own(gapped: tuple[Process, httpx.Client]) -> None:
    _, http = gapped
    held = held_in(http, "investor")
    assert follow(http, announce(http, "upload", 1), has_ended)["status"] == "COMPLETED"
    assert [http.get(f"{JOBS}/{id}").json()["status"] for id in held] == ["QUEUED", "QUEUED"]


def test_a_held_job_says_why_and_until_when_it_waits(gapped: tuple[Process, httpx.Client]) -> None:
    _, http = gapped
    why = http.get(f"{JOBS}/{held_in(http, 'why')[0]}/why").json()
    assert why["reason"] == "held_by_pace"
    assert datetime.fromisoformat(why["data"]["releaseAt"]) > datetime.now(UTC)


def test_the_gap_can_be_taken_off_while_it_runs(gapped: tuple[Process, httpx.Client]) -> None:
    _, http = gapped
    held = held_in(http, "urgent")
    assert http.patch("/api/v1/queues/urgent", json={"pace": None}).is_success
    for id in held:
        assert follow(http, id, has_ended)["status"] == "COMPLETED"


# AsyncEndpoints


def test_a_long_request_is_answered_202_with_a_job_to_follow(http: httpx.Client) -> None:
    asked = {"type": "report.build", "payload": {"seconds": 0.1}}
    answer = http.post(JOBS, json=asked, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    assert follow(http, answer.headers["Location"].rpartition("/")[2], has_ended)["result"] == "built"


def test_a_short_request_may_wait_for_its_answer(http: httpx.Client) -> None:
    asked = {"type": "report.build", "payload": {"seconds": 0}}
    answer = http.post(JOBS, json=asked, headers={"Prefer": "wait=30"})
    assert (answer.status_code, answer.json()["result"]) == (200, "built")


def test_a_retry_waits_for_its_delay(http: httpx.Client) -> None:
    asked = {"type": "email.refused", "payload": {"to": "a"}, "maxRetries": 1, "retryDelay": 60_000}
    job = follow(http, http.post(JOBS, json=asked).json()["id"], lambda job: job["status"] == "RETRYING")
    ended = datetime.fromisoformat(job["attempts"][0]["endedAt"])
    assert datetime.fromisoformat(job["dueAt"]) >= ended + timedelta(seconds=60)


def test_a_job_of_a_killed_worker_is_recovered(folder: Path) -> None:
    own = folder / "stuck"
    own.mkdir()
    (own / "mail.py").write_text(HANDLERS)
    with running(own, "worker", "--app", "mail:app", DEMORA_LEASE="1s") as worker:
        worker.until("started")
        job = demora(own, "enqueue", "report.build", '{"seconds": 600}', "--json")
        id = json.loads(job.stdout)["id"]
        await_status(own, id, "PROCESSING")
        worker.process.kill()
        worker.process.wait()
    await_status(own, id, "RETRYING", meanwhile=("recover",))
    assert "WorkerLost" in demora(own, "job", id).stdout


def test_the_background_service_runs_alone(folder: Path) -> None:
    own = folder / "alone"
    own.mkdir()
    (own / "mail.py").write_text(HANDLERS)
    job = json.loads(demora(own, "enqueue", "email.send", '{"to": "a"}', "--expires-in", "100ms", "--json").stdout)
    with running(own, "scheduler") as scheduler:
        scheduler.until("started")
        await_status(own, job["id"], "CANCELLED")


def await_status(folder: Path, id: str, status: str, *, meanwhile: tuple[str, ...] = ()) -> None:
    deadline = time.monotonic() + DEADLINE
    while json.loads(demora(folder, "job", id, "--json").stdout)["status"] != status:
        assert time.monotonic() < deadline
        if meanwhile:
            demora(folder, *meanwhile)
