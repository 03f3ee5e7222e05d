"""The conformance kit, with workers that pass and workers that must not."""

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from demora import Demora
from demora.worker_kit import trials
from demora.worker_kit.proxy import before
from demora.worker_kit.trials import TRIALS, Kit, Trial, attempt
from tests.servers.nearby import serving

PROJECT = Path(__file__).parents[2]
LEASE = 3.0
TRIES = 3  # of a careless worker: one that settles too early may be killed before it does, and then passes
ALL_KEPT = f"{len(TRIALS)} of {len(TRIALS)} promises kept: the worker passes"
NODE, JQ = shutil.which("node"), shutil.which("jq") and shutil.which("curl")

# A worker that breaks promises: it never renews, repeats, stops a job or registers again, and hears no signal to stop.
# With `wrong` it returns one result for all jobs, with `early` it settles a job before it runs it, and with `proud` it ends
# when a settle is not recorded.
CARELESS = """
import http.client, json, signal, sys, time, urllib.request
url, faults = sys.argv[1], sys.argv[2:]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def call(path, body):
    request = urllib.request.Request(url + "/api/v1/workers" + path, json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))
def settle(job):
    result = 42 if "wrong" in faults else sum(job["payload"].get("numbers", []))
    lease = {"id": job["id"], "token": job["token"]}
    [settled] = call(f"/{worker}/settle", {"jobs": [{**lease, "outcome": "completed", "result": result}]})["jobs"]
    if settled["status"] is None and "proud" in faults:
        sys.exit(1)
worker = call("", {"name": "careless", "types": ["example.sum", "example.sleep", "example.fail"], "slots": 1})["workerId"]
while True:
    try:
        for job in call(f"/{worker}/claim", {"wait": 1000})["jobs"]:
            if "early" in faults:
                settle(job)
            time.sleep(job["payload"].get("ms", 0) / 1000)
            if "early" not in faults:
                settle(job)
    except (OSError, ValueError, http.client.HTTPException):
        time.sleep(0.05)
"""

# What each trial says of a careless worker, as a pattern, and with which faults beside those that it always has. One that
# settles early may do so before or after the trial looks whether the job runs.
CARELESS_IN = {
    trials.runs_jobs: ("ended COMPLETED and not FAILED", ""),
    trials.keeps_its_leases: ("WorkerLost", ""),
    trials.keeps_the_timeout: ("never is stopped", ""),
    trials.hears_of_a_cancel: ("never ends", ""),
    trials.leaves_a_paused_queue: ("has the result 42 and not 2", "wrong"),
    trials.repeats_a_claim: ("took 2 attempts and not 1", ""),
    trials.repeats_a_renewal: ("it did not renew a lease", ""),
    trials.repeats_a_settle: ("took 2 attempts and not 1", ""),
    trials.settles_too_late: ("never ends", "proud"),
    trials.stops_when_cut_off: ("never ends", ""),
    trials.registers_again: ("never ends", ""),
    trials.survives_a_kill: ("never starts; it is COMPLETED|took 1 attempts and not 2", "early"),
    trials.yields_after_a_stop: ("never ends", "proud"),
    trials.shuts_down: ("it did not exit", ""),
}


@asynccontextmanager
async def kit_service(folder: Path, lease: float) -> AsyncIterator[str]:
    """A service with a short lease, so that no trial takes long."""
    app, span = Demora(f"sqlite:///{folder}/jobs.db"), timedelta(seconds=lease)
    app.configure(lease=span)
    async with app, serving(app, lease=span) as url:
        yield url


async def tried(url: str, command: Sequence[str], trial: Trial, *, lease: float) -> str | None:
    async with Demora(url) as app, before(url) as (proxy, through):
        return await attempt(Kit(app, command, proxy, through, lease=lease), trial)


async def verdict(url: str, command: Sequence[str], *options: str) -> tuple[int | None, list[str]]:
    """The exit code of the kit, run as a program, and what it printed."""
    program = [sys.executable, "-m", "demora.worker_kit", url, *options, "--", *command]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return process.returncode, said.decode().splitlines()


def named(trial: Trial) -> str:
    return trial.__name__


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
async def test_the_worker_for_node_keeps_every_promise(tmp_path: Path) -> None:
    async with kit_service(tmp_path, LEASE) as url:
        code, said = await verdict(url, ["node", str(PROJECT / "examples" / "worker.mjs"), "{url}"])
    assert said[-1] == ALL_KEPT, "\n".join(said)
    assert code == 0


@pytest.mark.slow
@pytest.mark.skipif(not JQ, reason="there is no jq or no curl")
async def test_the_worker_for_bash_keeps_every_promise(tmp_path: Path) -> None:
    async with kit_service(tmp_path, LEASE) as url:
        code, said = await verdict(url, ["bash", str(PROJECT / "examples" / "worker.sh"), "{url}"])
    assert said[-1] == ALL_KEPT, "\n".join(said)
    assert code == 0


def test_every_trial_is_tried_with_a_careless_worker() -> None:
    assert set(CARELESS_IN) == set(TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("trial", TRIALS, ids=named)
async def test_a_careless_worker_fails(tmp_path: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "PATIENCE", 3.0)
    expected, faults = CARELESS_IN[trial]
    async with kit_service(tmp_path, 1.0) as url:
        command = [sys.executable, "-c", CARELESS, "{url}", *faults.split()]
        said = list[str]()
        while len(said) < TRIES and not any(re.search(expected, one) for one in said):
            said.append(await tried(url, command, trial, lease=1.0) or "it passes")
    assert re.search(expected, said[-1]), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["false"], "it ended by itself"),
        (["/nowhere/worker"], "it cannot be started"),
    ],
    ids=["ends", "is missing"],
)
async def test_a_worker_that_does_not_run_fails(
    tmp_path: Path, command: Sequence[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def signals(kit: Kit) -> None:
        async with kit.worker() as process:
            await process.wait()
            kit.signal(process, 9)

    async with kit_service(tmp_path, 1.0) as url:
        assert expected in (await tried(url, command, signals, lease=1.0) or "it passes")


@pytest.mark.slow
async def test_the_program_prints_a_verdict(tmp_path: Path) -> None:
    async with kit_service(tmp_path, 1.0) as url:
        code, said = await verdict(url, [sys.executable, "-c", CARELESS, "{url}"], "--only", "It runs jobs")
    assert code == 1
    assert said[0].startswith("FAILED  It runs jobs")
    assert said[-1] == "0 of 1 promises kept: the worker fails"


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
async def test_the_worker_for_node_reports_what_the_service_refuses(tmp_path: Path) -> None:
    """A result that is too large or no JSON, and a thrown value that is no error, fail their jobs and not the worker."""
    more = """const handlers = {
  "x.text": async () => { throw "a text"; },
  "x.large": async () => "x".repeat(1200000),
  "x.bigint": async () => 10n,"""
    program = (PROJECT / "examples" / "worker.mjs").read_text().replace("const handlers = {", more)
    (tmp_path / "worker.mjs").write_text(program)
    errors = {"x.text": "Error: a text", "x.large": "Refused: ", "x.bigint": "TypeError: "}
    async with Demora(f"sqlite:///{tmp_path}/jobs.db") as app, serving(app) as url:
        process = await asyncio.create_subprocess_exec("node", str(tmp_path / "worker.mjs"), url.rstrip("/"))
        try:
            for type, error in errors.items():
                job = await app.enqueue(type, max_retries=0)
                ended = await app.wait(job.id, "60s")
                assert (ended.error or "").startswith(error)
                assert len(ended.attempts) == 1
            job = await app.enqueue("example.sum", {"numbers": [1, 2]})
            assert (await app.wait(job.id, "60s")).result == 3
        finally:
            process.terminate()
            assert await process.wait() == 0
