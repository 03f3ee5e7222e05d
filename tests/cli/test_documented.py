"""Every command, option and setting is in the reference."""

import re
from pathlib import Path

import click
import pytest

from demora.cli import root
from demora.settings import Settings
from tests.cli.conftest import leaves

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", (REFERENCE / "cli.md").read_text(), re.M | re.S))
SHARED = SECTIONS["For every command"]
COMMANDS = leaves()


def options(command: click.Command) -> list[str]:
    given = [param for param in command.params if isinstance(param, click.Option)]
    return [name for option in given for name in (*option.opts, *option.secondary_opts)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    section = SECTIONS[f"demora {name}"]
    missing = [option for option in options(COMMANDS[name]) if f"| `{option}` |" not in section + SHARED]
    assert not missing


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_documented_that_a_command_does_not_take(name: str) -> None:
    documented = re.findall(r"^\| `(--[a-z-]+)` \|", SECTIONS[f"demora {name}"], re.M)
    assert set(documented) <= set(options(COMMANDS[name]))


def test_the_options_of_demora_itself_are_documented() -> None:
    assert all(f"`{option}`" in SHARED for option in options(root))


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_is_documented_with_its_variable(name: str) -> None:
    assert f"| `{name}` | `DEMORA_{name.upper()}` |" in (REFERENCE / "settings.md").read_text()
