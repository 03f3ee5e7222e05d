"""Flask: application contexts of handlers, several applications, and the command line."""

import gc
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, g

from demora import Context, Demora
from demora.contrib.flask import FlaskDemora
from demora.errors import BadHandler, Invalid
from demora.testing import Sandbox
from tests.contrib.conftest import POSTGRES, SQLITE
from tests.contrib.processes import EXAMPLES, LOOK, calling, running
from tests.servers.ports import free_port


def make_app(jobs: FlaskDemora, name: str = "shop") -> Flask:
    app = Flask(name)
    app.config["DEMORA_DATABASE_URL"] = "sqlite://"
    jobs.init_app(app)
    return app


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_runs_in_an_application_context_of_its_own_thread(is_async: bool) -> None:
    jobs, events = FlaskDemora(), list[Any]()
    app = make_app(jobs)

    @app.teardown_appcontext
    def tear_down(problem: BaseException | None) -> None:
        events.append(("torn down", g.by, threading.get_ident(), type(problem)))

    def handle(to: str, fails: bool = False) -> str:
        g.by = to
        events.append(("ran", current_app.name, threading.get_ident()))
        if fails:
            raise ValueError(to)
        return current_app.name

    async def ahandle(to: str, fails: bool = False) -> str:
        return handle(to, fails)

    function: Callable[..., Any] = ahandle if is_async else handle
    send = jobs.job("mail.send", max_retries=0)(function)
    with Sandbox(jobs.of(app)) as sandbox:
        with app.app_context():
            g.by = "the caller"
            send.enqueue_blocking(to="a")
            events.clear()
        events.clear()
        assert [job.result for job in sandbox.blocking.drain().ended] == ["shop"]
        [ran, torn_down] = events
        assert torn_down == ("torn down", "a", ran[2], type(None))
        events.clear()
        send.enqueue_blocking(to="b", fails=True)
        assert sandbox.blocking.drain().failures
        assert events[1][3] is ValueError


def test_two_applications_of_one_factory_have_their_own_jobs() -> None:
    jobs = FlaskDemora()

    @jobs.job("name")
    def name() -> str:
        return current_app.name

    one, two = make_app(jobs, "one"), make_app(jobs, "two")
    with Sandbox(jobs.of(one)) as first, Sandbox(jobs.of(two)) as second:
        with one.app_context():
            name.enqueue_blocking()
        with two.app_context():
            name.enqueue_blocking()
            jobs.blocking.enqueue("name")
        assert [job.result for job in first.blocking.drain().ended] == ["one"]
        assert [job.result for job in second.blocking.drain().ended] == ["two", "two"]
        with pytest.raises(LookupError, match=r"jobs\.of\(app\)"):
            name.enqueue_blocking()


def test_a_handler_enqueues_for_its_own_application() -> None:
    jobs = FlaskDemora()

    @jobs.job("first")
    def first() -> str:
        return second.enqueue_blocking().id

    @jobs.job("second")
    async def second() -> str:
        return (await third.enqueue()).id

    @jobs.job("third")
    def third() -> str:
        return current_app.name

    one, two = make_app(jobs, "one"), make_app(jobs, "two")
    with Sandbox(jobs.of(one)) as sandbox, Sandbox(jobs.of(two)) as other:
        with one.app_context():
            first.enqueue_blocking()
        assert "one" in [job.result for job in sandbox.blocking.drain().ended if job.type == "third"]
        assert other.blocking.enqueued() == []


def test_what_is_declared_counts_for_every_application() -> None:
    jobs, started = FlaskDemora(), list[str]()
    before = make_app(jobs)

    @jobs.every("1h")
    @jobs.job("tick", queue="slow")
    def tick() -> str:
        return "tock"

    jobs.schedule("daily", "tick", cron="0 3 * * *")
    jobs.pace("slow", gap="2s")
    jobs.on_startup(lambda: started.append("started"))
    jobs.on_shutdown(lambda: started.append("stopped"))

    @jobs.middleware
    async def shout(ctx: Context, call_next: Callable[[], Any]) -> str:
        return str(await call_next()).upper()

    for app in (before, make_app(jobs)):
        with Sandbox(jobs.of(app)) as sandbox:
            jobs.of(app).blocking.enqueue("tick")
            assert [job.result for job in sandbox.blocking.advance("1m").ended] == ["TOCK"]
            assert jobs.of(app).blocking.pacing("slow").pace.gap == timedelta(seconds=2)
            assert {stored.schedule.name for stored in jobs.of(app).blocking.schedules()} == {"tick", "daily"}
    assert {"started", "stopped"} == set(started)


def test_a_handler_is_still_a_function_and_checks_its_payload() -> None:
    app = Flask("shop")
    jobs = FlaskDemora(app)

    @jobs.job("add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(2) == 3
    with Sandbox(jobs.of()), pytest.raises(Invalid, match=r"payload\.a"):
        add.enqueue_blocking(a="x")  # type: ignore[arg-type]


def test_a_sandbox_takes_the_extension_itself() -> None:
    jobs = FlaskDemora()

    @jobs.job("name")
    def name() -> str:
        return current_app.name

    with pytest.raises(LookupError, match="which application"):
        Sandbox(jobs)
    app = make_app(jobs)
    with Sandbox(jobs) as sandbox:
        assert sandbox.app is jobs.of(app)
        name.enqueue_blocking()
        assert [job.result for job in sandbox.blocking.drain().ended] == ["shop"]
    other = make_app(jobs, "other")
    with other.app_context(), Sandbox(jobs) as sandbox:
        assert sandbox.app is jobs.of(other)
    with pytest.raises(LookupError, match="'third' has no jobs here: call init_app"):
        jobs.of(Flask("third"))


def test_what_cannot_work_is_refused() -> None:
    jobs = FlaskDemora()
    app = make_app(jobs)
    with pytest.raises(ValueError, match="already"):
        jobs.init_app(app)
    with pytest.raises(BadHandler, match="leave process out"):
        jobs.job("x", process=True)


def test_an_application_that_is_no_longer_used_is_collected() -> None:
    jobs = FlaskDemora()
    jobs.job("x")(lambda: None)
    gone = weakref.ref(make_app(jobs))
    gc.collect()
    assert gone() is None


def test_the_command_line_knows_the_application_of_flask() -> None:
    jobs = FlaskDemora()
    app = make_app(jobs)
    answer = app.test_cli_runner().invoke(args=["demora", "--help"])
    assert answer.exit_code == 0
    assert answer.output.startswith("Usage: flask demora [OPTIONS] COMMAND")
    assert isinstance(jobs.of(app), Demora)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "flask", tmp_path / "shop"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "database"),
    [
        ("flask --app shop run", SQLITE),
        ("gunicorn shop:create_app() --preload --workers 2", POSTGRES),
        ("gunicorn shop:create_app() -k gthread --threads 4", SQLITE),
    ],
    indirect=["database"],
)
def test_a_mail_is_sent_by_a_worker(folder: Path, tmp_path: Path, database: dict[str, str], server: str) -> None:
    port, output = free_port(), tmp_path / "output"
    bind = ["--port", str(port)] if server.startswith("flask") else ["--bind", f"127.0.0.1:{port}"]
    settings = database | {"SHOP_SENDER": "ada@example.com"}
    with (
        running(folder, *server.split(), *bind, output=output, **settings) as web,
        running(folder, "flask", "--app", "shop", "demora", "worker", output=output, **settings) as worker,
        calling(port, web, output) as http,
    ):
        id = http.post("/orders", data={"email": "a@b.c"}).json()["job"]
        until = time.monotonic() + 60
        while (job := http.get(f"/jobs/{id}").json())["status"] != "COMPLETED":
            assert time.monotonic() < until, output.read_text()
            time.sleep(LOOK)
        assert job["result"] == "sent to a@b.c by ada@example.com"
        unknown = [http.get(f"/jobs/{id}").status_code for id in ("nonsense", "01a1e7cc-5210-748a-a852-48dba720f661")]
        assert unknown == [404, 404]
    assert worker.returncode == 0, output.read_text()


@pytest.mark.slow
def test_several_processes_are_workers_of_the_same_application(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = ("flask", "--app", "shop", "demora", "worker", "--processes", "2")
    with running(folder, *command, output=output) as worker:
        until = time.monotonic() + 60
        while output.read_text().count("started") < 2:
            assert worker.poll() is None, output.read_text()
            assert time.monotonic() < until, output.read_text()
            time.sleep(LOOK)
    assert worker.returncode == 0, output.read_text()


@pytest.mark.slow
def test_the_tests_of_the_example_pass(folder: Path) -> None:
    run = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
