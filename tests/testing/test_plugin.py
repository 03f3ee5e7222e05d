"""The pytest plugin, as a project that installed demora has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import demora

SOURCE = Path(demora.__file__).parents[1]
PLUGIN = Path(__file__).parents[2] / "src"

TASKS = """
from demora import Demora
app = Demora("sqlite:///must-not-be-made.db")

@app.job("greet")
def greet(name: str) -> str:
    return f"hello {name}"
"""
TESTS = """
from tasks import greet

def test_greeting(demora_sandbox):
    greet.enqueue_blocking(name="Ann")
    [job] = demora_sandbox.blocking.drain().ended
    assert job.result == "hello Ann"

def test_nothing_is_left_of_other_tests(demora_sandbox):
    assert demora_sandbox.blocking.enqueued() == []
"""
ASYNC_TESTS = """
from tasks import greet

async def test_greeting(demora_sandbox):
    await greet.options(delay="1d").enqueue(name="Ann")
    [job] = (await demora_sandbox.advance("1d")).ended
    assert job.result == "hello Ann"
"""


def run_pytest(
    folder: Path, tests: str, *options: str, ini: str = "demora_app = tasks:app\n", tasks: str = TASKS
) -> "subprocess.CompletedProcess[str]":
    (folder / "tasks.py").write_text(tasks)
    (folder / "test_tasks.py").write_text(tests)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{ini}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_demora", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}:{PLUGIN}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_plain_tests_need_nothing_but_the_fixture(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, TESTS)
    assert "2 passed" in ran.stdout, ran.stdout
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.slow
def test_async_tests_use_the_same_fixture(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, ASYNC_TESTS, "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto")
    assert "1 passed" in ran.stdout, ran.stdout


@pytest.mark.slow
def test_async_tests_may_be_marked_instead(tmp_path: Path) -> None:
    marked = ASYNC_TESTS.replace("async def", "@pytest.mark.asyncio\nasync def")
    ran = run_pytest(tmp_path, f"import pytest\n{marked}", "-p", "pytest_asyncio.plugin")
    assert "1 passed" in ran.stdout, ran.stdout


@pytest.mark.slow
def test_without_an_application_the_fixture_says_how_to_name_one(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, TESTS, ini="")
    assert "Set `demora_app = module:app`" in ran.stdout, ran.stdout


@pytest.mark.slow
def test_a_project_that_uses_no_fixture_imports_nothing_of_demora(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "import sys\n\ndef test_it():\n    assert 'demora' not in sys.modules\n")
    assert "1 passed" in ran.stdout, ran.stdout


FLASK_TASKS = """
from flask import Flask, current_app
from demora.contrib.flask import FlaskDemora

jobs = FlaskDemora()

@jobs.job("greet")
def greet(name: str) -> str:
    return f"hello {name} from {current_app.name}"

def create_app(name):
    app = Flask(name)
    app.config["DEMORA_DATABASE_URL"] = "sqlite:///must-not-be-made.db"
    jobs.init_app(app)
    return app
"""
FLASK_TESTS = """
import pytest
from tasks import create_app, greet

@pytest.fixture(params=["one", "two"])
def app(request):
    return create_app(request.param)

def test_greeting(app, demora_sandbox):
    with app.app_context():
        greet.enqueue_blocking(name="Ann")
    [job] = demora_sandbox.blocking.drain().ended
    assert job.result == f"hello Ann from {app.name}"
"""
FLASK_TESTS_WITHOUT_A_FIXTURE = """
from tasks import create_app, greet

app = create_app("only")

def test_greeting(demora_sandbox):
    greet.enqueue_blocking(name="Ann")
    [job] = demora_sandbox.blocking.drain().ended
    assert job.result == "hello Ann from only"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("tests", "said"), [(FLASK_TESTS, "2 passed"), (FLASK_TESTS_WITHOUT_A_FIXTURE, "1 passed")])
def test_the_demora_of_flask_stands_for_that_of_its_application(tests: str, said: str, tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, tests, ini="demora_app = tasks:jobs\n", tasks=FLASK_TASKS)
    assert said in ran.stdout, ran.stdout
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.slow
def test_the_fixture_of_a_fastapi_application_is_its_demora(tmp_path: Path) -> None:
    web = "from demora.contrib.fastapi import lifespan\nfrom fastapi import FastAPI\nweb = FastAPI(lifespan=lifespan(app))\n"
    ran = run_pytest(tmp_path, TESTS, tasks=TASKS + web)
    assert "2 passed" in ran.stdout, ran.stdout


@pytest.mark.slow
def test_django_with_another_backend_has_no_application(tmp_path: Path) -> None:
    setup = "import django\nfrom django.conf import settings\nsettings.configure()\ndjango.setup()\n"
    ran = run_pytest(tmp_path, TESTS, ini="", tasks=TASKS + setup)
    assert "Set `demora_app = module:app`" in ran.stdout, ran.stdout
