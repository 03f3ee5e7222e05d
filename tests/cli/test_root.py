"""`demora` itself: which database, which application, how trouble is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from demora import __version__
from demora.engines.sqlite.connection.connections import newest_schema
from tests.builders import NO_SUCH_ID
from tests.cli.conftest import Run, answer, leaves

HEAVY = "import sys; from demora.cli import root; root({words!r}, standalone_mode=False); assert 'rich' not in sys.modules"


def test_version_is_said(run: Run) -> None:
    assert run("--version").stdout == f"demora {__version__}\n"


def test_python_m_demora_is_demora(folder: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "demora", "--version"], capture_output=True, text=True, check=True, cwd=folder
    )
    assert said.stdout == f"demora {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["jobs", "--json"]], ids=" ".join)
def test_help_and_json_do_without_rich(run: Run, words: list[str]) -> None:
    run("migrate")
    subprocess.run([sys.executable, "-c", HEAVY.format(words=words)], check=True, capture_output=True)


def test_migrate_makes_the_database_and_says_its_version(run: Run, folder: Path) -> None:
    assert run("migrate").stdout == f"sqlite:///demora.db has schema {newest_schema()} now\n"
    assert run("migrate").stdout == f"sqlite:///demora.db already has schema {newest_schema()}\n"
    assert (folder / "demora.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "words", [("--database-url", "sqlite:///other.db", "migrate"), ("migrate", "--database-url", "sqlite:///other.db")]
)
def test_the_database_is_named_before_or_after_the_verb(run: Run, folder: Path, words: tuple[str, ...]) -> None:
    run(*words)
    assert [path.name for path in folder.glob("*.db")] == ["other.db"]


def test_an_option_goes_before_the_environment_and_that_before_the_file(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "demora.toml").write_text('database_url = "sqlite:///file.db"')
    assert "file.db" in run("migrate").stdout
    monkeypatch.setenv("DEMORA_DATABASE_URL", "sqlite:///variable.db")
    assert "variable.db" in run("migrate").stdout
    assert "option.db" in run("migrate", "--database-url", "sqlite:///option.db").stdout


def test_an_app_keeps_its_own_database_unless_told_otherwise(run: Run, folder: Path) -> None:
    (folder / "mine.py").write_text('from demora import Demora\napp = Demora("sqlite:///mine.db")\n')
    run("enqueue", "demo.echo", "--app", "mine:app")
    assert len(answer(run("jobs", "--database-url", "sqlite:///mine.db", "--json"))["jobs"]) == 1
    run("enqueue", "demo.echo", "--app", "mine:app", "--database-url", "sqlite:///told.db")
    assert len(answer(run("jobs", "--database-url", "sqlite:///told.db", "--json"))["jobs"]) == 1


def test_a_setting_that_cannot_be_used_is_told_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_PORT", "many")
    refused = run("migrate")
    assert (refused.exit_code, refused.stderr) == (1, "error: DEMORA_PORT: must be a whole number\n")


@pytest.mark.parametrize(
    "words",
    [
        ("worker", "--concurrency", "0"),
        ("worker", "--lease", "1ms"),
        ("worker", "--queues", "a,a"),
        ("worker", "--queues", "a=0"),
        ("worker", "--strict"),
        ("serve", "--port", "99999"),
        ("serve", "--concurrency", "0"),
        ("serve", "--host", "example.com"),
        ("jobs", "--cursor", "zz"),
        ("jobs", "--type", "a b"),
        ("retry", "--all", "--yes", "--status", "QUEUED"),
        ("queue", "mail", "--keep-completed", "soon"),
        ("queue", "mail", "--webhook-url", "ftp://a.b"),
        ("pause", "mail", "--reason", ""),
        ("reschedule", NO_SUCH_ID, "--at", "2330-01-01T00:00:00Z"),
    ],
)
def test_an_option_that_cannot_be_is_a_usage_error_in_every_command(run: Run, words: tuple[str, ...]) -> None:
    run("migrate")
    refused = run(*words)
    assert refused.exit_code == 2
    typed = next(word for word in reversed(words) if word.startswith("--"))
    assert f"Error: Invalid value for '{typed}': " in refused.stderr


def test_a_setting_that_breaks_a_rule_is_no_usage_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_CONCURRENCY", "0")
    refused = run("worker", "--lease", "5s")
    assert (refused.exit_code, refused.stderr) == (1, "error: DEMORA_CONCURRENCY: must be from 1 to 10000\n")


def test_a_database_that_no_engine_knows_is_refused(run: Run) -> None:
    for words in (("migrate", "--database-url", "mysql://somewhere"), ("--database-url", "mysql://somewhere", "jobs")):
        refused = run(*words)
        assert refused.exit_code == 2
        assert "Invalid value for '--database-url': no engine for 'mysql'" in refused.stderr


def test_a_command_needs_the_database_and_not_the_url_of_a_service(run: Run) -> None:
    refused = run("--database-url", "https://jobs.example", "jobs")
    assert refused.exit_code == 2
    assert "is the URL of a service, and this needs the database itself" in refused.stderr


ONE_SHOTS = [
    *("enqueue demo.echo", "jobs", f"job {NO_SUCH_ID}", "dead-letters", "queues", "queue mail", "workers"),
    *("stats", "events"),
    *(f"why {NO_SUCH_ID}", "pace mail"),
    *(f"cancel {NO_SUCH_ID}", f"retry {NO_SUCH_ID}", f"delete {NO_SUCH_ID}", f"reschedule {NO_SUCH_ID} --delay 1s"),
    *("pause mail", "resume mail", "migrate", "verify"),
    *("purge --status FAILED --older-than 7d --yes", "rebuild", "recover", "retry --all --yes", "doctor"),
    *(
        f"webhooks show {NO_SUCH_ID}",
        f"webhooks retry {NO_SUCH_ID}",
        "webhooks test https://example.com/",
        "webhooks disabled",
    ),
    *("webhooks enable https://example.com/", "webhooks secret create", "webhooks secret rotate", "webhooks secret list"),
    *("webhooks secret reveal", "webhooks secret forget abc", "webhooks listen --once --port 0"),
    *("keys create ci --scope read", "keys list", "keys rotate abcdefghijk1", "keys limit abcdefghijk1 --rate 1"),
    *("keys revoke abcdefghijk1", "keys forget abcdefghijk1"),
    *("schedules", "schedule add a demo.echo --every 90s", "schedule edit a --every 2m", "schedule show a"),
    *("schedule pause a", "schedule resume a", "schedule trigger a", "schedule remove a"),
    "schedule run a --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z",
]
NO_DATABASE = {"completion", "new"}


def test_every_command_that_does_not_stay_is_a_one_shot() -> None:
    called = {name for name in leaves() for words in ONE_SHOTS if f"{words} ".startswith(f"{name} ")}
    assert called == set(leaves()) - {"serve", "worker", "scheduler"} - NO_DATABASE


@pytest.mark.parametrize("words", ONE_SHOTS)
def test_a_command_that_does_not_stay_refuses_a_database_in_memory(run: Run, folder: Path, words: str) -> None:
    refused = run("--database-url", "sqlite://", *words.split())
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: a database in memory would be lost when this command ends")
    assert not list(folder.iterdir())


BAD_APPS = {
    "nosuchmodule_:app": "there is no module nosuchmodule_",
    "nosuchpackage_.sub:app": "there is no module nosuchpackage_.sub",
    "shop": "write module:app",
    "shop.py:app": "write module:app",
    "shop:": "write module:app",
    "shop:application": "module shop has no 'application'; write shop:app",
    "shop:cents": "shop:cents is a int, not an application; write shop:app",
    "empty:app": "write app = Demora() there and --app empty:app",
}


@pytest.mark.parametrize("spec", BAD_APPS)
def test_an_app_that_cannot_be_used_is_explained(run: Run, folder: Path, spec: str) -> None:
    (folder / "shop.py").write_text("from demora import Demora\napp = Demora()\ncents = 5\n")
    (folder / "empty.py").write_text("")
    refused = run("enqueue", "demo.echo", "--app", spec)
    assert refused.exit_code == 2
    assert BAD_APPS[spec] in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("source", "error"), [("1 / 0", "ZeroDivisionError"), ("import nosuchmodule_", "ModuleNotFoundError")]
)
def test_an_app_with_a_bug_of_its_own_shows_its_traceback(run: Run, folder: Path, source: str, error: str) -> None:
    (folder / "buggy_app.py").write_text(source)
    refused = run("enqueue", "demo.echo", "--app", "buggy_app:app")
    assert refused.exit_code == 1
    assert source in refused.stderr
    assert f"error: module buggy_app cannot be imported: {error}" in refused.stderr
    assert "importlib" not in refused.stderr


def test_an_unknown_command_is_a_usage_error(run: Run) -> None:
    assert run("explode").exit_code == 2


@pytest.mark.parametrize(("typed", "meant"), [("jbos", "jobs"), ("enque", "enqueue"), ("keys lst", "list")])
def test_a_misspelt_command_is_answered_with_the_nearest_one(run: Run, typed: str, meant: str) -> None:
    refused = run(*typed.split())
    assert refused.exit_code == 2
    assert f"there is no command '{typed.split()[-1]}'; did you mean {meant}?" in refused.stderr
