"""Draws the OpenAPI document as one HTML page, without scripts and without other files.

The texts of the document become text of the page, never markup. The content security policy allows only our style sheet,
so a browser would not run or load anything else even if a text slipped through.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

HTML = "text/html; charset=utf-8"
_SCHEMAS = "#/components/schemas/"
_METHODS = ("get", "post", "patch", "put", "delete")
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { border-top: 1px solid #ccc; padding-top: 1rem; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { background: #f4f4f4; padding: 0.7rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border: 1px solid #ddd; padding: 0.3rem 0.5rem; text-align: left; vertical-align: top; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } pre { background: #262626; }
  a { color: #8ab4f8; } th, td { border-color: #444; } }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


def draw(document: Mapping[str, Any]) -> bytes:
    """Return the page of an OpenAPI document: each route with its scope, parameters, body, example and answers."""
    schemas = document["components"]["schemas"]
    info, routes = document["info"], list(_routes(document))
    title = f"{info['title']} {info['version']}"
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{_STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n<p>{escape(info['description'])}</p>",
            "<ul>",
            *(_entry(*route) for route in routes),
            "</ul>",
            *(_route(*route, schemas=schemas) for route in routes),
            "<h1>Shapes</h1>",
            *(_shape(name, schema) for name, schema in schemas.items()),
            "</body>\n</html>\n",
        ]
    ).encode()


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """Return a small value that fits a schema: of an object its required fields, or else the first."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].removeprefix(_SCHEMAS)], schemas)
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], schemas)
    for given in (schema.get("examples"), schema.get("enum")):
        if given:
            return given[0]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: example_of(fields[name], schemas) for name in schema.get("required") or list(fields)[:1]}
        case "array":
            return [example_of(schema["items"], schemas)]
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case _:
            return "text"


def _routes(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield method.upper(), path, methods[method]


def _entry(method: str, path: str, operation: Mapping[str, Any]) -> str:
    return f"<li>{_link(_anchor(method, path), f'{method} {path}')}: {escape(operation['summary'])}</li>"


def _route(method: str, path: str, operation: Mapping[str, Any], *, schemas: Mapping[str, Any]) -> str:
    scopes = [scope for needed in operation["security"] for some in needed.values() for scope in some]
    parts = [
        f'<h2 id="{escape(_anchor(method, path))}">{escape(f"{method} {path}")}</h2>',
        f"<p>{escape(operation['summary'])}</p>",
        f"<p>Scope: {escape(', '.join(scopes) or 'none; no key is needed')}</p>",
        _parameters(operation["parameters"]),
    ]
    body = operation.get("requestBody")
    command = ["curl", *(["-X", method] if method != "GET" else []), f"'http://localhost:8080{path}'"]
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        parts.append(f"<p>Body{'' if body['required'] else ' (optional)'}: {_kind(schema)}</p>")
        sent = json.dumps(example_of(schema, schemas))
        command += ["-H 'content-type: application/json'", f"-d '{sent}'"]
    if scopes:
        command.append('-H "authorization: Bearer $KEY"')
    parts.append(f"<pre>{escape(' '.join(command))}</pre>")
    return "\n".join([*parts, _answers(operation["responses"])])


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{escape(one['name'])}</code>",
            escape(one["in"] + (", required" if one.get("required") else "")),
            _kind(one["schema"]),
            escape(one.get("description") or _meaning(one["schema"])),
        )
        for one in parameters
    ]
    return _table(("parameter", "in", "type", "meaning"), rows)


def _answers(responses: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for status, answer in responses.items():
        shapes = [_kind(content["schema"]) for content in answer.get("content", {}).values()]
        rows.append((escape("error" if status == "default" else status), escape(answer["description"]), " ".join(shapes)))
    return _table(("status", "meaning", "body"), rows)


def _shape(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>",
            "yes" if field in required else "",
            _kind(kind),
            escape(_meaning(kind)),
        )
        for field, kind in schema.get("properties", {}).items()
    ]
    heading = f'<h2 id="{escape(name)}">{escape(name)}</h2>\n<p>{escape(schema.get("description", ""))}</p>'
    return f"{heading}\n{_table(('field', 'required', 'type', 'meaning'), rows)}"


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a value and its bounds, as markup with links to shapes."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_SCHEMAS)
        return _link(name, name)
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return escape(", ".join(map(str, schema["enum"])))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [f"{bound} {schema[bound]}" for bound in _BOUNDS if bound in schema]
    return escape(", ".join([str(schema.get("type", "anything")), *bounds]))


def _meaning(schema: Mapping[str, Any]) -> str:
    found = [schema.get("description"), *(one.get("description") for one in schema.get("anyOf", ()))]
    return next((text for text in found if text), "")


def _anchor(method: str, path: str) -> str:
    return f"{method.lower()}-{path}"


def _link(to: str, text: str) -> str:
    return f'<a href="#{escape(to)}">{escape(text)}</a>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of cells that are markup; nothing if there are no rows."""
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return "\n".join([f"<table>\n<tr>{head}</tr>", *lines, "</table>"]) if lines else ""
