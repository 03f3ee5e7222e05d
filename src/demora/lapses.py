"""What becomes of a job whose lease lapsed, whoever sees it first: a worker at its claim, or an operator."""

from collections.abc import Callable
from datetime import timedelta

from .core.outcome import Lapsed
from .core.verdict import Standing, decide
from .store import LapsedJob, Report, Settlement

Rules = Callable[[str, Standing], Standing]


def lapse(lapsed: LapsedJob, drawn: float, rules: Rules) -> Settlement:
    """The settlement under the old token, which is refused if the lease was settled meanwhile. `rules` adds to a standing
    how a type wants to be retried, `drawn` is for jitter."""
    verdict = decide(Lapsed(lapsed.worker_id), rules(lapsed.type, lapsed.standing), drawn)
    return Settlement(Report(lapsed.lease, timedelta(0)), verdict, lapsed=True)
