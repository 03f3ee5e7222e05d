"""`demora new`: the projects that it creates are created and run."""

import configparser
import json
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from importlib.metadata import PathDistribution as Distribution
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from demora import Demora, Status
from demora.cli import root
from demora.cli.new import FRAMEWORKS
from tests.contrib.processes import calling, running
from tests.servers.ports import free_port

ID = {"fastapi": "id", "django": "task", "flask": "job"}


def create(folder: Path, framework: str) -> None:
    answer = CliRunner().invoke(root, ["new", str(folder), "--framework", framework])
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_project_has_all_its_files_without_placeholders(framework: str, tmp_path: Path) -> None:
    folder = tmp_path / "mail-shop"
    create(folder, framework)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"README.md", "Dockerfile", "compose.yaml", "requirements.txt", ".gitignore", "systemd/worker.service"} <= names
    assert ("systemd/web.service" in names) == (framework != "none")
    assert any("test" in name for name in names)
    for name in names:
        assert "$" not in (folder / name).read_text(), name


@pytest.mark.parametrize(
    ("installed", "written"),
    [
        (None, "demora[postgres]"),
        ('{"url": "file:///clones/demora", "dir_info": {}}', "demora[postgres] @ file:///clones/demora"),
    ],
)
def test_a_project_installs_demora_from_where_it_was_installed(
    installed: str | None, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Distribution, "read_text", lambda self, name: installed)
    create(tmp_path / "shop", "none")
    assert written in (tmp_path / "shop" / "requirements.txt").read_text().splitlines()
    assert ("pip wheel" in (tmp_path / "shop" / "README.md").read_text()) == (installed is not None)


def test_a_folder_with_files_and_a_bad_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "jobs.py").write_text("mine")
    for name, said in (("full", "not an empty folder"), ("Bad Name", "cannot name a project")):
        answer = CliRunner().invoke(root, ["new", str(tmp_path / name)])
        assert answer.exit_code == 1
        assert said in answer.output
    assert (tmp_path / "full" / "jobs.py").read_text() == "mine"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_compose_file_starts_the_programs_of_the_project(framework: str, tmp_path: Path) -> None:
    folder = tmp_path / "mail-shop"
    create(folder, framework)
    compose, chosen = yaml.safe_load((folder / "compose.yaml").read_text()), FRAMEWORKS[framework]
    services = compose["services"]
    assert {name: service.get("command") for name, service in services.items()} == {"database": None} | {
        name: command.replace("127.0.0.1", "0.0.0.0")
        for name, command in (("web", chosen.web), ("worker", chosen.worker))
        if command
    }
    database = services.pop("database")
    url = urlsplit(
        f"postgresql://{database['environment']['POSTGRES_USER']}:{database['environment']['POSTGRES_PASSWORD']}@database/mail-shop"
    )
    for service in services.values():
        assert service["build"] == "."
        assert urlsplit(service["environment"]["DEMORA_DATABASE_URL"]) == url
        assert service["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "healthcheck" in database
    assert {volume.partition(":")[0] for volume in database["volumes"]} == set(compose["volumes"])
    assert services.get("web", {}).get("ports", ["8000:8000"]) == ["8000:8000"]
    assert "web" not in services or "0.0.0.0" in services["web"]["command"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_dockerfile_is_one(framework: str, tmp_path: Path) -> None:
    folder = tmp_path / "mail-shop"
    create(folder, framework)
    lines = [line.partition(" ") for line in (folder / "Dockerfile").read_text().splitlines()]
    assert [instruction for instruction, _, _ in lines] == ["FROM", "RUN", "WORKDIR", "COPY", "RUN", "COPY", "USER", "CMD"]
    *_, command = json.loads(lines[-1][2])
    assert command == f"exec {FRAMEWORKS[framework].worker}"
    copied = [
        word
        for instruction, _, words in lines
        if instruction == "COPY"
        for word in words.split()[:-1]
        if word[0] not in "-*"
    ]
    assert all((folder / path).exists() for path in copied)
    for _, _, words in lines:
        if words.startswith(("useradd", "pip")):
            assert subprocess.run(["sh", "-n", "-c", words], check=False).returncode == 0


def unit(folder: Path, name: str) -> configparser.SectionProxy:
    """Return the section of a unit that says how to run it."""
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(folder / "systemd" / name)
    assert parsed.sections() == ["Unit", "Service", "Install"]
    service = parsed["Service"]
    assert service["WorkingDirectory"] == f"/srv/{folder.name}"
    assert service["Restart"] == "always"
    return service


def started(folder: Path, name: str, port: int) -> list[str]:
    """The command of a unit, as `python -m` runs it here, on another port."""
    program = unit(folder, name)["ExecStart"].removeprefix(f"/srv/{folder.name}/.venv/bin/")
    words = shlex.split(program.replace("8000", str(port)))
    return ["manage", *words[2:]] if words[0] == "python" else words


def enqueue_as_the_page_says(folder: Path) -> str:
    """Run the command of the README that enqueues a job, and return the id that it prints."""
    [line] = re.findall(r"^demora enqueue .*$", (folder / "README.md").read_text(), re.M)
    command = [sys.executable, "-m", *shlex.split(line.replace("5s", "1s")), "--json"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return str(json.loads(run.stdout)["id"])


def called_as_the_page_says(folder: Path, port: int) -> str:
    """Run the command of the README that sends a mail, and return the answer."""
    [line] = re.findall(r"^curl .*$", (folder / "README.md").read_text(), re.M)
    words = shlex.split(line.replace("8000", str(port)))
    return subprocess.run([*words, "--fail", "--silent"], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_project_runs_and_its_test_passes(framework: str, tmp_path: Path) -> None:
    folder, output, port = tmp_path / "shop", tmp_path / "output", free_port()
    create(folder, framework)
    test = ["manage.py", "test"] if framework == "django" else ["-m", "pytest", "-q"]
    run = subprocess.run([sys.executable, *test], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    with ExitStack() as stack:
        worker = stack.enter_context(running(folder, *started(folder, "worker.service", port), output=output))
        if framework == "none":
            id = enqueue_as_the_page_says(folder)
        else:
            web = stack.enter_context(running(folder, *started(folder, "web.service", port), output=output))
            stack.enter_context(calling(port, web, output))
            id = json.loads(called_as_the_page_says(folder, port))[ID[framework]]
        [database] = folder.glob("*demora.db")
        with Demora(f"sqlite:///{database}").blocking as blocking:
            job = blocking.wait(id, "60s")
        assert (job.status, job.result) == (Status.COMPLETED, "sent to a@b.c"), output.read_text()
        assert job.worker_id or job.attempts, "a worker ran it"
    assert worker.returncode == 0, output.read_text()
