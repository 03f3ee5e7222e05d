"""`demora verify`: what it judges, with and without an audit, and what it says of a database that was tampered with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import Result

from demora.proof import HandlerEvent, write
from tests.cli.conftest import Run, answer, work_off

Enqueued = Callable[..., str]


@pytest.fixture
def with_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_AUDIT", "1")


def tamper(folder: Path, sql: str) -> None:
    db = apsw.Connection(str(folder / "demora.db"))
    db.execute("pragma ignore_check_constraints = on")
    db.execute(sql)
    db.close()


def rules(result: Result) -> dict[str, dict[str, Any]]:
    return {rule["rule"]: rule for rule in json.loads(result.stdout)["rules"]}


def test_a_sound_database_has_no_violations(run: Run, enqueued: Enqueued) -> None:
    work_off(enqueued(), enqueued("demo.fail", "--max-retries", "0"))
    found = run("verify")
    assert found.exit_code == 0
    assert found.stdout.splitlines()[0].split() == ["RULE", "PROMISE", "JUDGED", "BY", "VIOLATIONS"]
    assert found.stdout.splitlines()[-1] == "jobs: 2, events: 0, violations: none"


def test_without_an_audit_rows_are_judged_and_the_rest_is_named(run: Run, enqueued: Enqueued) -> None:
    enqueued()
    judged = rules(run("verify", "--json"))
    assert judged["I17"]["judgedBy"] == "rows, integrity check"
    assert (judged["I2"]["judgedBy"], judged["I2"]["whyNot"]) == (None, "needs an audit")
    assert {rule for rule, said in judged.items() if said["judgedBy"]} == {"I5", "I12", "I15", "I17"}


def test_a_rule_that_was_judged_and_kept_has_no_violations_and_one_that_was_not_says_nothing(
    run: Run, enqueued: Enqueued
) -> None:
    enqueued()
    told = {line.split()[0]: line.split()[-1] for line in run("verify").stdout.splitlines() if line.startswith("I")}
    assert (told["I5"], told["I2"]) == ("0", "audit")


@pytest.mark.usefixtures("with_audit")
def test_with_an_audit_the_lives_of_jobs_are_judged(run: Run, enqueued: Enqueued) -> None:
    work_off(enqueued("demo.echo", "--key", "k"))
    found = answer(run("verify", "--json"))
    judged = {rule["rule"] for rule in found["rules"] if rule["judgedBy"]}
    assert judged == {"I1", "I2", "I3", "I4", "I5", "I6", "I9", "I10", "I12", "I13", "I15", "I17"} | {"I19", "I20"}
    assert (found["ok"], found["counts"]["jobs"], found["counts"]["sql"]) == (True, 1, 4)


TAMPERED = {
    "I5": "update jobs set token = 9",
    "I17": "update jobs set lease_until = 5",
    "I12": "update jobs set status = 5, token = 1, credits = 1, completed_at = 1",
}


@pytest.mark.parametrize(("rule", "sql"), TAMPERED.items(), ids=TAMPERED)
def test_a_row_that_was_tampered_with_is_found(run: Run, enqueued: Enqueued, folder: Path, rule: str, sql: str) -> None:
    id = enqueued()
    tamper(folder, sql)
    found = run("verify")
    assert found.exit_code == 1
    assert f"{rule} " in found.stdout
    assert id in found.stdout
    assert rules(run("verify", "--json"))[rule]["violations"] >= 1


@pytest.mark.usefixtures("with_audit")
def test_a_job_that_vanished_is_found_with_its_events(run: Run, enqueued: Enqueued, folder: Path) -> None:
    id = enqueued()
    tamper(folder, "drop trigger audit_removed; delete from jobs")
    found = run("verify")
    assert found.exit_code == 1
    assert f"I1 no loss: job {id} was QUEUED by its last event and has no row" in found.stdout
    assert "sql     #1 added → QUEUED token 0" in found.stdout


@pytest.mark.usefixtures("with_audit")
def test_a_history_is_judged_together_with_the_database(run: Run, enqueued: Enqueued, folder: Path) -> None:
    write(folder / "h.jsonl", [HandlerEvent("start", enqueued(), 1, 0)])
    found = run("verify", "--history", "h.jsonl", "--json")
    assert found.exit_code == 1
    assert rules(found)["I3"]["violations"] == 1


def test_the_audit_can_be_ended(run: Run, enqueued: Enqueued, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_AUDIT", "true")
    enqueued()
    monkeypatch.delenv("DEMORA_AUDIT")
    enqueued()
    assert answer(run("verify", "--json", "--end-audit"))["counts"]["sql"] == 2
    enqueued()
    assert answer(run("verify", "--json"))["counts"]["sql"] == 0


def test_what_others_set_cannot_forge_a_line(run: Run, enqueued: Enqueued, folder: Path) -> None:
    enqueued("demo.echo", "--key", "k\x1b[31m\nforged")
    tamper(folder, "update jobs set token = 9, queue = 'a' || char(10) || 'forged'")
    assert not any(line.startswith("forged") for line in run("verify").stdout.splitlines())
