"""Errors: one table, problem+json, and nothing told that is nobody's business."""

import inspect

import httpx
import pytest

from demora import Demora, Job, errors
from demora.api import make_api
from demora.engines.sqlite import SqliteStore
from demora.settings import Settings
from demora.wire.problems import KINDS, Refused, problem_of
from tests.api.asking import JOBS, problem
from tests.api.conftest import BASE

ALL = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, Exception)]


@pytest.mark.parametrize("error", [*ALL, *Refused.__subclasses__()], ids=lambda error: error.__name__)
def test_every_error_has_its_status(error: type[Exception]) -> None:
    assert 400 <= KINDS[error].status < 600


def test_of_the_troubles_of_a_store_only_one_leaves_open_whether_a_write_was_made() -> None:
    details = {error: KINDS[error].detail for error in ALL if issubclass(error, errors.StoreError)}
    unknown = {error for error, detail in details.items() if detail is not None and "nothing was written" not in detail}
    assert unknown == {errors.StoreError}
    assert {error for error, detail in details.items() if detail is None} == {errors.SearchTooSlow, errors.TooManySearches}


def test_an_error_not_in_the_table_is_told_as_its_parent() -> None:
    class Odd(errors.StoreBusy): ...

    assert problem_of(Odd("database is locked")).status == 503
    assert problem_of(KeyError("x")).status == 500


@pytest.mark.parametrize("path", ["/nope", "/api/v1", "/api/v2/jobs", f"{JOBS}/", "/api/v1/jobs/1/nope", "//"])
async def test_a_path_that_is_not_served_is_a_404_problem(http: httpx.AsyncClient, path: str) -> None:
    problem(await http.get(f"http://localhost{path}"), 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("PUT", JOBS, "GET, POST"), ("POST", f"{JOBS}/1", "DELETE, GET, PATCH")]
)
async def test_a_method_that_is_not_served_is_a_405_problem(
    http: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await http.request(method, path)
    problem(answer, 405)
    assert answer.headers["allow"] == allowed


class Trouble(SqliteStore):
    """A store in memory that fails to get a job."""

    def __init__(self, trouble: Exception) -> None:
        super().__init__()
        self.trouble = trouble

    async def get(self, id: str) -> Job | None:
        raise self.trouble


async def asked_in(trouble: Exception, path: str = f"{JOBS}/1") -> httpx.Response:
    async with Demora(store=Trouble(trouble)) as app:
        transport = httpx.ASGITransport(make_api(app, Settings()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            return await http.get(path)


async def test_a_busy_store_is_a_503_that_says_when_to_come_back() -> None:
    answer = await asked_in(errors.StoreBusy("SELECT secret FROM /var/secret.db"))
    assert "secret" not in str(problem(answer, 503))
    assert answer.headers["retry-after"] == "1"


async def test_an_unexpected_error_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told = problem(await asked_in(KeyError("a secret payload"), f"{JOBS}/1%0Aforged"), 500)
    assert "secret" not in str(told) + caplog.text
    assert "GET /api/v1/jobs/1\\nforged failed: KeyError at " in caplog.text


async def test_no_answer_is_kept_by_caches_or_guessed_at_by_browsers(http: httpx.AsyncClient) -> None:
    for path in ("/", "/nope"):
        answer = await http.get(path)
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_a_problem_is_short_whatever_was_sent(http: httpx.AsyncClient, app: Demora) -> None:
    answer = await http.post(JOBS, json={"type": "demo.echo", "x" * 100_000: 1})
    problem(answer, 422, "x" * 100)
    assert len(answer.content) < 5_000
