"""What holds for every command: exit codes as documented, and JSON from all that print data."""

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.builders import NO_SUCH_ID
from tests.cli.conftest import Run, leaves, work_off

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
CODES = dict(re.findall(r"^\| (\d+) \| (.+) \|$", REFERENCE, re.M))
NO_DATA = {
    "new",
    "serve",
    "worker",
    "scheduler",
    "completion",
    "webhooks listen",
}  # what they print is a log, a banner or a script


@pytest.mark.parametrize("name", sorted(set(leaves()) - NO_DATA))
def test_every_command_that_prints_data_prints_json_if_asked_to(name: str) -> None:
    options = [opt for param in leaves()[name].params if isinstance(param, click.Option) for opt in param.opts]
    assert "--json" in options


def test_the_exit_codes_are_in_one_table() -> None:
    assert list(CODES) == ["0", "1", "2", "78", "130"]


def test_exit_codes_are_as_documented(run: Run, enqueued: Callable[..., str]) -> None:
    id = enqueued("demo.fail", "--max-retries", "0")
    work_off(id)
    assert run("retry", "--all", "--dry-run").exit_code == 0
    assert run("retry", "--queue", "mail", "--yes").exit_code == 0  # nothing matched, nothing was to be done
    assert run("retry", NO_SUCH_ID).exit_code == 1
    assert run("retry", "--all").exit_code == 2
    assert run("enqueue", "demo.echo", "--max-retries", "-1").exit_code == 2
    assert run("enqueue", "demo.echo", "[1]").exit_code == 1
    assert run("doctor").exit_code == 0


@pytest.mark.parametrize("words", [("migrate",), ("pause", "mail"), ("resume", "paused")])
def test_what_changes_something_says_how_it_is_now_as_json(run: Run, words: tuple[str, ...]) -> None:
    run("migrate")
    run("pause", "paused")
    said = run(*words, "--json")
    assert (said.exit_code, said.stdout.count("\n")) == (0, 1)
    assert said.stdout.startswith('{"')
