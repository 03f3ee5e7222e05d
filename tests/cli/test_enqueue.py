"""`demora enqueue`: what it stores, what it refuses, and where it says the trouble is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run, answer


def test_it_stores_every_option(run: Run) -> None:
    words = "--queue mail --priority high --max-retries 5 --retry-delay 2s --timeout 1m --tag a --tag b --name Hello"
    job = answer(run("enqueue", "email.send", '{"to":"a@b.c"}', *words.split(), "--delay", "1h", "--json"))
    assert (job["type"], job["payload"], job["queue"], job["priority"]) == ("email.send", {"to": "a@b.c"}, "mail", "HIGH")
    assert (job["maxRetries"], job["retryDelay"], job["timeout"]) == (5, 2000, 60_000)
    assert (job["tags"], job["name"], job["status"]) == (["a", "b"], "Hello", "QUEUED")
    assert answer(run("job", job["id"], "--json")) == job


def test_it_says_the_id_and_when_the_job_is_due(run: Run) -> None:
    said = run("enqueue", "demo.echo", "--delay", "5d").stdout
    assert "enqueued: demo.echo in queue default, due in 5d" in said


def test_a_time_needs_a_zone(run: Run) -> None:
    assert answer(run("enqueue", "demo.echo", "--at", "2099-01-31T09:00:00+01:00", "--json"))["scheduledAt"].startswith(
        "2099-01-31T08:00:00.000"
    )
    refused = run("enqueue", "demo.echo", "--at", "2099-01-31T09:00:00")
    assert refused.exit_code == 2
    assert "zone" in refused.stderr


@pytest.mark.parametrize("words", [("--at", "tomorrow"), ("--delay", "5"), ("--delay", "-5s"), ("--priority", "URGENT")])
def test_a_malformed_option_is_a_usage_error(run: Run, folder: Path, words: tuple[str, str]) -> None:
    refused = run("enqueue", "demo.echo", *words)
    assert refused.exit_code == 2
    assert words[0] in refused.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("--at", "2330-01-01T00:00:00Z"),
        ("--max-retries", "-1"),
        ("--retry-delay", "400d"),
        ("--timeout", "0s"),
        ("--queue", "a b"),
        ("--key", ""),
        ("--tag", ""),
        ("--name", ""),
        ("--webhook-url", "ftp://a.b"),
        ("--if-waiting", "keep"),
        ("--expires-in", "0s"),
        ("--expires-at", "2000-01-01T00:00:00Z"),
        ("--unique", ""),
    ],
)
def test_a_value_that_cannot_be_is_a_usage_error_that_names_the_option(run: Run, words: tuple[str, str]) -> None:
    refused = run("enqueue", "demo.echo", *words)
    assert refused.exit_code == 2
    assert f"Error: Invalid value for '{words[0]}': " in refused.stderr
    assert answer(run("jobs", "--json"))["jobs"] == []


def test_time_and_delay_exclude_each_other(run: Run) -> None:
    refused = run("enqueue", "demo.echo", "--at", "2099-01-01T00:00:00Z", "--delay", "1s")
    assert refused.exit_code == 2
    assert "Invalid value for '--delay': give either a time or a delay, not both" in refused.stderr


def test_the_payload_comes_from_a_file_or_standard_input(run: Run, folder: Path) -> None:
    (folder / "p.json").write_text('{"from": "file"}')
    assert answer(run("enqueue", "demo.echo", "@p.json", "--json"))["payload"] == {"from": "file"}
    assert answer(run("enqueue", "demo.echo", "-", "--json", input='{"from": "stdin"}'))["payload"] == {"from": "stdin"}


def test_a_payload_file_that_is_missing_is_named(run: Run) -> None:
    refused = run("enqueue", "demo.echo", "@missing.json")
    assert refused.exit_code == 1
    assert refused.stderr == "error: payload: cannot read missing.json: No such file or directory\n"


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        (b'{"a": 1,\n "b": }', "line 2, column 7"),
        (b'{"a": "\xff"}', "byte 7"),
        (b"[" * 200_000, "cannot be read as JSON"),
        (b'{"a": NaN}', "finite"),
        (b'{"a": 1e999}', "finite"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": "\\u0000"}', "NUL"),
        (b"[1]", "must be a JSON object"),
        (b'{"a": ' + b"9" * 5000 + b"}", "payload"),
    ],
)
def test_a_payload_that_cannot_be_stored_is_refused_in_one_line(run: Run, payload: bytes, where: str) -> None:
    run("migrate")
    refused = run("enqueue", "demo.echo", "-", input=payload)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: payload")
    assert where in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert answer(run("jobs", "--json"))["jobs"] == []


def test_the_same_key_gives_the_same_job(run: Run) -> None:
    first = answer(run("enqueue", "demo.echo", "--key", "k", "--json"))
    again = run("enqueue", "demo.echo", "--key", "k")
    assert again.stdout == f"{first['id']} already exists, no job added: demo.echo in queue default\n"
    other = run("enqueue", "demo.echo", '{"other":1}', "--key", "k")
    assert (other.exit_code, other.stderr.count("\n")) == (1, 1)


def test_with_an_app_its_defaults_and_its_types_apply(run: Run, folder: Path) -> None:
    (folder / "shop.py").write_text(
        'from demora import Demora\napp = Demora()\n\n\n@app.job("pay", queue="money", max_retries=9)\n'
        "def pay(cents: int) -> None: ...\n"
    )
    job = answer(run("enqueue", "pay", '{"cents": 5}', "--app", "shop:app", "--json"))
    assert (job["queue"], job["maxRetries"]) == ("money", 9)
    refused = run("enqueue", "pay", '{"cents": "five"}', "--app", "shop:app")
    assert refused.exit_code == 1
    assert "payload.cents" in refused.stderr


def test_without_an_app_any_well_formed_type_is_taken(run: Run, enqueued: Callable[..., str]) -> None:
    assert json.loads(run("job", enqueued("no.such:type"), "--json").stdout)["type"] == "no.such:type"
    refused = run("enqueue", "no such type")
    assert refused.exit_code == 2
    assert "Invalid value for 'TYPE': a type is" in refused.stderr
