"""What becomes of a job whose lease lapsed, whoever sees it first: a worker at its claim, or an operator."""

from datetime import timedelta

from .core.outcome import Lapsed
from .core.verdict import decide
from .store import LapsedJob, Report, Settlement


def lapse(lapsed: LapsedJob, drawn: float) -> Settlement:
    """The settlement under the old token, which is refused if the lease was settled meanwhile; `drawn` is for jitter."""
    verdict = decide(Lapsed(lapsed.worker_id), lapsed.standing, drawn)
    return Settlement(Report(lapsed.lease, timedelta(0)), verdict, lapsed=True)
