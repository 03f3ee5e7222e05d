"""`GET /docs`: every route on one page that needs no script, no other file and no trust in its texts."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import httpx
import msgspec
import pytest

from demora.api.openapi import describe
from demora.api.operations.operation import Operation
from demora.api.reference_page import draw, example_of
from demora.api.routes import ROUTES
from tests.api.asking import problem

DOCUMENT = describe(ROUTES)
HOSTILE = "<script>alert('1')</script>\"&<b onclick=x>"
OPENAPI = "api/v1/openapi.json"  # relative, because the service may be mounted
ATTRIBUTES = {"aria-label", "charset", "class", "content", "href", "id", "lang", "name"}


class Tags(HTMLParser):
    """The tags, the ids and the links of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.said = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.said += data


async def page_of(http: httpx.AsyncClient) -> httpx.Response:
    answer = await http.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    return answer


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_is_on_the_page_with_its_parts(http: httpx.AsyncClient, route: Operation) -> None:
    page = Tags((await page_of(http)).text)
    assert f"{route.method.lower()}-{route.path}" in page.ids
    summary = route.summary.replace("`", "")  # which marks code
    section = page.said.partition(f"{route.method} {route.path}\n{summary}\n")[2].partition("\ncurl ")[0]
    assert f"Scope: {route.scope or 'none'}" in section
    parts = {*re.findall(r"{(\w+)}", route.path), *route.query.__struct_encode_fields__, *route.headers}
    assert [name for name in parts if name not in section] == []
    assert route.takes is None or route.takes.__name__ in section


async def test_every_link_leads_somewhere_on_the_page(http: httpx.AsyncClient) -> None:
    page = Tags((await page_of(http)).text)
    assert {link.removeprefix("#") for link in page.links} - {OPENAPI} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


async def test_the_page_has_no_script_and_loads_nothing(http: httpx.AsyncClient) -> None:
    answer = await page_of(http)
    page = Tags(answer.text)
    assert not page.tags & {"script", "link", "img", "iframe", "form", "base", "object"}
    assert page.attributes == ATTRIBUTES
    assert all(link.startswith("#") or link == OPENAPI for link in page.links)


async def test_the_policy_allows_the_style_sheet_of_the_page_and_nothing_else(http: httpx.AsyncClient) -> None:
    answer = await page_of(http)
    [style] = re.findall("<style>(.*?)</style>", answer.text, re.S)
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{allowed}'; ")
    assert "unsafe" not in policy


def hostile(value: Any) -> Any:
    """The document with markup in all texts except those that say what is what."""
    if isinstance(value, dict):
        return {name: one if _kept(name, one) else hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return value + HOSTILE if isinstance(value, str) else value


def _kept(name: str, value: Any) -> bool:
    return (name in {"$ref", "type", "in"} and isinstance(value, str)) or name == "required"


def renamed(value: Any) -> Any:
    """The document with markup in the names of its fields, shapes and paths."""
    value["paths"] = {path + HOSTILE: methods for path, methods in value["paths"].items()}
    schemas = value["components"]["schemas"]
    for schema in schemas.values():
        schema["properties"] = {name + HOSTILE: one for name, one in schema.get("properties", {}).items()}
        schema["required"] = []
    schemas[HOSTILE] = {"type": "object", "properties": {"itself": {"$ref": f"#/components/schemas/{HOSTILE}"}}}
    return value


@pytest.mark.parametrize("change", [hostile, renamed])
def test_no_text_of_the_document_becomes_markup(change: Any) -> None:
    page = Tags(draw(change(msgspec.json.decode(msgspec.json.encode(DOCUMENT)))).decode())
    assert "alert('1')" in page.said
    assert not page.tags & {"script", "b"}
    assert page.attributes == ATTRIBUTES


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.takes], ids=lambda route: f"{route.method} {route.path}"
)
def test_the_example_of_a_body_is_one_that_the_route_takes(route: Operation) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert route.takes is not None
    example = example_of({"$ref": f"#/components/schemas/{route.takes.__name__}"}, schemas)
    msgspec.convert(example, route.takes)


async def test_other_methods_are_refused(http: httpx.AsyncClient) -> None:
    problem(await http.post("/docs"), 405)
