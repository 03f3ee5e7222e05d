"""The first minute: twenty demo jobs with a pace, a failure and a countdown, so that every page has something to show."""

from typing import Any

from ...core.access import Scope
from ...errors import Invalid
from ...system import notices
from ..visit import Acted, Route, Visit

PACED = "demo-paced"


async def add_demo_jobs(visit: Visit) -> Acted:
    """Add the demo jobs. They need the built-in demo handlers."""
    if visit.app.registry.get("demo.echo") is None:
        raise Invalid("type", "the demo handlers are switched off here (DEMORA_BUILTIN_HANDLERS)")
    await visit.client.set_pace(PACED, gap="20s", burst=1, by=visit.by)
    made = visit.client.make_many(_jobs())
    await visit.submissions.add(visit.client, visit.visitor.key, made)
    notices.acted(visit.by, "enqueue", f"{len(made)} demo jobs")
    return Acted(f"{len(made)} demo jobs added. Open a held one to see why it waits.", go=visit.link("jobs"))


def _jobs() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return types, payloads and options. The list shows the last one first."""
    quick: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("demo.echo", {"hello": f"visitor {n}"}, {"tags": ["demo"]}) for n in range(1, 7)
    ]
    slow = [
        ("demo.sleep", {"seconds": 12 + 9 * n}, {"tags": ["demo", "slow"], "name": f"Slow job {n + 1}"}) for n in range(3)
    ]
    failing = [
        ("demo.fail", {"message": "the provider is down"}, {"max_retries": 0, "tags": ["demo"], "name": "A job that fails"}),
        ("demo.fail", {"message": "no such customer"}, {"max_retries": 3, "retry_delay": "45s", "tags": ["demo"],
                                                        "name": "A job that is retried"}),
    ]  # fmt: skip
    later = [
        ("demo.echo", {"hello": "in five minutes"}, {"delay": "5m", "tags": ["demo"], "name": "A reminder"}),
        ("demo.echo", {"hello": "tomorrow"}, {"delay": "1d", "tags": ["demo"], "name": "A reminder for tomorrow"}),
    ]
    held = [
        (
            "demo.echo",
            {"mail": n},
            {"queue": PACED, "delay": "1s", "tags": ["demo"], "name": f"Mail {n} of 7"},
        )
        for n in range(1, 8)
    ]
    return [*quick, *slow, *failing, *later, *held]


ROUTES = (Route("POST", "/first-minute", Scope.ADMIN, add_demo_jobs),)
