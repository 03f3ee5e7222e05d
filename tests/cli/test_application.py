"""Which application a command uses, and what it says where its code and the settings name different databases."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start, answer, read_until

OTHER = "the code of the application says sqlite:///mine.db, so its jobs are there, and not in sqlite:///theirs.db of "


@pytest.fixture
def mine(folder: Path) -> str:
    """An application whose code names its database."""
    (folder / "mine.py").write_text('from demora import Demora\napp = Demora("sqlite:///mine.db")\n')
    return "mine:app"


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that names another database."""
    monkeypatch.setenv("DEMORA_DATABASE_URL", "sqlite:///theirs.db")


@pytest.mark.slow
@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize("words", ["migrate", "enqueue demo.echo", "scheduler", "worker", "serve --port 0"])
def test_every_command_says_that_code_and_settings_name_two_databases(start: Start, mine: str, words: str) -> None:
    said = read_until(start(*words.split(), "--app", mine), OTHER)
    assert f"{OTHER}DEMORA_DATABASE_URL; commands without --app look at the second" in said


@pytest.mark.usefixtures("theirs")
def test_the_application_counts_wherever_it_is_named(run: Run, mine: str) -> None:
    run("enqueue", "demo.echo", "--app", mine)
    assert len(answer(run("jobs", "--app", mine, "--json"))["jobs"]) == 1
    assert len(answer(run("--app", mine, "jobs", "--json"))["jobs"]) == 1
    assert run("jobs").exit_code == 1


def test_the_doctor_warns_of_two_databases(run: Run, mine: str, folder: Path) -> None:
    (folder / "demora.toml").write_text('app = "mine:app"\ndatabase_url = "sqlite:///theirs.db"\n')
    run("migrate")
    found = [one for one in json.loads(run("doctor", "--json").stdout)["findings"] if one["check"] == "application"]
    assert [one["level"] for one in found] == ["warning"]
    assert "its code says sqlite:///mine.db, and demora.toml: database_url says sqlite:///theirs.db" in found[0]["fact"]


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ((), "sqlite:///mine.db"),
        ((), "sqlite:///{folder}/mine.db"),
        (("--database-url", "sqlite:///told.db"), "sqlite:///theirs.db"),
    ],
    ids=["the same", "the same file", "an option decides"],
)
def test_one_database_needs_no_warning(
    run: Run,
    mine: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    words: tuple[str, ...],
    url: str,
) -> None:
    monkeypatch.setenv("DEMORA_DATABASE_URL", url.format(folder=folder))
    run("enqueue", "demo.echo", "--app", mine, *words)
    assert not caplog.records
    assert '"application"' not in run("doctor", "--json", "--app", mine, *words).stdout


def test_the_settings_name_the_application_of_every_command(run: Run, mine: str, folder: Path) -> None:
    (folder / "demora.toml").write_text(f'app = "{mine}"\n')
    run("enqueue", "demo.echo")
    assert len(answer(run("jobs", "--json"))["jobs"]) == 1
    assert [path.name for path in folder.glob("*.db")] == ["mine.db"]


def test_a_typed_database_can_be_looked_at_although_the_application_cannot_be_imported(run: Run, folder: Path) -> None:
    run("migrate")
    (folder / "demora.toml").write_text('app = "nosuchmodule_:app"\n')
    refused = run("jobs")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "error: app: there is no module nosuchmodule_ in this folder or on the Python path; write module:app\n",
    )
    assert run("jobs", "--database-url", "sqlite:///demora.db").exit_code == 0


def test_a_mistyped_type_is_refused_with_the_one_that_the_application_has(run: Run, folder: Path) -> None:
    (folder / "shop.py").write_text('from demora import Demora\napp = Demora()\n@app.job("thumb.make")\ndef make(): ...\n')
    refused = run("enqueue", "thumb.mak", "--app", "shop:app")
    assert refused.exit_code == 1
    assert refused.stderr == "error: no handler is registered for type 'thumb.mak'; did you mean thumb.make?\n"
    assert not answer(run("jobs", "--json"))["jobs"]
    assert run("enqueue", "parcel.weigh", "--app", "shop:app").exit_code == 0
    assert run("enqueue", "thumb.mak").exit_code == 0
