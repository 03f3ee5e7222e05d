"""Services and workers as real processes: what they say, what they run, and how they end."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from demora.core.dsn import without_secrets
from tests.cli.conftest import Run, Start, answer, await_start, read_until
from tests.setups import redis_url

pytestmark = pytest.mark.slow

DEADLINE = 30.0
HANDLERS = """
import gc, logging, time
from demora import Demora

app = Demora()

@app.job("hang")
def hang() -> None:
    logging.getLogger("shop").warning("hanging\\nforged \\x1b[31m")
    time.sleep(600)

@app.job("block")
async def block() -> None:
    logging.getLogger("shop").warning("blocking")
    time.sleep(600)

@app.job("frozen")
def frozen() -> list[int]:
    return [gc.get_freeze_count(), gc.get_threshold()[0]]
"""


@pytest.fixture
def shop(folder: Path) -> str:
    (folder / "shop.py").write_text(HANDLERS)
    return "shop:app"


def test_a_worker_runs_jobs_and_enqueue_waits_for_their_end(run: Run, start: Start) -> None:
    worker = start("worker", "--concurrency", "2", "--lease", "5s", "--queues", "default,mail")
    read_until(worker, "started")
    done = run("enqueue", "demo.echo", '{"hi":1}', "--wait")
    assert (done.exit_code, done.stdout.splitlines()[1]) == (0, 'COMPLETED {"hi":1}')
    assert answer(run("enqueue", "demo.echo", '{"hi":1}', "--wait", "--json"))["result"] == {"hi": 1}
    failed = run("enqueue", "demo.fail", "--max-retries", "0", "--wait")
    assert (failed.exit_code, failed.stdout.splitlines()[1]) == (1, "FAILED RuntimeError: this job always fails")
    [alive] = answer(run("workers", "--json"))["workers"]
    assert (alive["slots"], alive["queues"]) == (2, ["default", "mail"])
    assert alive["id"] in run("workers").stdout
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DEADLINE) == 0
    assert answer(run("workers", "--json")) == {"workers": []}


def test_the_collector_leaves_alone_what_a_worker_has_loaded_and_runs_seldom(run: Run, start: Start, shop: str) -> None:
    start("worker", "--app", shop)
    ended = answer(run("enqueue", "frozen", "--app", shop, "--wait", "--json"))
    frozen, new_objects = ended["result"]
    assert frozen > 10_000
    assert new_objects == 10_000


def test_a_running_job_is_cancelled_by_its_worker(run: Run, start: Start) -> None:
    worker = start("worker")
    read_until(worker, "started")
    waiting = start("enqueue", "demo.sleep", '{"seconds": 600}', "--wait")
    id = read_until(waiting, "enqueued", "stdout").split()[0]
    await_start(id)
    assert run("cancel", id).stdout == f"{id} is running; its worker is asked to stop it\n"
    assert waiting.wait(DEADLINE) == 1
    assert answer(run("job", id, "--json"))["status"] == "CANCELLED"


def test_a_hanging_thread_does_not_keep_a_worker(start: Start, run: Run, shop: str, enqueued: Callable[..., str]) -> None:
    worker = start("worker", "--app", shop, DEMORA_GRACE="100ms")
    id = enqueued("hang")
    line = read_until(worker, "] hanging").splitlines()[-1]
    assert f"WARNING [{id}] hanging\\nforged \\x1b[31m" in line
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DEADLINE) == 0
    job = answer(run("job", id, "--json"))
    assert (job["status"], job["retryCount"]) == ("QUEUED", 0)


def test_the_second_signal_ends_a_worker_that_is_blocked(start: Start, shop: str, enqueued: Callable[..., str]) -> None:
    worker = start("worker", "--app", shop)
    enqueued("block")
    read_until(worker, "blocking")
    worker.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.2)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DEADLINE) == 128 + signal.SIGTERM


def test_ctrl_c_is_quiet(start: Start) -> None:
    waiting = start("enqueue", "demo.echo", "--delay", "1h", "--wait")
    read_until(waiting, "no live worker")
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=DEADLINE)
    assert (waiting.returncode, said) == (130, "")


def test_a_worker_with_a_lease_that_cannot_be_used_says_so(start: Start) -> None:
    worker = start("worker", "--lease", "1ms")
    _, said = worker.communicate(timeout=DEADLINE)
    assert (worker.returncode, said.splitlines()[-1]) == (2, "Error: Invalid value for '--lease': must be from 100ms to 1d")


def test_serve_says_where_it_is_and_what_to_try(run: Run, start: Start, folder: Path) -> None:
    service = start("serve", "--port", "0", "--concurrency", "3")
    said = read_until(service, "openapi.json", "stdout")
    address = said.split(" at ")[1].split(",")[0]
    assert f"jobs in sqlite:///{folder}/demora.db" in said
    assert "/dashboard\n" in said
    assert "  demora jobs\n" in said
    with urllib.request.urlopen(f"{address}/health/ready", timeout=DEADLINE) as response:
        assert response.status == 200
    curl = next(line.split() for line in said.splitlines() if "curl" in line)
    assert json.loads(curl[-1].strip("'"))["type"] == "demo.echo"
    with urllib.request.urlopen(curl[2], timeout=DEADLINE) as response:
        assert json.load(response) == answer(run("jobs", "--json"))
    assert run("enqueue", "demo.echo", "--wait").exit_code == 0
    service.send_signal(signal.SIGTERM)
    assert service.wait(DEADLINE) == 0


@pytest.mark.parametrize("command", ["worker", "scheduler", "serve"])
def test_what_stays_says_at_its_start_which_variables_set_nothing(start: Start, command: str, folder: Path) -> None:
    words = (command, "--port", "0") if command == "serve" else (command,)
    process = start(*words, DEMORA_DATABSE_URL="postgresql://me:canary@host/db")
    said = read_until(process, "started" if command == "worker" else f"{command.replace('serve', 'service')} ")
    assert (
        "WARNING unknown variable DEMORA_DATABSE_URL: demora has no such setting; did you mean DEMORA_DATABASE_URL?" in said
    )
    assert "canary" not in said
    assert command == "serve" or f"jobs in sqlite:///{folder}/demora.db\n" in said


def test_a_worker_says_which_of_its_queues_are_new(start: Start, enqueued: Callable[..., str]) -> None:
    enqueued("demo.echo", "--queue", "mail")
    said = read_until(start("worker", "--queues", "mail=3,mial=1"), "started")
    assert "queue mial is new: it has never had a job" in said
    assert "queue mail is new" not in said


def test_workers_say_once_where_the_jobs_are_however_many_they_are(start: Start, folder: Path) -> None:
    url = redis_url()
    workers = start("worker", "--processes", "2", DEMORA_REDIS_URL=url)
    said = read_until(workers, "started") + read_until(workers, "started")
    assert said.count(f"jobs in sqlite:///{folder}/demora.db") == 1
    assert f"/demora.db, lined up in {url}\n" in said


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////var/a:b@c.db", "sqlite:////var/a:b@c.db"),
        ("postgresql://me@host:5433/db", "postgresql://me@host:5433/db"),
        ("postgresql://me:canary@host:5433/db", "postgresql://me:…@host:5433/db"),
        ("postgresql://me:ca#na/r?y@x@host/db", "postgresql://…"),
        ("postgresql://host/db?password=canary&user=me", "postgresql://host/db?password=…&user=me"),
        ("redis://:canary@host:6379/0", "redis://:…@host:6379/0"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@pytest.mark.parametrize("words", [("serve", "--port", "0"), ("worker",)], ids=lambda words: words[0])
def test_what_stays_takes_a_database_in_memory(start: Start, folder: Path, words: tuple[str, ...]) -> None:
    process = start(*words, "--database-url", "sqlite://")
    read_until(process, "started")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0
    assert not list(folder.iterdir())


def test_serve_in_memory_shows_how_to_look_over_http(start: Start) -> None:
    said = read_until(start("serve", "--port", "0", "--database-url", "sqlite://"), "openapi.json", "stdout")
    address = said.split(" at ")[1].split(",")[0]
    assert f"  curl -s {address}/api/v1/jobs\n" in said
    assert "demora --database-url" not in said


def test_enqueue_says_that_no_worker_knows_the_type(start: Start) -> None:
    read_until(start("worker"), "started")
    waiting = start("enqueue", "no.such", "--wait")
    said = read_until(waiting, "no.such")
    assert said == "no live worker knows type no.such: its jobs wait until one does (demora worker --app MODULE:APP)\n"


def test_serve_without_a_worker_runs_nothing(run: Run, start: Start) -> None:
    read_until(start("serve", "--port", "0", "--host", "127.0.0.1", "--no-worker"), "openapi.json", "stdout")
    assert answer(run("workers", "--json")) == {"workers": []}


def test_several_workers_do_not_share_a_database_in_memory(run: Run) -> None:
    refused = run("worker", "--processes", "2", "--database-url", "sqlite://")
    assert refused.exit_code == 1
    assert "several processes cannot share a database in memory" in refused.stderr


@pytest.mark.parametrize("words", [("worker",), ("serve", "--port", "0")], ids=lambda words: words[0])
def test_a_start_without_an_application_says_so(start: Start, shop: str, words: tuple[str, ...]) -> None:
    said = "built-in handlers only: no application is named (--app MODULE:APP, or app in demora.toml)"
    assert said in read_until(start(*words), " slots, queues all")
    assert said not in read_until(start(*words, "--app", shop), " slots, queues all")
