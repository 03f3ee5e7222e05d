"""`X-Request-Id`: in the answer, in a problem and in the log, and never a way to write into the log."""

import json
import logging

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from demora import Demora, errors
from demora.api import make_api
from demora.api.http_server.connection import refusal
from demora.api.http_server.http1 import FULL
from demora.core.workers import WorkerRecord
from demora.runtime.front import Front
from demora.settings import Settings
from tests.api.asking import JOBS, NO_SUCH_ID, problem
from tests.api.conftest import BASE
from tests.api.test_problems import Trouble

ID = "x-request-id"


@pytest.mark.parametrize("path", ["/", "/health/live", "/nope", JOBS])
@pytest.mark.parametrize("id", ["a", "01J8-x_y/z=", "~" * 128, "{path}", "%s%n"])
async def test_a_well_formed_id_comes_back(http: httpx.AsyncClient, path: str, id: str) -> None:
    assert (await http.get(path, headers={ID: id})).headers.get_list(ID) == [id]


@pytest.mark.parametrize("id", [b"", b"a b", b"a\tb", b"a\nforged", b"\x1b[31m", b"\x7f", "é".encode(), b"\xa0", b"x" * 129])
async def test_an_id_of_another_form_is_replaced(http: httpx.AsyncClient, id: bytes) -> None:
    [made] = (await http.get("/health/live", headers=[(ID.encode(), id)])).headers.get_list(ID)
    assert (len(made), made.isalnum()) == (32, True)


async def test_two_ids_are_replaced_by_one(http: httpx.AsyncClient) -> None:
    [made] = (await http.get("/", headers=[(ID, "a"), (ID, "b")])).headers.get_list(ID)
    assert made not in ("a", "b", "a, b")


async def test_each_request_without_an_id_gets_its_own(http: httpx.AsyncClient) -> None:
    assert len({(await http.get("/")).headers[ID] for _ in range(5)}) == 5


async def test_a_problem_names_the_request(http: httpx.AsyncClient) -> None:
    for headers in ({ID: "order-17"}, {}, {"host": "evil.example"}):
        answer = await http.get(f"{JOBS}/{NO_SUCH_ID}", headers=headers)
        assert problem(answer, answer.status_code)["requestId"] == answer.headers[ID]


def test_a_refusal_by_the_parser_has_an_id_too() -> None:
    head, _, body = refusal({"type": FULL.type, "status": 503}, [(b"server", b"x")], 1).partition(b"\r\n\r\n")
    headers = dict(line.split(b": ") for line in head.split(b"\r\n")[1:])
    assert headers[ID.encode()].decode() == json.loads(body)["requestId"]
    assert len(headers[ID.encode()]) == 32


async def test_the_way_to_the_dashboard_has_an_id_too(app: Demora) -> None:
    async def dashboard(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("is not asked")

    front = Front(make_api(app, Settings()), dashboard)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url=BASE) as http:
        answer = await http.get("/", headers={ID: "order-17", "accept": "text/html"})
    assert (answer.status_code, answer.headers.get_list(ID)) == (303, ["order-17"])


@pytest.mark.parametrize("path", [f"{JOBS}/1", "/health/ready"])
async def test_the_log_line_of_a_failed_request_names_it(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Demora(store=Down()) as app:
        transport = httpx.ASGITransport(make_api(app, Settings()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            answer = await http.get(path, headers={ID: "order-{17}"})
            other = await http.get(path, headers=[(ID.encode(), b"a\nforged")])
    assert (answer.status_code, answer.headers[ID]) == (503, "order-{17}")
    first, second = [line.getMessage() for line in caplog.records if line.levelno == logging.ERROR]
    assert first.endswith("(request order-{17})")
    assert second.endswith(f"(request {other.headers[ID]})")


class Down(Trouble):
    """A store in memory that neither gets a job nor lists the workers."""

    def __init__(self) -> None:
        super().__init__(errors.StoreError("down"))

    async def workers(self) -> list[WorkerRecord]:
        raise self.trouble
