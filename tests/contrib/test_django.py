"""Django: the suite in `django_suite`, in processes of its own, since Django is set up once for a process.

`make django` runs the same suite on other versions of Django.
"""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests import setups

pytestmark = pytest.mark.slow
SUITE = Path(__file__).with_name("django_suite")


def run_suite(
    python: str, folder: Path, postgres_url: str | None, *, path: str = "", without: str = "", file: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run the suite, or one file of it, with this interpreter in an empty folder, on SQLite or on an empty PostgreSQL.

    `path` goes before what is installed, and the package named by `without` counts as not installed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DEMORA_", "PYTEST_"))}
    paths = os.pathsep.join(filter(None, [path, str(SUITE), os.environ.get("PYTHONPATH")]))
    environment |= {"SUITE_FOLDER": str(folder), "PYTHONPATH": paths, "DJANGO_SETTINGS_MODULE": "shop.settings"}
    environment |= {"SUITE_WITHOUT": without}
    if postgres_url is not None:
        environment |= {"SUITE_POSTGRES": postgres_url}
    command = [python, "-m", "pytest", "-q", "-c", str(SUITE / "pytest.ini"), str(SUITE / file)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def new_database(url: str, name: str) -> str:
    """Create a database on a server, and return its URL."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'create database "{name}"')
    return f"{url.rpartition('/')[0]}/{name}"


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_suite_passes(database: str, tmp_path: Path) -> None:
    url = new_database(setups.postgres_url(), f"django{os.getpid()}") if database == "postgres" else None
    run = run_suite(sys.executable, tmp_path, url)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("file", ["suite_transactions.py", "suite_testcase.py"])
def test_with_psycopg2_tasks_wait_for_the_commit(file: str, tmp_path: Path) -> None:
    url = new_database(setups.postgres_url(), f"django{os.getpid()}{file}")
    run = run_suite(sys.executable, tmp_path, url, without="psycopg", file=file)
    assert run.returncode == 0, run.stdout + run.stderr
