"""The example of Django, under real servers."""

import contextlib
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx
import pytest

from tests import setups
from tests.contrib.processes import EXAMPLES, LOOK, calling, running
from tests.contrib.test_django import new_database
from tests.servers.ports import free_port

pytestmark = pytest.mark.slow
SERVERS = {
    "runserver": ("manage", "runserver", "--noreload"),
    "runserver that reloads": ("manage", "runserver"),
    "gunicorn": ("gunicorn", "shop.wsgi", "--preload", "--workers", "2"),
    "gunicorn with threads": ("gunicorn", "shop.wsgi", "--preload", "-k", "gthread", "--threads", "4"),
    "gunicorn with asgi": ("gunicorn", "shop.asgi", "-k", "asgi"),
    "uvicorn": ("uvicorn", "shop.asgi:application", "--workers", "2"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "django", tmp_path / "project"))


def ended(http: httpx.Client, task: str) -> dict[str, str]:
    """Ask for a task until it has ended."""
    until = time.monotonic() + 60
    while True:
        answer: dict[str, str] = http.get(f"/tasks/{task}").json()
        if answer["status"] in ("SUCCESSFUL", "FAILED"):
            return answer
        assert time.monotonic() < until, answer
        time.sleep(LOOK)


@pytest.mark.parametrize(
    ("server", "database"),
    [
        ("runserver", "sqlite"),
        ("runserver that reloads", "sqlite"),
        ("gunicorn", "postgres"),
        ("gunicorn with threads", "sqlite"),
        ("gunicorn with asgi", "postgres"),
        ("uvicorn", "sqlite"),
        ("uvicorn", "postgres+line"),
    ],
)
def test_an_order_is_confirmed_by_a_worker(folder: Path, tmp_path: Path, server: str, database: str) -> None:
    port, output = free_port(), tmp_path / "output"
    settings = {} if database == "sqlite" else on_postgres(str(port))
    if database == "postgres+line":
        settings |= {"DEMORA_REDIS_URL": setups.redis_url()}
    program, *options = SERVERS[server]
    bind = {"manage": [f"127.0.0.1:{port}"], "gunicorn": ["--bind", f"127.0.0.1:{port}"], "uvicorn": ["--port", str(port)]}
    with running(folder, "manage", "migrate", "-v0", output=output, **settings) as migration:
        assert migration.wait(60) == 0, output.read_text()
    with (
        running(folder, program, *options, *bind[program], output=output, **settings) as web,
        running(folder, "manage", "demora", "worker", output=output, **settings) as worker,
        calling(port, web, output) as http,
    ):
        tasks = [http.post("/orders", data={"email": "a@b.c"}).json()["task"] for _ in range(4)]
        assert [ended(http, task)["value"] for task in tasks] == ["confirmed to a@b.c"] * 4, output.read_text()
        if server == "runserver that reloads":
            change_the_answer(folder, http, output)
    assert worker.returncode == 0, output.read_text()
    if database == "sqlite":
        assert {path.name for path in folder.glob("*.db")} == {"db.demora.db"}


def change_the_answer(folder: Path, http: httpx.Client, output: Path) -> None:
    """Edit the code under a running server, wait until it has started again, and send an order to it."""
    urls = folder / "shop" / "urls.py"
    urls.write_text(urls.read_text().replace('"order": order.pk', '"edited": order.pk'))
    until, answer = time.monotonic() + 60, dict[str, str]()
    while "edited" not in answer:
        assert time.monotonic() < until, output.read_text()
        with contextlib.suppress(httpx.TransportError):
            answer = http.post("/orders", data={"email": "a@b.c"}).json()
        time.sleep(LOOK)
    assert ended(http, answer["task"])["value"] == "confirmed to a@b.c"


def on_postgres(name: str) -> dict[str, str]:
    """Create a database, and return the environment of a shop that uses it."""
    return {"SHOP_POSTGRES": new_database(setups.postgres_url(), f"shop_{os.getpid()}_{name}")}


def test_the_worker_reloads_and_runs_in_several_processes(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    shutil.copy(folder / "shop" / "settings.py", folder / "live.py")
    for options in (("--reload",), ("--settings=live", "--processes", "2")):
        output.write_text("")
        with running(folder, "manage", "demora", "worker", *options, output=output) as worker:
            until = time.monotonic() + 60
            while output.read_text().count("started") < (2 if "2" in options else 1):
                assert worker.poll() is None, output.read_text()
                assert time.monotonic() < until, output.read_text()
                time.sleep(LOOK)
        assert worker.returncode == 0, output.read_text()


WITH_PYTEST = """
    import pytest
    from shop.models import Order
    from shop.tasks import confirm

    def place_order(client, demora_sandbox):
        answer = client.post("/orders", {"email": "a@b.c"})
        assert answer.status_code == 202
        assert len(demora_sandbox.blocking.enqueued("shop.tasks.confirm")) == 1
        assert not demora_sandbox.blocking.drain().failures
        assert Order.objects.get().confirmed
        assert client.get(f"/tasks/{answer.json()['task']}").json()["status"] == "SUCCESSFUL"

    def test_in_a_transaction(db, client, demora_sandbox):
        place_order(client, demora_sandbox)

    def test_nothing_is_left_of_it(db, demora_sandbox):
        assert Order.objects.count() == len(demora_sandbox.blocking.enqueued()) == 0

    @pytest.mark.django_db(transaction=True)
    def test_with_commits(client, demora_sandbox):
        place_order(client, demora_sandbox)

    def test_with_captured_callbacks(db, client, demora_sandbox, django_capture_on_commit_callbacks):
        with django_capture_on_commit_callbacks(execute=True):
            client.post("/orders", {"email": "a@b.c"})
        assert not demora_sandbox.blocking.drain().failures
        assert Order.objects.get().confirmed

    def test_without_a_transaction_of_its_own(db, demora_sandbox):
        order = Order.objects.create(email="a@b.c")
        confirm.enqueue(order.pk)
        [job] = demora_sandbox.blocking.drain().ended
        assert job.result == "confirmed to a@b.c"
"""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_sandbox_works_with_pytest_django(folder: Path, database: str) -> None:
    (folder / "test_orders.py").write_text(textwrap.dedent(WITH_PYTEST))
    command = [sys.executable, "-m", "pytest", "-q", "--ds", "shop.settings", "test_orders.py"]
    environment = os.environ | (on_postgres("pytest") if database == "postgres" else {})
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert "5 passed" in run.stdout, run.stdout
    assert not list(folder.glob("*.demora.db"))


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_tests_of_the_example_pass(folder: Path, database: str) -> None:
    command = [sys.executable, "manage.py", "test"]
    environment = os.environ | (on_postgres("own") if database == "postgres" else {})
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
