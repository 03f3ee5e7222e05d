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
    folder: Path, tests: str, *options: str, ini: str = "demora_app = tasks:app\n"
) -> "subprocess.CompletedProcess[str]":
    (folder / "tasks.py").write_text(TASKS)
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
