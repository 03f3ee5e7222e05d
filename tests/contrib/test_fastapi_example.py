"""The example of FastAPI, under real servers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.contrib.conftest import POSTGRES, SQLITE
from tests.contrib.processes import EXAMPLES, calling, running
from tests.servers.ports import free_port

pytestmark = pytest.mark.slow
ADA = {"authorization": "Bearer ada", "prefer": "wait=60"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "fastapi", tmp_path / "shop"))


@pytest.mark.parametrize(
    ("server", "database"),
    [("uvicorn", SQLITE), ("uvicorn --workers 2", POSTGRES), ("gunicorn -k asgi --workers 2", SQLITE)],
    indirect=["database"],
)
def test_a_report_is_built_by_a_worker_beside_the_server(
    folder: Path, tmp_path: Path, database: dict[str, str], server: str
) -> None:
    port, output = free_port(), tmp_path / "output"
    program, *options = server.split()
    bind = ["--port", str(port)] if program == "uvicorn" else ["--bind", f"127.0.0.1:{port}"]
    with (
        running(folder, program, "shop:web", *options, *bind, output=output, **database) as web,
        running(folder, "demora", "worker", "--app", "shop:jobs", output=output, **database) as worker,
        calling(port, web, output) as http,
    ):
        built = http.post("/reports", json={"pages": 3}, headers=ADA)
        assert built.json() == {"title": "Sales, 3 pages, for ada", "built_in": str(worker.pid)}, output.read_text()
        assert http.post("/reports", json={"pages": 13}, headers=ADA).status_code == 404
        assert http.post("/reports", json={"pages": 101}, headers=ADA).status_code == 429
        assert http.post("/reports", json={"pages": 3}).status_code == 401
        assert http.post("/mails", params={"to": "a@b.c"}).status_code == 202
        measured = http.post("/photos", files={"photo": b"pixels"}, headers=ADA)
        assert measured.json() == {"bytes": 6}, output.read_text()
        assert "report.build" in jobs_on_the_dashboard(http, new_key(folder, database))
    assert web.returncode in (0, -15), output.read_text()
    assert worker.returncode == 0, output.read_text()
    assert "ada" not in output.read_text()


def new_key(folder: Path, database: dict[str, str]) -> str:
    """Create a key as the README says."""
    command = [sys.executable, "-m", "demora", "keys", "create", "ada", "--scope", "admin", "--app", "shop:jobs"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEMORA_")} | database
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def jobs_on_the_dashboard(http: httpx.Client, key: str) -> str:
    """Sign in with a key as a browser does, and return the page of all jobs."""
    assert http.get("/jobs/jobs").status_code == 401
    token = re.search(r'name="token" value="(\w+)"', http.get("/jobs/sign-in").text)
    assert token
    form, headers = {"key": key, "token": token[1]}, {"sec-fetch-site": "same-origin"}
    assert http.post("/jobs/sign-in?next=/jobs/jobs", data=form, headers=headers).headers["location"] == "/jobs/jobs"
    return http.get("/jobs/jobs").text


def test_a_worker_inside_the_server_builds_reports_with_reload(folder: Path, tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "output"
    command = ("uvicorn", "shop:web", "--reload", "--port", str(port))
    with running(folder, *command, output=output, SHOP_WORKER="inside") as web, calling(port, web, output) as http:
        assert http.post("/reports", json={"pages": 3}, headers=ADA).status_code == 200, output.read_text()


def test_the_tests_of_the_example_pass(folder: Path) -> None:
    run = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
