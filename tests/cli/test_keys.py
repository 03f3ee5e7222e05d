"""`demora keys`: what it prints, where, and what it never prints."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from demora.core.access import Scope
from tests.cli.conftest import Run, Start, answer, read_until
from tests.facts import eventually

TEXT = re.compile(r"dmr_([a-z0-9]{12})_([A-Za-z0-9]{43})\n")
DEADLINE = 30.0


def create(run: Run, *words: str) -> tuple[str, str]:
    """The id and the text of a new key."""
    made = run("keys", "create", *(words or ("ci", "--scope", "read")))
    assert made.exit_code == 0, made.stderr
    form = TEXT.fullmatch(made.stdout)
    assert form is not None
    return form[1], form[0].strip()


def listed(run: Run) -> list[dict[str, Any]]:
    keys: list[dict[str, Any]] = answer(run("keys", "list", "--json"))["keys"]
    return keys


def test_a_new_key_is_all_that_create_prints_and_what_it_may_is_said_beside_it(run: Run) -> None:
    made = run("keys", "create", "ci", "--scope", "read", "--scope", "submit", "--expires-in", "90d")
    form = TEXT.fullmatch(made.stdout)
    assert form is not None
    assert made.stderr == f"key {form[1]} (ci) may submit, read, for 90d; store it now, it is not shown again\n"


def test_create_prints_the_key_once_as_json(run: Run) -> None:
    made = answer(run("keys", "create", "ci", "--scope", "admin", "--json"))
    text = made.pop("key")
    assert TEXT.fullmatch(f"{text}\n")
    assert listed(run) == [made]
    assert (made["scopes"], made["state"], made["expiresAt"], made["lastUsedAt"]) == (["admin"], "in force", None, None)


def test_nothing_shows_a_key_again(run: Run, folder: Path) -> None:
    id, text = create(run)
    secret = text.rpartition("_")[2]
    shown = [run("keys", *words).output for words in (("list",), ("list", "--json"), ("revoke", id), ("list",))]
    shown += [run("keys", "revoke", text).output, run("keys", "forget", text).output]
    assert all(shown)
    assert [one for one in shown if secret in one] == []
    assert all(secret.encode() not in path.read_bytes() for path in folder.glob("demora.db*") if path.is_file())


def test_two_keys_are_never_the_same(run: Run) -> None:
    assert len({part for _ in range(20) for part in create(run)}) == 40


def test_a_list_says_who_may_what_until_when(run: Run) -> None:
    assert run("migrate").exit_code == 0
    assert run("keys", "list").stdout == "no API keys; demora keys create creates one\n"
    gone, _ = create(run, "old\n", "--scope", "operate")
    kept, _ = create(run, "ci", "--scope", "read", "--scope", "submit", "--expires-in", "3d")
    run("keys", "revoke", gone)
    header, first, second = run("keys", "list").stdout.splitlines()
    assert header.split() == ["ID", "NAME", "SCOPES", "STATE", "CREATED", "LAST", "USED", "EXPIRES"]
    assert [first.split()[:4], second.split()[:3]] == [[gone, "old\\n", "operate", "revoked"], [kept, "ci", "submit,read"]]
    assert re.search(r"in force .* never +in 3d", second)


def test_a_key_is_revoked_once_and_for_good(run: Run) -> None:
    id, _ = create(run)
    assert run("keys", "revoke", id).stdout == f"{id} (ci) is revoked\n"
    [before] = listed(run)
    assert answer(run("keys", "revoke", id, "--json")) == before
    assert before["state"] == "revoked"


def test_only_a_revoked_key_is_forgotten(run: Run) -> None:
    id, _ = create(run)
    refused = run("keys", "forget", id)
    assert (refused.exit_code, refused.stderr) == (
        1,
        "error: this API key is still in force; revoke it first (demora keys revoke)\n",
    )
    run("keys", "revoke", id)
    other, _ = create(run)
    run("keys", "revoke", other)
    assert run("keys", "forget", id).stdout == f"{id} is forgotten\n"
    assert run("keys", "forget", other).stdout == (
        f"{other} is forgotten; it was the last key, so a service on 127.0.0.1 now requires none\n"
    )
    assert listed(run) == []


@pytest.mark.parametrize("verb", ["revoke", "forget", "rotate"])
@pytest.mark.parametrize("id", ["abcdefghijk1", "", "no id", "é", "\udcff"])
def test_an_id_that_no_key_has_is_not_told_back(run: Run, verb: str, id: str) -> None:
    create(run)
    refused = run("keys", verb, id)
    assert (refused.exit_code, refused.stderr) == (1, "error: no API key has this id; demora keys list shows them\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ci",), 2),
        (("ci", "--scope", "root"), 2),
        (("ci", "--scope", "read", "--expires-in", "90"), 2),
        (("ci", "--scope", "read", "--expires-in", "0s"), 2),
        (("", "--scope", "read"), 2),
        (("ci", "--scope", "submit", "--queue", "a*b*c"), 2),
        (("ci", "--scope", "submit", "--max-queues", "-1"), 2),
        (("ci", "--scope", "submit", "--namespace", "a b"), 2),
        (("x" * 201, "--scope", "read"), 2),
    ],
)
def test_a_key_that_cannot_be_made_is_refused(run: Run, words: tuple[str, ...], code: int) -> None:
    refused = run("keys", "create", *words)
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert refused.stderr
    run("migrate")
    assert listed(run) == []


def test_a_key_that_only_submits_has_its_own_namespace_and_the_limits_that_it_was_given(run: Run) -> None:
    words = ("--queue", "mail.*", "--queue", "news", "--type", "email.*", "--max-queues", "5", "--max-types", "0")
    made = answer(run("keys", "create", "ci", "--scope", "submit", *words, "--max-waiting", "9", "--rate", "7", "--json"))
    assert made["namespace"] == made["id"]
    numbers = {"maxQueues": 5, "maxTypes": 0, "maxWaiting": 9, "rate": 7}
    assert made["limits"] == {**numbers, "queues": ["mail.*", "news"], "types": ["email.*"]}
    create(run, "other", "--scope", "submit", "--namespace", "shop")
    create(run, "third", "--scope", "submit", "--namespace", "")
    assert [key["namespace"] for key in listed(run)][1:] == ["shop", ""]


def test_limits_are_changed_one_by_one(run: Run) -> None:
    id, _ = create(run, "ci", "--scope", "submit", "--max-queues", "5", "--queue", "a")
    assert run("keys", "limit", id, "--max-types", "3").stdout == f"{id} (ci) has new limits\n"
    changed = answer(run("keys", "limit", id, "--queue", "*", "--json"))
    assert changed == listed(run)[0]
    assert (changed["limits"]["maxQueues"], changed["limits"]["maxTypes"], changed["limits"]["queues"]) == (5, 3, ["*"])
    refused = run("keys", "limit", id)
    assert (refused.exit_code, "give at least one limit" in refused.stderr) == (2, True)


def test_a_rotated_key_keeps_all_but_its_secret(run: Run, folder: Path) -> None:
    id, old = create(run, "ci", "--scope", "submit", "--max-queues", "5")
    [before] = listed(run)
    made = run("keys", "rotate", id, "--overlap", "1h")
    form = TEXT.fullmatch(made.stdout)
    assert form is not None
    assert (form[1], form[0].strip() != old) == (id, True)
    assert made.stderr == (f"key {id} (ci) has a new secret, which is not shown again; the old one stays valid for 1h\n")
    [after] = listed(run)
    assert after.pop("formerUntil") is not None
    assert before.pop("formerUntil") is None
    assert after == before
    again = answer(run("keys", "rotate", id, "--json"))
    assert (again["formerUntil"], TEXT.fullmatch(again["key"] + "\n") is not None) == (None, True)
    assert form[2].encode() not in b"".join(path.read_bytes() for path in folder.glob("demora.db*") if path.is_file())


def test_a_key_that_is_not_in_force_is_not_rotated(run: Run) -> None:
    id, _ = create(run)
    run("keys", "revoke", id)
    refused = run("keys", "rotate", id)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "error: this API key is revoked or has expired; create another (demora keys create)\n"


@pytest.mark.slow
def test_a_service_for_others_asks_for_keys_and_hears_of_new_ones_and_revocations(run: Run, start: Start) -> None:
    refused = start("serve", "--host", "0.0.0.0", "--port", "0")
    _, said = refused.communicate(timeout=DEADLINE)
    assert (refused.returncode, said.count("\n"), said.count("error: ")) == (1, 2, 1)
    assert "demora keys create NAME --scope" in said
    id, text = create(run, "ci", "--scope", "submit")
    service = start("serve", "--host", "0.0.0.0", "--port", "0", DEMORA_ALLOWED_HOSTS="jobs.example.com")
    address = read_until(service, "openapi.json", "stdout").split(" at ")[1].split(",")[0]
    with httpx.Client(base_url=address, timeout=DEADLINE, headers={"host": "jobs.example.com"}) as http:
        job, key = {"type": "mail.send"}, {"authorization": f"Bearer {text}"}
        assert http.get("/health/ready").status_code == 200
        assert http.post("/api/v1/jobs", json=job).status_code == 401
        assert http.post("/api/v1/jobs", json=job, headers=key).status_code == 201
        assert http.get("/api/v1/jobs", headers=key).status_code == 403
        assert http.get("/api/v1/jobs", headers={**key, "host": "other.example.com"}).status_code == 421
        other = {"authorization": f"Bearer {create(run, 'eyes', '--scope', 'read')[1]}"}
        assert len(http.get("/api/v1/jobs", headers=other).json()["jobs"]) == 1
        run("keys", "revoke", id)
        asyncio.run(eventually(lambda: status_of(http, key), lambda status: status == 401))
    assert [key["lastUsedAt"] is not None for key in listed(run)] == [True, True]
    service.send_signal(signal.SIGTERM)
    _, log = service.communicate(timeout=DEADLINE)
    assert "others can reach 0.0.0.0: they need an API key and one of the host names jobs.example.com" in log
    assert text.rpartition("_")[2] not in log


async def status_of(http: httpx.Client, headers: dict[str, str]) -> int:
    answer = await asyncio.to_thread(http.post, "/api/v1/jobs", json={"type": "demo.echo"}, headers=headers)
    return answer.status_code


@pytest.mark.slow
def test_the_banner_shows_how_to_come_in_with_a_key(run: Run, start: Start) -> None:
    create(run)
    said = read_until(start("serve", "--port", "0"), "openapi.json", "stdout")
    assert "Try, with KEY=dmr_… (demora keys create creates one):" in said
    assert '-H "authorization: Bearer $KEY"' in said


def test_every_scope_can_be_given(run: Run) -> None:
    for scope in Scope:
        create(run, "ci", "--scope", scope.value)
    assert [key["scopes"] for key in listed(run)] == [[scope.value] for scope in Scope]
