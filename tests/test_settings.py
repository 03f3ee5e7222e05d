"""Settings: what each source may say, and what is told of a value that cannot be used."""

from pathlib import Path

import pytest

from demora.core.pace import Pace, make_pace_request
from demora.errors import BadSetting
from demora.settings import load, nearest, troubles, unknown_variables


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without a `demora.toml` yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


BAD_VARIABLES = {
    "DEMORA_LINE_HORIZON": ("30s", "must be from 1m to 1d"),
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


def test_a_value_out_of_its_range_is_told_with_what_gave_it(folder: Path) -> None:
    (folder / "demora.toml").write_text("port = 70000")
    for environment, given, source in (
        ({"DEMORA_CONCURRENCY": "0", "DEMORA_PORT": "1"}, {}, "DEMORA_CONCURRENCY"),
        ({"DEMORA_CONCURRENCY": "5", "DEMORA_PORT": "1"}, {"concurrency": 0}, "concurrency"),
        ({}, {}, "demora.toml: port"),
    ):
        with pytest.raises(BadSetting, match=f"^{source}: must be from "):
            load(environment, **given)
        assert [problem.name for problem in troubles(environment, **given)] == [source]


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


@pytest.mark.parametrize("name", ["DATABASE_URL", "DATABASE_LISTEN_URL"])
def test_a_parameter_of_a_url_that_cannot_be_followed_is_refused_by_its_name(name: str) -> None:
    for query, said in (
        ("sslmode=require&channel_binding=require", "the driver does not support this value of channel_binding"),
        ("requirepeer=postgres", "the driver does not support this value of requirepeer"),
        ("conect_timeout=5", "the first parameter after its question mark is unknown: remove it"),
        ("canary@host/db", "the first parameter after its question mark has no ="),
    ):
        with pytest.raises(BadSetting, match=f"^DEMORA_{name}: {said}") as refused:
            load({f"DEMORA_{name}": f"postgresql://me@host/db?{query}"})
        assert "canary" not in str(refused.value)
    assert load({"DEMORA_DATABASE_URL": "postgresql://me@host/db?sslmode=require&connect_timeout=5"}).database_url


def test_a_misspelt_variable_is_found_and_what_was_meant_is_told() -> None:
    environment = dict.fromkeys(("DEMORA_DATABSE_URL", "DEMORA_PORT", "DEMORA_LIFELINE", "DEMORA_CRASH", "DEMORA_ZZZ"), "x")
    assert unknown_variables(environment) == ["DEMORA_DATABSE_URL", "DEMORA_ZZZ"]
    assert (nearest("DEMORA_DATABSE_URL"), nearest("DEMORA_ZZZ")) == ("DEMORA_DATABASE_URL", None)


# Paces


def test_a_queue_has_its_pace_from_a_variable_of_its_own(tmp_path: Path) -> None:
    variables = {"DEMORA_PACE_MAIL": "gap=2m burst=3", "DEMORA_PACE_Reports": "off"}
    assert load(variables).pace == {"mail": make_pace_request(gap="2m", burst=3), "Reports": None}
    assert unknown_variables(variables) == []


def test_several_queues_have_their_paces_from_one_variable_or_a_table(tmp_path: Path) -> None:
    expected = {"mail": make_pace_request(gap="2m", burst=3), "web": None}
    assert load({"DEMORA_PACE": "mail gap=2m burst=3; web off"}).pace == expected
    file = tmp_path / "own.toml"
    file.write_text('[pace]\nweb = "off"\n[pace.mail]\ngap = "2m"\nburst = 3\n')
    assert load({"DEMORA_CONFIG": str(file)}).pace == expected
    both = {"DEMORA_CONFIG": str(file), "DEMORA_PACE_WEB": "burst=9"}
    assert load(both).pace == {**expected, "web": make_pace_request(burst=9)}


def test_all_queues_have_a_pace_from_one_variable_or_the_file(tmp_path: Path) -> None:
    every = make_pace_request(gap="3m", burst=5)
    assert load({"DEMORA_PACE": "gap=3m burst=5"}).pace == {"*": every}
    assert load({"DEMORA_PACE": "gap=3m burst=5; mail off"}).pace == {"*": every, "mail": None}
    assert load({"DEMORA_PACE": "* gap=3m burst=5", "DEMORA_PACE_MAIL": "off"}).pace == {"*": every, "mail": None}
    assert load({"DEMORA_PACE": "off"}).pace == {"*": None}
    file = tmp_path / "own.toml"
    file.write_text('[pace]\n"*" = "gap=3m burst=5"\nmail = "off"\n')
    assert load({"DEMORA_CONFIG": str(file)}).pace == {"*": every, "mail": None}
    with pytest.raises(BadSetting, match="DEMORA_PACE: of all queues: stagger: 5 releases 1m apart take 5m"):
        load({"DEMORA_PACE": "gap=3m burst=5 stagger=1m"})


def test_the_variables_of_the_sources_give_all_queues_a_pace(tmp_path: Path) -> None:
    assert load({"DELAYED_JOB_GAP_SECONDS": "180"}).pace == {"*": make_pace_request(gap="3m")}
    assert load({"MAX_DELAYED_JOBS_PER_CYCLE": "5"}).pace == {"*": make_pace_request(burst=5)}
    assert load({"RAPID_GAP_WHEN_EMPTY_SECONDS": "20"}).pace == {"*": make_pace_request(rapid_gap="20s")}
    both = {"DELAYED_JOB_GAP_SECONDS": "180", "DEMORA_PACE_MAIL": "burst=1"}
    assert load(both).pace == {"*": make_pace_request(gap="3m"), "mail": make_pace_request(burst=1)}
    for own in ("gap=1m", "off"):
        assert load({"DELAYED_JOB_GAP_SECONDS": "180", "DEMORA_PACE": own}).pace == load({"DEMORA_PACE": own}).pace
    assert load({"DELAYED_JOB_GAP_SECONDS": "180", "DEMORA_PACE": "mail off"}).pace == {
        "*": make_pace_request(gap="3m"),
        "mail": None,
    }


def test_the_variables_of_the_sources_are_the_usual_pace(tmp_path: Path) -> None:
    variables = {
        "DELAYED_JOB_GAP_SECONDS": "180",
        "MAX_DELAYED_JOBS_PER_CYCLE": "5",
        "RAPID_GAP_WHEN_EMPTY_SECONDS": "20",
        "RAPID_MAX_JOBS_WHEN_EMPTY": "7",
    }
    usual = load(variables).usual_pace
    assert (usual.gap.total_seconds(), usual.burst, usual.rapid and usual.rapid.burst) == (180, 5, 7)
    assert load({**variables, "DEMORA_USUAL_PACE": "burst=1"}).usual_pace == Pace(burst=1)


def test_a_stagger_that_does_not_fit_is_refused_with_its_variable() -> None:
    said = "DEMORA_PACE_MAIL: of queue mail: stagger: 5 releases 30s apart take 2m30s, longer than the gap of 2m; "
    with pytest.raises(BadSetting, match=said):
        load({"DEMORA_PACE_MAIL": "burst=5 stagger=30s"})
    assert load({"DEMORA_PACE_MAIL": "burst=5"}).pace == {"mail": make_pace_request(burst=5)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gap=2", "gap: '2' is not a span"),
        ("mail", "write for instance 'gap=2m burst=3 stagger=30s', or 'off'"),
        ("speed=1", "'speed' is not a part of a pace; give gap, burst"),
    ],
)
def test_a_pace_that_cannot_be_used_is_refused_with_its_variable(text: str, said: str) -> None:
    with pytest.raises(BadSetting, match=f"DEMORA_PACE_MAIL: of queue mail: {said}"):
        load({"DEMORA_PACE_MAIL": text, "DEMORA_PACE_WEB": ""})


def test_a_table_that_cannot_be_used_is_refused_with_its_queue(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    for text, said in (("gap = 5", "gap: a span is"), ("protect = 5", "protect: must be a list of queues")):
        file.write_text(f"[pace.mail]\n{text}\n")
        with pytest.raises(BadSetting, match=f"pace: of queue mail: {said}"):
            load({"DEMORA_CONFIG": str(file)})


def test_a_variable_of_the_sources_that_is_no_number_is_refused() -> None:
    with pytest.raises(BadSetting, match="DELAYED_JOB_GAP_SECONDS: must be a whole number, not 'soon'"):
        load({"DELAYED_JOB_GAP_SECONDS": "soon"})


def test_a_secret_that_is_none_is_refused_without_being_repeated() -> None:
    for text in ("canary", "whsec_canary", "whsec_c2hvcnQ="):
        with pytest.raises(BadSetting) as refused:
            load({"DEMORA_WEBHOOK_SECRET": text})
        assert "DEMORA_WEBHOOK_SECRET: must be whsec_" in str(refused.value)
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
        with pytest.raises(BadSetting, match=f"DEMORA_OUTBOUND_{name}: "):
            load({f"DEMORA_OUTBOUND_{name}": value})
