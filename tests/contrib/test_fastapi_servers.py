"""Applications of FastAPI as their authors write them, under real servers."""

import threading
from pathlib import Path

import httpx
import pytest

from tests.contrib.conftest import POSTGRES, SQLITE
from tests.contrib.processes import calling, running
from tests.servers.ports import free_port

pytestmark = pytest.mark.slow
WAIT = {"prefer": "wait=60"}

# The code between the lines is that of build order 16, as it stands there.
SHOP = """
import os
from typing import Annotated
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from demora import Demora
from demora.api import api
from demora.contrib.fastapi import later, lifespan
from demora.core.access import Scope
from demora.dashboard import dashboard

DEBUG = os.environ.get("DEBUG") == "1"

class Db: ...
class Spec(BaseModel): pages: int
class Report(BaseModel): title: str; built_in: int

async def get_db(): yield Db()
def quota(spec: Spec):
    if spec.pages > 100: raise HTTPException(429, "at most 100 pages")
def staff(request: Request) -> list[Scope] | None:
    return [Scope.OPERATE, Scope.SUBMIT] if request.headers.get("x-user") == "ada" else None
# ---
jobs = Demora()
web = FastAPI(lifespan=lifespan(jobs, worker=DEBUG))
web.mount("/jobs", dashboard(jobs, access=staff))

@web.post("/reports", status_code=202)
@later(jobs, "report.build", check=quota)
async def report(spec: Spec, db: Annotated[Db, Depends(get_db)]) -> Report:
# ---
    assert isinstance(db, Db)
    return Report(title=f"{spec.pages} pages", built_in=os.getpid())

web.mount("/a/b", api(jobs, access=staff))
web.mount("/keys", api(jobs, access="keys"))
web.mount("/", StaticFiles(directory="."))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    return folder


@pytest.mark.parametrize("database", [SQLITE, POSTGRES], indirect=True)
def test_the_code_of_the_build_order_works_as_it_stands(folder: Path, tmp_path: Path, database: dict[str, str]) -> None:
    port, output = free_port(), tmp_path / "output"
    command = ("uvicorn", "shop:web", "--port", str(port))
    with (
        running(folder, *command, output=output, DEBUG="1", **database) as web,
        calling(port, web, output) as http,
    ):
        built = http.post("/reports", json={"pages": 3}, headers=WAIT)
        assert built.json() == {"title": "3 pages", "built_in": web.pid}, output.read_text()
        status = http.get(built.headers["location"]).json()
        assert status["status"] == "COMPLETED"
        assert http.get(status["resultUrl"]).json()["title"] == "3 pages"
        assert http.post("/reports", json={"pages": 101}).status_code == 429
        assert http.post("/reports", json={}).status_code == 422
        assert "/later/{job_id}" in http.get("/openapi.json").json()["paths"]
        assert http.get("/jobs/").status_code == 403
        assert "report.build" in http.get("/jobs/jobs", headers={"x-user": "ada"}).text
    assert web.returncode in (0, -15), output.read_text()


def test_a_worker_elsewhere_finds_the_web_application_by_itself(folder: Path, tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "output"
    with (
        running(folder, "uvicorn", "shop:web", "--port", str(port), output=output) as web,
        running(folder, "demora", "worker", "--app", "shop:jobs", output=output) as worker,
        calling(port, web, output) as http,
    ):
        built = http.post("/reports", json={"pages": 3}, headers=WAIT)
        assert built.json() == {"title": "3 pages", "built_in": worker.pid}, output.read_text()


@pytest.mark.parametrize("server", ["uvicorn", "uvicorn --root-path /proxied --workers 2", "gunicorn -k asgi"])
def test_the_mounted_api_answers_and_stops_with_its_host(folder: Path, tmp_path: Path, server: str) -> None:
    port, output = free_port(), tmp_path / "output"
    program, *options = server.split()
    bind = ["--port", str(port)] if program == "uvicorn" else ["--bind", f"127.0.0.1:{port}"]
    root = "/proxied" if "--root-path" in options else ""
    with (
        running(folder, program, "shop:web", *options, *bind, output=output) as web,
        calling(port, web, output) as http,
    ):
        http.headers.update({"x-user": "ada", "host": "shop.example"})
        added = http.post("/a/b/api/v1/jobs", json={"type": "demo.echo", "payload": {"a": 1}})
        assert added.status_code == 201, added.text
        id = added.json()["id"]
        assert added.headers["location"] == f"{root}/a/b/api/v1/jobs/{id}"
        assert http.get(f"/a/b/api/v1/jobs/{id}").json()["id"] == id
        assert http.get("/a/b/api/v1/jobs", headers={"x-user": "eve"}).status_code == 403
        assert http.get("/keys/api/v1/jobs").status_code == 401
        report = http.post("/reports", json={"pages": 3}).json()
        heard = [Listener(http, path) for path in ("/a/b/api/v1/events", report["eventsUrl"].removeprefix(root))]
        for listener in heard:
            assert listener.began.wait(60)
        web.terminate()
        web.wait(25)
        for listener in heard:
            listener.join(60)
            assert listener.status == 200, (listener.path, output.read_text())


class Listener(threading.Thread):
    """A caller whose answer goes on until the server stops."""

    def __init__(self, http: httpx.Client, path: str) -> None:
        super().__init__(daemon=True)
        self.http, self.path = http, path
        self.began, self.status = threading.Event(), 0
        self.start()

    def run(self) -> None:
        address = self.http.base_url.join(self.path)
        with httpx.stream("GET", address, headers=self.http.headers, timeout=60) as answer:
            for _ in answer.iter_raw():
                self.began.set()
            self.status = answer.status_code
