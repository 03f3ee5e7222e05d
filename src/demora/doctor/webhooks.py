"""Judges whether webhooks can be signed and delivered."""

from collections.abc import Iterator, Sequence

from ..core.webhook import QUEUE
from ..store.diagnostics import Finding
from ..store.jobs import Queue
from ..store.webhooks import Disabled, Signing


def judge_webhooks(
    stands: Signing, disabled: Sequence[Disabled], queues: Sequence[Queue], *, given: int
) -> Iterator[Finding]:
    """Yield the findings about secrets and disabled URLs. `given` is the number of secrets in the environment."""
    stored = [one for one in stands.secrets if one.in_force(stands.now)]
    line = next((queue for queue in queues if queue.name == QUEUE), None)
    waiting = 0 if line is None else line.ready + line.delayed
    if stored:
        fact = f"{len(stored)} secrets sign webhooks; anyone who can read the database can read them and sign"
        yield Finding("webhooks", "ok", fact)
    elif given:
        yield Finding("webhooks", "ok", f"{given} secrets from the environment sign webhooks")
    elif line is not None:
        fact = f"there is no secret to sign webhooks with; {waiting} deliveries wait"
        yield Finding("webhooks", "problem" if waiting else "warning", fact, "create one: demora webhooks secret create")
    if disabled:
        fact = f"{len(disabled)} URLs are disabled because their servers answered 410"
        yield Finding(
            "webhooks", "warning", fact, "demora webhooks disabled lists them; demora webhooks enable URL enables one"
        )
