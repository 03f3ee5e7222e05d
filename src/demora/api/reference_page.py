"""Draws the OpenAPI document as one HTML page, without scripts and without other files.

The texts of the document become text of the page, never markup. The content security policy allows only our style sheet,
so a browser would not run or load anything else even if a text slipped through.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

HTML = "text/html; charset=utf-8"
_SCHEMAS = "#/components/schemas/"
_METHODS = ("get", "post", "patch", "put", "delete")
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format")
_STYLE = """
:root { --back: #FAFAF9; --surface: #FFFFFF; --border: #E7E5E4; --text: #1C1917; --muted: #57534E; --accent: #4338CA; }
@media (prefers-color-scheme: dark) {
  :root { --back: #0C0A09; --surface: #1C1917; --border: #292524; --text: #F5F5F4; --muted: #A8A29E; --accent: #A5B4FC; }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 16px; }
body { margin: 0; background: var(--back); color: var(--text); font: 14px/20px Inter, system-ui, sans-serif; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
code, pre, .path, .method { font-family: ui-monospace, monospace; font-size: 13px; }
nav { position: fixed; inset: 0 auto 0 0; width: 320px; overflow-y: auto; padding: 24px 16px;
  border-right: 1px solid var(--border); background: var(--surface); }
nav h2 { margin: 20px 8px 4px; font-size: 12px; line-height: 16px; font-weight: 600; color: var(--muted); }
nav ul { margin: 0; padding: 0; list-style: none; }
nav a { display: flex; gap: 8px; padding: 4px 8px; border-radius: 6px; color: var(--text); }
nav a:hover { background: var(--back); text-decoration: none; }
nav .path { overflow-wrap: anywhere; font-size: 12px; }
.method { flex: none; width: 52px; font-weight: 600; font-size: 12px; color: var(--accent); }
main { margin-left: 320px; padding: 32px 32px 96px; max-width: 1024px; }
h1 { margin: 0 0 4px; font-size: 20px; line-height: 28px; }
.about, .meta { color: var(--muted); }
main > h2 { margin: 40px 0 12px; font-size: 20px; line-height: 28px; }
section, pre { border: 1px solid var(--border); border-radius: 6px; }
section { margin-bottom: 16px; padding: 16px; background: var(--surface); }
section h3 { margin: 0 0 8px; font-size: 14px; overflow-wrap: anywhere; }
section h3 .method { margin-right: 12px; font-size: 13px; }
p { margin: 8px 0; }
pre { margin: 12px 0; padding: 12px; overflow-x: auto; background: var(--back); }
.wide { overflow-x: auto; }
table { width: 100%; margin: 12px 0; border-collapse: collapse; }
th, td { padding: 8px 12px 8px 0; border-bottom: 1px solid var(--border); text-align: left; vertical-align: top; }
th { font-size: 12px; line-height: 16px; font-weight: 500; color: var(--muted); }
tr:last-child td { border-bottom: 0; }
@media (max-width: 900px) {
  nav { position: static; width: auto; border-right: 0; border-bottom: 1px solid var(--border); }
  main { margin-left: 0; padding: 24px 16px; }
}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


def draw(document: Mapping[str, Any]) -> bytes:
    """Return the page of an OpenAPI document: each route with its scope, parameters, body, example and answers."""
    schemas, info = document["components"]["schemas"], document["info"]
    title = f"{info['title']} {info['version']}"
    groups = _groups(document)
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}: the HTTP API</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<style>{_STYLE}</style></head>\n<body>\n<nav aria-label="Routes">',
            f"<h1>{escape(title)}</h1>\n<p class=about>{_prose(info['description'])}</p>",
            *(_entries(name, routes) for name, routes in groups.items()),
            "</nav>\n<main>\n<h1>The HTTP API</h1>",
            "<p class=about>Tools read <a href=api/v1/openapi.json>openapi.json</a> instead.</p>",
            *(_group(name, routes, schemas) for name, routes in groups.items()),
            "<h2>Shapes</h2>",
            *(_shape(name, schema) for name, schema in schemas.items()),
            "</main>\n</body>\n</html>\n",
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


DescribedRoute = tuple[str, str, Mapping[str, Any]]  # the method, the path and the operation


def _groups(document: Mapping[str, Any]) -> dict[str, list[DescribedRoute]]:
    """Return the routes by what they are about: the first part of the path below `/api/v1`."""
    groups: dict[str, list[DescribedRoute]] = {}
    for path, methods in document["paths"].items():
        _, below, rest = path.partition("/api/v1/")
        name = rest.partition("/")[0].replace("-", " ") if below and not rest.startswith("openapi") else "service"
        groups.setdefault(name, []).extend(
            (method.upper(), path, methods[method]) for method in _METHODS if method in methods
        )
    return groups


def _entries(name: str, routes: Iterable[DescribedRoute]) -> str:
    lines = [
        f'<li><a href="#{escape(_anchor(method, path))}"><span class=method>{method}</span>'
        f"<span class=path>{escape(path.removeprefix('/api/v1'))}</span></a></li>"
        for method, path, _ in routes
    ]
    return "\n".join([f"<h2>{escape(name.capitalize())}</h2>\n<ul>", *lines, "</ul>"])


def _group(name: str, routes: Iterable[DescribedRoute], schemas: Mapping[str, Any]) -> str:
    return "\n".join([f"<h2>{escape(name.capitalize())}</h2>", *(_route(*route, schemas=schemas) for route in routes)])


def _route(method: str, path: str, operation: Mapping[str, Any], *, schemas: Mapping[str, Any]) -> str:
    scopes = [scope for needed in operation["security"] for some in needed.values() for scope in some]
    parts = [
        f'<section id="{escape(_anchor(method, path))}">\n<h3><span class=method>{method}</span> '
        f"<span class=path>{escape(path)}</span></h3>",
        f"<p>{_prose(operation['summary'])}</p>",
        f"<p class=meta>Scope: {escape(', '.join(scopes) or 'none; no key is needed')}</p>",
        _parameters(operation["parameters"]),
    ]
    body = operation.get("requestBody")
    command = ["curl", *(["-X", method] if method != "GET" else []), f"'http://localhost:8080{path}'"]
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        parts.append(f"<p class=meta>Body{'' if body['required'] else ' (optional)'}: {_kind(schema)}</p>")
        sent = json.dumps(example_of(schema, schemas))
        command += ["-H 'content-type: application/json'", f"-d '{sent}'"]
    if scopes:
        command.append('-H "authorization: Bearer $KEY"')
    parts.append(f"<pre>{escape(' '.join(command))}</pre>")
    return "\n".join([*parts, _answers(operation["responses"]), "</section>"])


def _parameters(parameters: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{escape(one['name'])}</code>",
            escape(one["in"] + (", required" if one.get("required") else "")),
            _kind(one["schema"]),
            _prose(one.get("description") or _meaning(one["schema"])),
        )
        for one in parameters
    ]
    return _table(("parameter", "in", "type", "meaning"), rows)


def _answers(responses: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for status, answer in responses.items():
        shapes = [_kind(content["schema"]) for content in answer.get("content", {}).values()]
        rows.append((escape("error" if status == "default" else status), _prose(answer["description"]), " ".join(shapes)))
    return _table(("status", "meaning", "body"), rows)


def _shape(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>",
            "yes" if field in required else "",
            _kind(kind),
            _prose(_meaning(kind)),
        )
        for field, kind in schema.get("properties", {}).items()
    ]
    heading = f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n<p>{_prose(schema.get("description", ""))}</p>'
    return f"{heading}\n{_table(('field', 'required', 'type', 'meaning'), rows)}\n</section>"


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
    return "\n".join([f"<div class=wide><table>\n<tr>{head}</tr>", *lines, "</table></div>"]) if lines else ""


def _prose(text: str) -> str:
    """Return a text as markup, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
