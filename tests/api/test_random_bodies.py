"""Whatever is sent, the answer is never a 5xx."""

from typing import Any

import httpx
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from demora import Demora
from demora.api import make_api
from demora.settings import Settings
from demora.wire.requests import JobChange, JobRequest, PauseRequest, QueueRequest
from tests.api.asking import JOBS, JSON
from tests.api.conftest import BASE

text = st.text(max_size=20) | st.sampled_from(
    ["demo.echo", "demo.sleep", "HIGH", "\0", "2030-01-01T00:00:00Z", "http://a.b"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=8
)


def asked_for(shape: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(shape.__struct_encode_fields__), values, max_size=6)


jobs = st.builds(lambda asked: {"type": "demo.echo", **asked}, asked_for(JobRequest))
asked = st.one_of(
    st.tuples(st.just(("POST", JOBS)), jobs | values),
    st.tuples(
        st.just(("POST", f"{JOBS}/batch")), st.builds(lambda many: {"jobs": many}, st.lists(jobs, max_size=3)) | values
    ),
    st.tuples(st.just(("PATCH", f"{JOBS}/ID")), asked_for(JobChange)),
    st.tuples(st.just(("PATCH", "/api/v1/queues/a")), asked_for(QueueRequest)),
    st.tuples(st.just(("POST", "/api/v1/queues/a/pause")), asked_for(PauseRequest)),
)


async def answers(method: str, path: str, body: bytes, query: str = "") -> httpx.Response:
    async with Demora("sqlite://") as app:
        job = await app.enqueue("demo.echo", delay="1h")
        transport = httpx.ASGITransport(make_api(app, Settings()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            path = path.replace("ID", job.id)
            return await http.request(method, path, content=body, headers=JSON, params=query or None)


@settings(max_examples=150, deadline=None)
@given(asked)
async def test_random_json_never_gives_a_5xx(asked: tuple[tuple[str, str], Any]) -> None:
    (method, path), value = asked
    try:
        body = msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return
    answer = await answers(method, path, body)
    assert answer.status_code in (200, 201, 413, 422), answer.text


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=60)
    | st.builds(lambda a, b: a + b, st.just(b'{"type":"demo.echo","payload":{"x":'), st.binary(max_size=20))
)
async def test_random_bytes_never_give_a_5xx(body: bytes) -> None:
    assert (await answers("POST", JOBS, body)).status_code in (201, 400, 422)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["status", "queue", "type", "tag", "limit", "cursor", "x"]), text), max_size=3))
async def test_random_queries_never_give_a_5xx(pairs: list[tuple[str, str]]) -> None:
    try:
        query = str(httpx.QueryParams(pairs))
    except UnicodeEncodeError:
        return
    assert (await answers("GET", JOBS, b"", query)).status_code in (200, 422)
