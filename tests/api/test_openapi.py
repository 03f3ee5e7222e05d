"""The OpenAPI document says what the routes do."""

import re
from typing import Any

import httpx
import msgspec
import pytest

from demora.api import Api
from demora.api.operations.operation import Operation
from demora.api.routes import ROUTES


async def document(http: httpx.AsyncClient) -> dict[str, Any]:
    answer = await http.get("/api/v1/openapi.json")
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_is_in_the_document(http: httpx.AsyncClient, route: Operation) -> None:
    described = (await document(http))["paths"][route.path][route.method.lower()]
    assert described["summary"]
    assert {int(status) for status in described["responses"] if status != "default"} == set(route.gives)
    assert ("requestBody" in described) == (route.takes is not None)
    named = {parameter["name"] for parameter in described["parameters"]}
    assert named >= set(re.findall(r"{(\w+)}", route.path)) | set(route.query.__struct_encode_fields__)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_names_the_scope_it_needs(http: httpx.AsyncClient, route: Operation) -> None:
    whole = await document(http)
    described = whole["paths"][route.path][route.method.lower()]
    assert described["security"] == ([] if route.scope is None else [{"key": [route.scope]}])
    assert whole["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


async def test_an_answer_has_the_media_type_of_the_document(http: httpx.AsyncClient) -> None:
    described = (await document(http))["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert list(described) == [(await http.get("/metrics")).headers["content-type"].partition(";")[0]] == ["text/plain"]


async def test_nothing_but_the_routes_is_in_the_document(http: httpx.AsyncClient) -> None:
    paths = (await document(http))["paths"]
    assert {(method.upper(), path) for path in paths for method in paths[path]} == {(r.method, r.path) for r in ROUTES}


async def test_every_reference_leads_somewhere_and_every_name_is_one_shape(http: httpx.AsyncClient) -> None:
    whole = await document(http)
    schemas = whole["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/(\w+)"', msgspec.json.encode(whole).decode())) <= set(schemas)
    assert len({route.name for route in ROUTES}) == len(ROUTES)


async def test_a_body_is_described_with_its_bounds_and_nothing_else_allowed(http: httpx.AsyncClient) -> None:
    asked = (await document(http))["components"]["schemas"]["JobRequest"]
    assert (asked["required"], asked["additionalProperties"]) == (["type"], False)
    assert {"scheduledAt", "maxRetries", "webhookUrl", "idempotencyKey"} <= set(asked["properties"])


async def test_a_job_is_described_with_what_lists_leave_out(http: httpx.AsyncClient) -> None:
    job = (await document(http))["components"]["schemas"]["JobView"]
    assert set(job["properties"]) - set(job["required"]) == {"log", "payload", "result"}
    assert (job["properties"]["log"]["type"], "Lists leave out the log" in job["description"]) == ("array", True)


async def test_every_route_answers_at_its_path(api: Api, http: httpx.AsyncClient) -> None:
    api.stop()  # so that a stream ends
    for route in ROUTES:
        answer = await http.request(route.method, re.sub(r"{\w+}", "x", route.path))
        assert answer.status_code != 405
        assert '"No such route"' not in answer.text
