"""Judges whether webhooks can be signed and delivered."""

from collections.abc import Iterator, Sequence

from ..core.outbound.webhook import QUEUE
from ..store.diagnostics import Finding
from ..store.jobs import Queue
from ..store.webhooks import Disabled, Signing


def judge_webhooks(
    stands: Signing, disabled: Sequence[Disabled], queues: Sequence[Queue], *, given: int
) -> Iterator[Finding]:
    """Yield the findings about secrets and disabled URLs. `given` is the number of secrets in the environment."""
    stored = [one for one in stands.secrets if one.in_force(stands.now)]
    line = next((queue for queue in queues if queue.name == QUEUE), None)
    if stored:
        fact = f"{len(stored)} secrets sign webhooks; anyone who can read the database can read them and sign"
        yield Finding("webhooks", "ok", fact)
    elif given:
        yield Finding("webhooks", "ok", f"{given} secrets from the environment sign webhooks")
    elif line is not None:
        fact = "there is no secret to sign webhooks with yet; the next delivery creates one"
        yield Finding("webhooks", "ok", fact, "demora webhooks secret reveal creates it now, and shows it")
    if disabled:
        fact = f"{len(disabled)} URLs are disabled because their servers answered 410"
        yield Finding(
            "webhooks", "warning", fact, "demora webhooks disabled lists them; demora webhooks enable URL enables one"
        )
