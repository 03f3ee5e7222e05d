"""Passwords in URLs, values of payloads, hostile characters: none of them comes out in a log, an error or on a terminal."""

import contextlib
import itertools
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner

from demora import Demora
from demora.cli import root
from demora.cli.output import escaped
from demora.core.dsn import read, without_secrets
from demora.core.states import Status
from demora.engines.options import driver_url
from demora.engines.postgres.connection import connections
from demora.errors import BadSetting
from demora.line.redis.connections import driver_url as redis_driver_url
from demora.system import error_texts, notices
from demora.system.log_limit import MINUTE, MOST_SUBJECTS, Limit
from tests.hostile.commands import demora, running
from tests.secrets_in_urls import CANARY, leaked, urls

POSTGRES = urls("postgresql", "127.0.0.1:1/db")
REDIS = [url for scheme in ("redis", "rediss", "valkey") for url in urls(scheme, "127.0.0.1:1/0")]
# Every command that opens a database, with words that let it come so far.
COMMANDS = [["jobs"], ["enqueue", "a"], ["doctor"], ["migrate"], ["keys", "list"], ["why", "x"], ["queues"], ["verify"]]


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DEMORA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("variable", "found"), [("DEMORA_DATABASE_URL", POSTGRES), ("DEMORA_REDIS_URL", REDIS[: len(POSTGRES)])]
)
def test_no_command_shows_a_password_whatever_signs_it_has(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, found: list[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for number, url in enumerate(found):
        monkeypatch.setenv(variable, url)
        result = CliRunner().invoke(root, COMMANDS[number % len(COMMANDS)], prog_name="demora")
        assert not leaked(result.stdout + result.stderr + caplog.text), url
        caplog.clear()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("worker",), ("serve", "--port", "0"), ("scheduler",)], ids=lambda words: words[0])
def test_a_process_that_stays_shows_no_password(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = demora(tmp_path, *words, DEMORA_DATABASE_URL=f"postgresql://u:{CANARY}#{CANARY}@127.0.0.1:1/db")
    assert refused.returncode == 1
    assert "contains a #, which ends a URL" in refused.stderr
    assert not leaked(refused.stdout + refused.stderr)
    line = f"redis://u:{CANARY}%23%2F%40%3F%25@127.0.0.1:1/0"
    with running(tmp_path, *words, DEMORA_REDIS_URL=line, DEMORA_LOG_LEVEL="DEBUG") as process:
        process.until("line is unavailable")
        process.process.terminate()
        process.process.wait(60)
        assert not leaked(process.said)


@pytest.mark.parametrize("url", POSTGRES + REDIS)
def test_a_url_is_read_without_loss_or_refused_without_showing_it(url: str) -> None:
    with contextlib.suppress(BadSetting):
        assert read(driver_url(url), "x").url() == driver_url(url)
    assert not leaked(refusal(driver_url, url) + refusal(redis_driver_url, url))
    if (
        "://u:" in url
        or "?password=" in url
        or (url.startswith("redis") and ":" not in url.partition("://")[2].rpartition("@")[0])
    ):
        assert not leaked(without_secrets(url))  # but the name of a user may be shown


def refusal(take: Callable[[str], object], url: str) -> str:
    try:
        take(url)
    except BadSetting as problem:
        return f"{problem} {problem.__cause__ or ''}"
    return ""


@pytest.mark.parametrize("sign", ["#", "/", "@", "?", "%", ":", "[", "é"])
def test_a_password_that_is_encoded_reaches_the_driver_as_it_is(sign: str) -> None:
    encoded = "".join(f"%{byte:02X}" for byte in sign.encode())
    taken = driver_url(f"postgresql://me:a{encoded}b@host:5433/db?sslmode=require")
    assert read(taken, "x").password == f"a{sign}b"
    assert taken.endswith("@host:5433/db?sslmode=require")


def test_what_a_driver_says_of_values_is_not_repeated() -> None:
    refused = asyncpg.DataError(f"invalid input for query argument $1: {CANARY!r}")
    assert not leaked(str(connections.translate(refused)))
    broken = asyncpg.CheckViolationError("new row violates check constraint")
    broken.detail = f"Failing row contains ({CANARY})."
    assert leaked(str(broken))
    assert str(connections.translate(broken)) == "PostgreSQL: new row violates check constraint"


# Texts of errors

JOBS = f"""
import logging
from demora import Demora

app = Demora()

@app.job("fails")
async def fails(secret: str) -> None:
    held_in_a_local = secret + "{CANARY}"
    try:
        {{}}[secret]
    except KeyError:
        logging.getLogger("shop").exception("cannot")
        raise ValueError(secret) from None

@app.job("fails.apart", process=True)
def apart(secret: str) -> None:
    try:
        raise KeyError(secret)
    except KeyError:
        logging.getLogger("shop").exception("cannot")
        raise
"""


@pytest.mark.slow
@pytest.mark.parametrize(("style", "shown"), [("class", False), ("text", True)])
@pytest.mark.parametrize("format", ["text", "json"])
async def test_texts_of_errors_can_be_kept_out_of_the_log(tmp_path: Path, style: str, shown: bool, format: str) -> None:
    (tmp_path / "shop.py").write_text(JOBS.replace("{CANARY}", "local-value"))
    secrets = {type: f"{CANARY}-{type}" for type in ("fails", "fails.apart")}
    async with Demora(f"sqlite:///{tmp_path}/demora.db") as app:
        await app.enqueue_many([(type, {"secret": secret}, {"max_retries": 0}) for type, secret in secrets.items()])
    given = {"DEMORA_LOG_ERRORS": style, "DEMORA_LOG_FORMAT": format}
    with running(tmp_path, "worker", "--app", "shop:app", **given) as worker:
        for _ in secrets:
            worker.until("now FAILED")
        said = worker.end()
    assert said.count("Traceback") >= len(secrets)
    assert "KeyError" in said
    assert leaked(said) == shown
    assert [secret in said for secret in secrets.values()] == [shown, shown]
    assert "held_in_a_local" not in said  # no line of code with it is on the way, and no value of it


def test_a_chain_of_errors_is_told_by_classes_alone() -> None:
    error_texts.configure("class")
    try:
        try:
            raise KeyError(CANARY)
        except KeyError as first:
            raise OSError(CANARY) from first
    except OSError as problem:
        text = error_texts.of_traceback((OSError, problem, problem.__traceback__))
        brief = error_texts.of_error(problem)
    finally:
        error_texts.configure("text")
    assert not leaked(text)
    assert brief == "OSError (KeyError)"
    assert [line for line in text.splitlines() if line.endswith("Error")] == ["KeyError", "OSError"]


# How much the log says


async def test_jobs_of_thousands_of_unknown_types_write_a_bounded_number_of_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_unknown", Limit(lasting=True))
    caplog.set_level(logging.WARNING, "demora")
    app = Demora("sqlite://")
    async with app:
        await app.enqueue_many([(f"unknown.{n % 1500}", {}) for n in range(3000)])
        behind = await app.enqueue("demo.echo")
        async with app.worker(concurrency=500):
            assert (await app.wait(behind.id)).status is Status.COMPLETED
    lines = [record for record in caplog.records if getattr(record, "event", "").startswith("type.unknown")]
    assert MOST_SUBJECTS < len(lines) <= MOST_SUBJECTS + 2
    assert len(notices._unknown._subjects) == MOST_SUBJECTS


def test_a_type_is_named_once_with_the_remedy(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = itertools.count(0.0, MINUTE)
    monkeypatch.setattr(notices, "_unknown", Limit(lambda: next(minutes), lasting=True))
    caplog.set_level(logging.INFO, "demora")
    for _ in range(5):
        notices.type_unknown("a")
    assert [(record.levelname, record.__dict__["event"]) for record in caplog.records] == [("WARNING", "type.unknown")]
    assert "--app module:app" in caplog.records[0].getMessage()


# What a terminal is shown

UNSEEN = "\x80\x85\x9b\x9f\x7f\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u2028"


def test_json_escapes_what_would_move_the_cursor_or_turn_the_text() -> None:
    text = json.dumps({"a": UNSEEN + "é ü 漢 🎉"}, ensure_ascii=False)
    assert json.loads(escaped(text)) == json.loads(text)
    assert not set(UNSEEN) & set(escaped(text))
    assert "é ü 漢 🎉" in escaped(text)


@pytest.mark.parametrize("words", [["jobs"], ["jobs", "--json"], ["job", "ID"], ["job", "ID", "--json"], ["why", "ID"]])
def test_no_command_prints_what_others_set_as_it_is(words: list[str]) -> None:
    enqueue = ["enqueue", "mail.send", json.dumps({"a": UNSEEN}), "--name", f"n{UNSEEN}", "--tag", f"t{UNSEEN}", "--json"]
    made = CliRunner().invoke(root, enqueue, prog_name="demora")
    assert not set(UNSEEN) & set(made.stdout)
    job = json.loads(made.stdout)
    assert (job["name"], job["tags"]) == (f"n{UNSEEN}", [f"t{UNSEEN}"])
    shown = CliRunner().invoke(root, [job["id"] if word == "ID" else word for word in words], prog_name="demora")
    assert shown.exit_code == 0, shown.output
    assert not set(UNSEEN) & set(shown.stdout + shown.stderr)
