"""`demora webhooks`: what was told, secrets that are shown once, and help for whoever receives."""

import asyncio
import json
import re
import socket
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from demora import Demora, Status
from demora.core.outbound.webhook import read_secret
from tests.builders import NO_SUCH_ID
from tests.cli.conftest import Run, Start, answer, work_off
from tests.facts import eventually

Enqueued = Callable[..., str]


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_OUTBOUND_ALLOW", "127.0.0.0/8")


def listening(start: Start, *words: str) -> "tuple[subprocess.Popen[str], str]":
    """A receiver, and its address once it listens."""
    process = start("webhooks", "listen", "--port", "0", *words)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[2]


def test_a_list_and_the_doctor_show_no_secret(run: Run) -> None:
    made = run("webhooks", "secret", "create")
    text = made.stdout.strip()
    read_secret(text)
    listed = run("webhooks", "secret", "list")
    [shown] = answer(run("webhooks", "secret", "list", "--json"))["secrets"]
    assert shown["id"] in listed.stdout
    for said in (listed.stdout, json.dumps(shown), run("doctor").stdout):
        assert text.removeprefix("whsec_")[:10] not in said


def test_a_rotation_ends_the_others_after_the_overlap(run: Run) -> None:
    first = answer(run("webhooks", "secret", "create", "--json"))
    second = answer(run("webhooks", "secret", "rotate", "--overlap", "2h", "--json"))
    assert first["secret"] != second["secret"]
    shown = {one["id"]: one for one in answer(run("webhooks", "secret", "list", "--json"))["secrets"]}
    assert (shown[first["id"]]["endsAt"] is not None, shown[second["id"]]["endsAt"]) == (True, None)
    assert run("webhooks", "secret", "forget", first["id"]).exit_code == 0
    assert run("webhooks", "secret", "forget", first["id"]).exit_code == 1


def test_a_listener_verifies_what_a_job_tells(run: Run, start: Start, enqueued: Enqueued) -> None:
    run("webhooks", "secret", "create")
    process, url = listening(start, "--once")
    id = enqueued("demo.echo", '{"a": 1}', "--webhook-url", url)
    work_off(id)
    shown = answer(run("webhooks", id, "--json"))
    while not shown["deliveries"] or shown["deliveries"][0]["status"] != "COMPLETED":
        work_off(shown["deliveries"][0]["id"])
        shown = answer(run("webhooks", "show", id, "--json"))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "verified" in out
    assert id in out
    [told] = shown["deliveries"]
    assert (told["event"], told["tries"][0]["status"], told["url"]) == ("completed", 204, url)
    lines = run("webhooks", id).stdout
    assert told["webhookId"] in lines
    assert "204" in lines


def test_a_listener_trusts_no_stranger(run: Run, start: Start) -> None:
    run("webhooks", "secret", "create")
    process, url = listening(start, "--once")
    now, body = datetime.now(UTC), '{"status":"completed"}'
    signature = Webhook("whsec_c3RyYW5nZXItc3RyYW5nZXItc3RyYW5nZXI=").sign("msg_1", now, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
    assert httpx.post(url, content=body, headers=headers).status_code == 401
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "NOT VERIFIED" in out
    assert "no signature fits" in err


def test_a_listener_on_a_port_that_is_taken_says_so_in_a_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = run("webhooks", "listen", "--port", str(port))
    said = f"error: port: {port} on 127.0.0.1 is taken by another program; choose another with --port, 0 for a free one\n"
    assert (refused.exit_code, refused.stderr) == (1, said)


def test_the_first_message_makes_the_first_secret(run: Run, start: Start) -> None:
    run("migrate")
    _, url = listening(start)
    assert run("webhooks", "test", url).exit_code == 0
    shown = run("webhooks", "secret", "reveal")
    assert (shown.stdout.startswith("whsec_"), shown.stderr) == (True, "")


def test_reveal_makes_the_first_secret_and_shows_those_in_force(run: Run) -> None:
    first = run("webhooks", "secret", "reveal")
    assert "new" in first.stderr
    second = run("webhooks", "secret", "rotate", "--overlap", "1h").stdout
    shown = run("webhooks", "secret", "reveal")
    assert sorted(shown.stdout.splitlines()) == sorted([first.stdout.strip(), second.strip()])
    run("webhooks", "secret", "rotate", "--overlap", "0s")
    assert second.strip() not in run("webhooks", "secret", "reveal").stdout
    assert '{"secrets":[{"id":' in run("webhooks", "secret", "reveal", "--json").stdout


def test_a_test_says_what_came_back_and_fails_unless_it_is_a_success(run: Run, start: Start) -> None:
    run("webhooks", "secret", "create")
    _, url = listening(start, "--answer", "503")
    said = run("webhooks", "test", url)
    assert (said.exit_code, said.stdout.split()[0]) == (1, "503")


def test_a_test_of_a_forbidden_address_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEMORA_OUTBOUND_ALLOW")
    run("webhooks", "secret", "create")
    said = run("webhooks", "test", "https://127.0.0.1/")
    assert said.exit_code == 2
    assert "this machine" in said.stderr


def delivering(run: Run, start: Start, enqueued: Enqueued, status: str) -> tuple[str, str, dict[str, Any]]:
    """A job that has ended, a listener that answers with a status, and what is about to tell it of that end."""
    run("webhooks", "secret", "create")
    _, url = listening(start, "--answer", status)
    id = enqueued("demo.echo", "{}", "--webhook-url", url)
    work_off(id)
    [told] = answer(run("webhooks", id, "--json"))["deliveries"]
    return id, url, told


def test_what_nobody_wants_to_hear_is_listed_and_enabled(run: Run, start: Start, enqueued: Enqueued) -> None:
    id, url, told = delivering(run, start, enqueued, "410")
    work_off(told["id"])
    assert answer(run("webhooks", "disabled", "--json"))["disabled"][0]["url"] == url
    assert url in run("webhooks", "disabled").stdout
    assert "disabled" in run("doctor").stdout
    assert run("webhooks", "enable", url).exit_code == 0
    assert run("webhooks", "enable", url).exit_code == 1
    [again] = answer(run("webhooks", "retry", id, "--json"))["deliveries"]
    assert (again["status"], again["webhookId"]) == ("QUEUED", told["webhookId"])


def test_a_retry_of_what_was_not_given_up_says_that_it_did_nothing(run: Run, start: Start, enqueued: Enqueued) -> None:
    id, _, told = delivering(run, start, enqueued, "503")
    asyncio.run(try_once(told["id"]))
    said = run("webhooks", "retry", id)
    lines = said.stdout.splitlines()
    assert (said.exit_code, lines[-2]) == (0, "no delivery of this job has failed, so there is nothing to repeat")
    assert re.fullmatch(rf"{told['webhookId']} is due (in \d+m?s|now)", lines[-1])
    assert answer(run("webhooks", "retry", id, "--json"))["deliveries"][0]["status"] == "RETRYING"


async def try_once(id: str) -> None:
    """Run a worker until this delivery was tried and is to be tried again."""
    async with Demora() as app, app.worker():
        await eventually(lambda: app.get(id), lambda job: job.status is Status.RETRYING)


def test_there_is_nothing_to_tell_of_a_job_without_a_webhook(run: Run, enqueued: Enqueued) -> None:
    assert "no webhook was sent" in run("webhooks", enqueued()).stdout
    assert run("webhooks", NO_SUCH_ID).exit_code == 1


def test_the_doctor_says_who_can_sign(run: Run) -> None:
    run("webhooks", "secret", "create")
    assert "can read them and sign" in run("doctor").stdout


def test_a_queue_has_a_webhook_of_its_own(run: Run) -> None:
    run("migrate")
    assert (
        answer(run("queue", "mail", "--webhook-url", "https://example.com/", "--json"))["webhookUrl"]
        == "https://example.com/"
    )
    assert "https://example.com/" in run("queue", "mail").stdout
    assert answer(run("queue", "mail", "--webhook-url", "", "--json"))["webhookUrl"] is None
    assert run("queue", "mail", "--webhook-url", "https://10.0.0.1/").exit_code == 2
