"""Every verb of the ports is proved: some test of this folder calls it, or this file says which other test does."""

import inspect
import re
from pathlib import Path

import pytest

from demora.store.api_keys import ApiKeyStore
from demora.store.audit import AuditStore
from demora.store.diagnostics import DiagnosticsStore
from demora.store.events import EventStore
from demora.store.line_feed import LineFeed
from demora.store.paces import PaceStore
from demora.store.schedules import ScheduleStore
from demora.store.statistics import StatisticsStore
from demora.store.store import Store
from demora.store.webhooks import WebhookStore

# Each port, and what the tests call a store of it: a call on anything else proves nothing.
PORTS: dict[type, str] = {
    Store: "store",
    PaceStore: "paces",
    ScheduleStore: "schedules",
    ApiKeyStore: "(api_keys|keys|ring)",
    WebhookStore: "webhooks",
    DiagnosticsStore: "diagnostics",
    StatisticsStore: "statistics",
    EventStore: "events",
    LineFeed: "(line_feed|feed)",
    AuditStore: "audit",
}
HERE = Path(__file__).parent
ELSEWHERE = {
    "AuditStore.end": "engines/postgres/test_audit.py::test_an_audit_that_was_ended_leaves_nothing",
    "DiagnosticsStore.notes": "engines/postgres/test_notifier.py::test_who_cannot_hear_is_not_woken_by_every_try_to_listen",
}


def verbs() -> list[str]:
    return sorted(
        f"{port.__name__}.{name}"
        for port in PORTS
        for name, member in vars(port).items()
        if not name.startswith("_") and inspect.isfunction(member)
    )


def calls(verb: str) -> bool:
    text = "".join(path.read_text() for path in [*HERE.glob("test_*.py"), HERE.parent / "builders.py"])
    port, name = verb.split(".")
    stores = next(stores for one, stores in PORTS.items() if one.__name__ == port)
    return re.search(rf"\b{stores}\.{name}\(", text) is not None


@pytest.mark.parametrize("verb", verbs())
def test_a_verb_is_proved_on_every_set_up(verb: str) -> None:
    if verb in ELSEWHERE:
        file, test = ELSEWHERE[verb].split("::")
        assert f"def {test}(" in (HERE.parent / file).read_text()
    else:
        assert calls(verb), f"no test of {HERE.name}/ calls {verb}"


def test_the_exceptions_are_verbs() -> None:
    assert ELSEWHERE.keys() <= set(verbs())
