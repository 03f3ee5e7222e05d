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


def test_a_secret_that_is_none_is_refused_without_being_repeated() -> None:
    for text in ("canary", "whsec_canary", "whsec_c2hvcnQ="):
        with pytest.raises(BadSetting) as refused:
            load({"DEMORA_WEBHOOK_SECRET": text})
        assert "webhook_secret: must be whsec_" in str(refused.value)
        assert "canary" not in str(refused.value)


def test_several_secrets_may_be_given_while_one_is_being_replaced() -> None:
    one, other = "whsec_" + "A" * 32, "whsec_" + "B" * 32
    for between in (" ", ",", ", "):
        assert len(load({"DEMORA_WEBHOOK_SECRET": one + between + other}).webhook_secrets) == 2
    assert load({}).webhook_secrets == ()


def test_networks_are_opened_by_name_and_nonsense_is_refused() -> None:
    policy = load({"DEMORA_OUTBOUND_ALLOW": "127.0.0.0/8, 10.1.0.0/16", "DEMORA_OUTBOUND_HTTP": "true"}).outbound
    assert ([str(network) for network in policy.allowed], policy.plain_http) == (["127.0.0.0/8", "10.1.0.0/16"], True)
    for name, value in {"ALLOW": "localhost", "TIMEOUT": "1h", "PER_HOST": "0"}.items():
        with pytest.raises(BadSetting, match=f"outbound_{name.lower()}"):
            load({f"DEMORA_OUTBOUND_{name}": value})
