"""The table of moves."""

from demora.core.states import ENDED, MOVES, RETRYABLE, WAITING, Status

# From, and where to: the states of PENDING, QUEUED, RETRYING, PROCESSING, COMPLETED, FAILED, CANCELLED in that order.
LEGAL = {
    Status.PENDING: "-Q----X",
    Status.QUEUED: "---P-FX",
    Status.RETRYING: "---P-FX",
    Status.PROCESSING: "-QR-CFX",
    Status.COMPLETED: "-------",
    Status.FAILED: "-Q-----",
    Status.CANCELLED: "-QR----",
}


def test_the_table_has_exactly_the_legal_moves() -> None:
    assert {
        start: "".join(sign if s in MOVES[start] else "-" for s, sign in zip(Status, "_QRPCFX", strict=True))
        for start in Status
    } == LEGAL


def test_every_status_waits_runs_or_has_ended() -> None:
    assert {Status.PENDING, Status.QUEUED, Status.RETRYING} == WAITING
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == ENDED
    assert set(Status) - WAITING - ENDED == {Status.PROCESSING}
    assert all(s.waiting == (s in WAITING) and s.ended == (s in ENDED) for s in Status)


def test_anything_that_has_not_ended_can_be_cancelled() -> None:
    assert {start for start in Status if Status.CANCELLED in MOVES[start]} == set(Status) - ENDED


def test_only_failed_and_cancelled_jobs_can_be_retried() -> None:
    assert {Status.FAILED, Status.CANCELLED} == RETRYABLE


def test_the_stored_numbers_never_change() -> None:
    assert [status.value for status in Status] == list(range(7))
    assert [status.name for status in Status][3] == "PROCESSING"
