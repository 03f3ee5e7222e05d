"""Settings: what each source may say, and what is told of a value that cannot be used."""

from pathlib import Path

import pytest

from demora.errors import BadSetting
from demora.settings import load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without a `demora.toml` yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


BAD_VARIABLES = {
    "DEMORA_KNOWN_TYPES_ONLY": ("maybe", "must be true or false"),
    "DEMORA_AUDIT": ("on", "must be true or false"),
    "DEMORA_PORT": ("http", "must be a whole number"),
    "DEMORA_CONCURRENCY": ("1.5", "must be a whole number"),
    "DEMORA_DATABASE_POOLER": ("maybe", "must be true or false"),
}


@pytest.mark.parametrize("name", BAD_VARIABLES)
def test_a_variable_that_cannot_be_used_is_told_what_would_be_right(name: str) -> None:
    value, reason = BAD_VARIABLES[name]
    with pytest.raises(BadSetting) as refused:
        load({name: value})
    assert str(refused.value) == f"{name}: {reason}"


BAD_LINES = {
    "audit = 1": "must be true or false",
    'known_types_only = "maybe"': "must be true or false",
    "port = 80.5": "must be a whole number",
    "concurrency = true": "must be a whole number",
    "host = 5": "must be text",
    "redis_url = 5": "must be text",
    "allowed_hosts = 5": "must be a list of names",
    "allowed_hosts = [5]": "must be a list of names",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_line_of_the_file_that_cannot_be_used_is_told_what_would_be_right(folder: Path, line: str) -> None:
    (folder / "demora.toml").write_text(line)
    with pytest.raises(BadSetting) as refused:
        load({})
    assert str(refused.value) == f"demora.toml: {line.split()[0]}: {BAD_LINES[line]}"


@pytest.mark.parametrize(("text", "meant"), [("true", True), ("1", True), ("False", False), ("0", False)])
def test_yes_and_no_are_words_or_digits_in_a_variable(text: str, meant: bool) -> None:
    assert load({"DEMORA_AUDIT": text}).audit is meant


def test_names_are_separated_by_commas_in_a_variable_and_listed_in_the_file(folder: Path) -> None:
    (folder / "demora.toml").write_text('allowed_hosts = ["a", "b"]')
    assert load({}).allowed_hosts == ("a", "b")
    assert load({"DEMORA_ALLOWED_HOSTS": "c,d"}).allowed_hosts == ("c", "d")


@pytest.mark.parametrize(
    ("name", "value"), [("database_schema", "My Jobs"), ("database_connections", 0), ("database_timeout", "1ms")]
)
def test_a_setting_of_postgresql_out_of_its_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(BadSetting, match=name):
        load({}, **{name: value})
