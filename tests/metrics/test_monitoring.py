"""The dashboard, the alert rules and the page about metrics name only metrics that exist, and every one of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from demora import Demora
from demora.metrics.service import ServiceMetrics
from tests.metrics.scraping import scraped

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = json.loads((DOCS / "monitoring" / "grafana.json").read_text())
ALERTS = (DOCS / "monitoring" / "alerts.yml").read_text()
PAGE = (DOCS / "how-to" / "monitor.md").read_text()
RULE = re.compile(
    r"      - alert: (?P<alert>Demora\w+)\n"
    r"        expr: (?P<expr>[^\n#]+)\n"
    r"(?:        for: \d+m\n)?"
    r"        labels:\n          severity: (?:warning|critical)\n"
    r"        annotations:\n          summary: [A-Z][^\n#:]+\.\n          action: [A-Z][^\n#:]+\.\n"
)
HEAD = "groups:\n  - name: demora\n    rules:\n"
LABELS = {"queue", "type", "outcome", "state", "instance", "le"}


@pytest.fixture
async def printed() -> dict[str, set[str]]:
    """The names that `/metrics` prints, with their labels, once everything there is to print has happened."""
    metrics = ServiceMetrics()
    async with Demora("sqlite://") as app:
        client = await app.open()
        await client.set_pace("mail", gap="1h", burst=1)
        await app.enqueue("demo.echo", queue="mail", delay="1h")
        job = await app.enqueue("demo.echo")
        async with app.worker(measures=metrics.measured):
            await app.wait(job.id)
        client.line_used = lambda: True  # type: ignore[method-assign]
        text = (await metrics.text(client)).decode()
    found: dict[str, set[str]] = {}
    for sample in scraped(text):
        name, *labels = sample.split()
        found.setdefault(name, set()).update(label.partition("=")[0] for label in labels)
    return found


def rules() -> list[re.Match[str]]:
    return list(RULE.finditer(ALERTS))


def expressions() -> list[str]:
    targets = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    queries = [variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    return [*targets, *queries, *(rule["expr"] for rule in rules())]


def test_the_rules_are_yaml_that_needs_no_quotes() -> None:
    body = ALERTS.partition(HEAD)[2]
    assert ALERTS.partition(HEAD)[0].startswith("# ")
    assert RULE.sub("", body).strip() == ""  # every line belongs to a rule of this shape
    assert len(rules()) == body.count("- alert:") == len({rule["alert"] for rule in rules()}) > 5
    assert [rule["expr"] for rule in rules() if ": " in rule["expr"] or rule["expr"][0] in "\"'{[&*!|>%@`"] == []


def test_parentheses_of_every_expression_match() -> None:
    for expression in expressions():
        for opening, closing in ("()", "[]", "{}"):
            assert expression.count(opening) == expression.count(closing), expression


async def test_every_metric_of_the_dashboard_and_the_rules_is_printed(printed: dict[str, set[str]]) -> None:
    used = {name for expression in expressions() for name in re.findall(r"\bdemora_\w+", expression)}
    assert used - set(printed) == set()
    assert len(used) > 10


async def test_every_label_of_the_dashboard_and_the_rules_is_printed(printed: dict[str, set[str]]) -> None:
    for expression in expressions():
        for name, selected in re.findall(r"\b(demora_\w+){([^}]*)}", expression):
            assert set(re.findall(r"(\w+)=", selected)) <= printed[name], expression
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert set(re.split(r", *", grouped)) <= LABELS, expression


async def test_the_page_lists_every_metric_that_is_printed_and_no_other(printed: dict[str, set[str]]) -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| `demora_")]
    listed = {name for row in rows for name in re.findall(r"`(demora_\w+)`", row)}
    assert listed == {re.sub(r"_(bucket|count|sum)$", "", name) for name in printed}


def test_every_panel_has_its_own_place_and_id() -> None:
    panels: list[Any] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
