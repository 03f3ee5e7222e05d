"""The reference says what the API does: every route is in it, and its examples answer as shown, in order."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from demora import Demora
from demora.api.routes import ROUTES
from demora.errors import (
    ApiKeyInForce,
    ApiKeyNotFound,
    ApiKeyNotInForce,
    JobFailed,
    SecretNotFound,
    StillRunning,
    UrlNotDisabled,
)
from demora.wire.problems import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()
ANY = "…"
NEVER_MET = (StillRunning, JobFailed, ApiKeyNotFound, ApiKeyInForce, ApiKeyNotInForce, SecretNotFound, UrlNotDisabled)


class Example(NamedTuple):
    """A call of curl, and what is shown of its answer."""

    command: str
    status: int
    headers: dict[str, str]
    body: Any


def example(block: str) -> Example:
    command, _, answer = block.partition("\n")
    head, _, body = answer.partition("\n\n")
    first, *headers = head.splitlines()
    status = int(first.removeprefix("HTTP/1.1 ")[:3])
    named = dict(header.split(": ", 1) for header in headers)
    return Example(command.removeprefix("$ "), status, named, json.loads(body) if body.strip() else None)


def asked(command: str) -> httpx.Request:
    """The request that this call of curl sends."""
    words = iter(shlex.split(command)[2:])
    method, url, headers, body = None, "", {}, None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, value = next(words).split(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words)
        else:
            url = f"http://{word}"
    return httpx.Request(method or ("GET" if body is None else "POST"), url, headers=headers, content=body)


def fits(shown: Any, seen: Any) -> bool:
    """Whether what is shown is what is seen, but for `…`."""
    if isinstance(shown, dict) and isinstance(seen, dict):
        same_names = set(shown) - {ANY} <= set(seen) if ANY in shown else set(shown) == set(seen)
        return same_names and all(fits(value, seen[name]) for name, value in shown.items() if name != ANY)
    if isinstance(shown, list) and isinstance(seen, list):
        return len(shown) == len(seen) and all(map(fits, shown, seen))
    if isinstance(shown, str) and ANY in shown:
        return re.fullmatch(".*".join(map(re.escape, shown.split(ANY))), str(seen)) is not None
    return bool(shown == seen)


EXAMPLES = [example(block) for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S)]


async def test_the_examples_answer_as_shown(http: httpx.AsyncClient, app: Demora) -> None:
    id = worker = action = "none yet"
    async with app.worker():
        await app.wait((await app.enqueue("demo.echo")).id)
        for shown in EXAMPLES:
            command = shown.command.replace("$ID", id).replace("$WORKER", worker).replace("$ACTION", action)
            answer = await http.send(asked(command))
            if answer.status_code == 201:
                id, worker = answer.json().get("id", id), answer.json().get("workerId") or worker
            if "/actions/" in answer.headers.get("location", ""):
                action = answer.json()["id"]
            is_json = "json" in answer.headers.get("content-type", "")
            seen = json.loads(answer.text.replace(id, "$ID")) if is_json else None
            assert answer.status_code == shown.status, answer.text
            assert fits(shown.body, seen), (shown.command, answer.text)
            assert {name: answer.headers[name].replace(id, "$ID") for name in shown.headers} == shown.headers


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_has_its_section_and_its_example(route: Any) -> None:
    assert f"## {route.method} {route.path}\n" in PAGE
    path = re.sub(r"{\w+}", r"[^/]+", route.path)
    sent = [asked(shown.command.replace("$ID", "1")) for shown in EXAMPLES]
    assert any(request.method == route.method and re.fullmatch(path, request.url.path) for request in sent)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_listed_with_its_scope(route: Any) -> None:
    listed = re.findall(rf"^\| (?:`(\w+)`|none) \|.*`{route.method} {re.escape(route.path)}`", PAGE, re.M)
    assert listed == [route.scope or ""]


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.takes], ids=lambda route: f"{route.method} {route.path}"
)
def test_every_field_is_named_in_its_section(route: Any) -> None:
    section = PAGE.partition(f"## {route.method} {route.path}\n")[2].partition("\n## ")[0]
    assert [name for name in route.takes.__struct_encode_fields__ if name not in section] == []


@pytest.mark.parametrize("error", [error for error in KINDS if error not in NEVER_MET], ids=lambda error: error.__name__)
def test_every_kind_of_problem_that_can_be_met_is_listed(error: type[Exception]) -> None:
    kind = KINDS[error]
    assert re.search(rf"^\| {kind.status} \|.*`{kind.type.removeprefix('urn:demora:problem:')}`", PAGE, re.M)
