"""What handlers saw, against SQL: runs that no claim explains, and records that no run explains."""

import pytest

from demora.proof import HandlerEvent
from tests.proof.lives import LEASE, Life, end, failed_twice, rules_broken, start

SETTLED = Life().added().claimed().settled()
TAKEN_OVER = Life().added().claimed("ann").wait(LEASE).lapsed().claimed("bob").settled()
CANCELLED = Life().added().cancelled()

GOOD = {
    "a run": (SETTLED, [start(worker="ann", attempt=1), end()]),
    "a zombie beside the run that took over": (TAKEN_OVER, [start(1), start(2, worker="bob"), end(2), end(1)]),
    "a run that never ended": (TAKEN_OVER, [start(1), start(2), end(2)]),
    "a dead letter": (failed_twice(Life()), [start(1), end(1, "error"), start(2), end(2, "error")]),
    "an error beyond help": (Life().added().claimed().buried(), [start(), end(1, "permanent")]),
    "a run that failed after it was given up": (
        Life().added().claimed().handed_back(),
        [start(), HandlerEvent("end", start().job, 1, Life().at + 5, outcome="permanent")],
    ),
}

BAD = {
    "I3": {
        "a zombie's success recorded under the token of another": (TAKEN_OVER, [start(1), start(2), end(1)]),
        "a success recorded for a run that failed": (SETTLED, [start(), end(1, "error")]),
        "a run under a token that no claim gave": (SETTLED, [start(), end(), start(7)]),
        "a run by a worker that did not claim it": (SETTLED, [start(worker="bob"), end()]),
    },
    "I4": {
        "two runs under one token": (SETTLED, [start(), start(), end()]),
        "two runs under one later token": (TAKEN_OVER, [start(1), start(2), start(2), end(2)]),
    },
    "I5": {
        "a handler told of the wrong attempt": (SETTLED, [start(attempt=2), end()]),
        "a handler told of attempt nought": (TAKEN_OVER, [start(1, attempt=0), start(2), end(2)]),
    },
    "I9": {
        "a start after the cancel was answered": (CANCELLED, [start()]),
        "a start after a later cancel": (Life().added().claimed().failed_once().cancelled(), [start(1), start(2)]),
    },
    "I12": {
        "buried with attempts left": (Life().added().claimed().buried(), [start(), end(1, "error")]),
        "tried again beyond help": (Life().added().claimed().failed_once(), [start(), end(1, "permanent")]),
    },
}


@pytest.mark.parametrize(("life", "seen"), GOOD.values(), ids=GOOD)
def test_runs_that_claims_and_records_explain_are_accepted(life: Life, seen: list[HandlerEvent]) -> None:
    assert rules_broken(life, *seen) == []


@pytest.mark.parametrize(
    ("rule", "life", "seen"),
    [pytest.param(rule, *case, id=f"{rule}: {name}") for rule, cases in BAD.items() for name, case in cases.items()],
)
def test_a_run_that_breaks_a_promise_is_flagged_under_its_rule_alone(
    rule: str, life: Life, seen: list[HandlerEvent]
) -> None:
    assert rules_broken(life, *seen) == [rule]
