"""Why a job is where it is: the reason and the sentence, in every state."""

from datetime import timedelta
from typing import Any

import pytest

from demora.client.why import _nth, explain
from demora.core.job import Job, Lane, Priority
from demora.core.pace import Pace, PaceState
from demora.core.spans import from_ms, span
from demora.core.states import Status
from demora.core.workers import Running, WorkerRecord
from demora.store.jobs import Pause
from demora.store.paces import Outlook, Pacing
from tests.builders import seconds

NOW = from_ms(1_800_000_000_000)  # 08:00:00 UTC
ANN = WorkerRecord("ann", "host", 1, 4, types=("mail.send",))


def job(**changes: Any) -> Job:
    usual: dict[str, Any] = {
        "id": "1",
        "name": "mail.send",
        "type": "mail.send",
        "queue": "mail",
        "payload_json": b"{}",
        "priority": Priority.NORMAL,
        "status": Status.QUEUED,
        "lane": Lane.REALTIME,
        "created_at": NOW,
        "scheduled_at": NOW,
        "due_at": NOW,
        "max_retries": 3,
        "retry_delay": seconds(1),
    }
    return Job(**{**usual, **changes})


def pacing(**changes: Any) -> Pacing:
    state = PaceState(cycle_at=1_799_999_970_000, step=1, next_at=1_800_000_000_000, seen_at=1_799_999_970_000)
    usual = {"queue": "mail", "pace": Pace(rapid=None), "state": state, "set_at": NOW, "set_by": "ann", "now": NOW}
    return Pacing(**{**usual, **changes})  # type: ignore[arg-type]


def told(outlook: Outlook) -> tuple[str, str]:
    why = explain(outlook)
    return why.reason, why.sentence


def test_a_job_that_is_not_due() -> None:
    later = job(due_at=NOW + seconds(90), scheduled_at=NOW + seconds(90))
    assert told(Outlook(later, NOW)) == ("not_due", "It is not due until 08:01:30 UTC, in 1m30s.")
    for left, words in (("1h59m59s", "1h59m59s"), ("2h0m30s", "2h"), ("47h59m1s", "1d23h59m"), ("20d23h59m9s", "20d23h")):
        due = NOW + span(left, "left")
        later = job(due_at=due, scheduled_at=due)
        assert told(Outlook(later, NOW))[1].endswith(f", in {words}.")


def test_another_day_is_said_with_its_date() -> None:
    assert "2027-01-17 08:00:00" in explain(Outlook(job(due_at=NOW + timedelta(days=2)), NOW)).sentence


def test_a_retry_that_is_not_due() -> None:
    again = job(status=Status.RETRYING, lane=Lane.RETRY, due_at=NOW + seconds(4), attempt=2, token=2, error="ValueError: no")
    failed = "Attempt 2 failed: ValueError: no; retry 2 of 3 is due at 08:00:04 UTC, in 4s"
    expected = f"{failed}; then the pace of its queue releases it."
    assert told(Outlook(again, NOW, pacing=pacing())) == ("retry_due", expected)


def test_a_job_whose_queue_is_paused() -> None:
    reason, sentence = told(Outlook(job(), NOW, pause=Pause("closed", NOW - seconds(60), "cli:ann")))
    assert reason == "queue_paused"
    assert sentence == "Its queue mail was paused by cli:ann at 07:59:00 UTC (closed); workers claim none of its jobs."


def test_a_job_that_a_pace_holds_knows_its_place_and_its_time() -> None:
    held = job(lane=Lane.SCHEDULED)
    why = explain(Outlook(held, NOW, ahead=2, pacing=pacing(held=5)))
    assert why.reason == "held_by_pace"
    assert why.sentence == "It is held by the pace of its queue mail, 3rd in line, released about 08:01:30 UTC."
    assert (why.data["place"], why.data["held"], why.data["mode"], why.data["paceSetBy"]) == (3, 5, "normal", "ann")


def test_a_job_that_no_worker_serves_or_knows() -> None:
    assert told(Outlook(job(), NOW))[0] == "no_worker"
    other = WorkerRecord("bob", "host", 1, 4, queues=("web",), types=("mail.send",))
    silent = WorkerRecord("bob", "host", 1, 4, types=("mail.send",), heartbeat_ago=seconds(31))
    assert told(Outlook(job(), NOW, workers=[other, silent]))[0] == "no_worker"
    ignorant = WorkerRecord("bob", "host", 1, 4)
    remedy = "start one whose application has a handler for it (--app)."
    nobody = f"It is ready, but no live worker knows mail.send; {remedy}"
    assert told(Outlook(job(), NOW, workers=[ignorant])) == ("no_handler", nobody)
    elsewhere = f"It is ready, but no live worker that serves its queue mail knows mail.send; {remedy}"
    assert told(Outlook(job(), NOW, workers=[ignorant, other])) == ("no_handler", elsewhere)


def test_a_demo_job_whose_handler_is_off_says_so() -> None:
    why = told(Outlook(job(type="demo.echo"), NOW, workers=[WorkerRecord("bob", "host", 1, 4)]))
    off = "the demo handlers are off once an API key exists, unless DEMORA_BUILTIN_HANDLERS=all switches them on"
    assert why == ("no_handler", f"It is ready, but no live worker knows demo.echo; {off}.")


@pytest.mark.parametrize(
    ("ahead", "recent", "sentence"),
    [
        (0, 0, "It is ready and next in line."),
        (412, 3090, "It is ready behind 412 jobs, at the present rate about 8s."),
        (1, 0, "It is ready behind 1 job; none of this queue was completed in the last 1m."),
    ],
)
def test_a_job_that_is_ready(ahead: int, recent: int, sentence: str) -> None:
    assert told(Outlook(job(), NOW, ahead, recent, workers=[ANN])) == ("ready", sentence)


def test_a_job_that_was_handed_back_for_want_of_a_handler() -> None:
    stray, ignorant = job(due_at=NOW + seconds(4)), WorkerRecord("bob", "host", 1, 4)
    nobody = "It waits, since no live worker that serves its queue mail knows its type mail.send; "
    assert told(Outlook(stray, NOW, workers=[ignorant])) == ("no_handler", nobody + "it is offered again at 08:00:04 UTC.")
    one = "It waits, since a worker that does not know its type mail.send has handed it back; "
    expected = ("handed_back", one + "it is offered again at 08:00:04 UTC.")
    assert told(Outlook(stray, NOW, workers=[ignorant, ANN])) == expected
    snoozed = job(due_at=NOW + seconds(4), lane=Lane.RETRY)
    assert told(Outlook(snoozed, NOW, workers=[ignorant]))[0] == "not_due"


def test_a_job_that_expired_and_was_not_cancelled_yet() -> None:
    expired = job(expires_at=NOW - seconds(1))
    expected = "It expired at 07:59:59 UTC without having run; the next claim or housekeeping cancels it."
    assert told(Outlook(expired, NOW)) == ("expired", expected)
    started = job(expires_at=NOW - seconds(1), attempt=1, status=Status.RETRYING, lane=Lane.RETRY)
    assert told(Outlook(started, NOW, workers=[ANN]))[0] == "ready"


def test_a_job_whose_worker_is_gone() -> None:
    lost = job(status=Status.PROCESSING, worker_id="ann", attempt=1, lease_until=NOW - seconds(2))
    expected = "It ran on ann, whose lease lapsed at 07:59:58 UTC; the next worker that claims jobs takes over."
    assert told(Outlook(lost, NOW)) == ("lapsed", expected)


def test_a_job_that_runs() -> None:
    running = job(
        status=Status.PROCESSING,
        worker_id="ann",
        started_at=NOW - seconds(5),
        attempt=2,
        token=2,
        lease_until=NOW + seconds(25),
    )
    expected = "It runs on ann since 07:59:55 UTC, attempt 2 of 4, lease until 08:00:25 UTC."
    assert told(Outlook(running, NOW)) == ("running", expected)


def test_a_job_that_ended() -> None:
    failed = job(status=Status.FAILED, completed_at=NOW, attempt=4, error="ValueError: no")
    assert told(Outlook(failed, NOW)) == ("ended", "It failed at 08:00:00 UTC, in attempt 4 of 4: ValueError: no.")
    never = job(status=Status.CANCELLED, completed_at=NOW)
    assert told(Outlook(never, NOW)) == ("ended", "It was cancelled at 08:00:00 UTC without having run.")


def test_places_are_said_as_people_say_them() -> None:
    said = [_nth(number) for number in (1, 2, 3, 4, 10, 11, 12, 13, 21, 22, 101, 111, 113)]
    assert said == ["1st", "2nd", "3rd", "4th", "10th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th", "113th"]


def test_a_ready_job_is_told_what_takes_all_slots() -> None:
    running = [
        Running("ann", "demo.sleep", 3, "id-1", NOW - seconds(3600), NOW),
        Running("ann", "mail.send", 1, "id-2", NOW - seconds(5), NOW),
        Running("bob", "mail.send", 9, "id-3", NOW - seconds(9999), NOW),
    ]
    why = explain(Outlook(job(), NOW, workers=[ANN], running=running))
    assert why.reason == "slots_taken"
    assert why.sentence == (
        "It is ready and next in line, but all 4 slots of the workers that serve its queue mail are taken "
        "(3 demo.sleep, 1 mail.send), the longest by id-1 (demo.sleep) since 07:00:00 UTC."
    )
    assert (why.data["slots"], why.data["takenBy"]) == (4, {"demo.sleep": 3, "mail.send": 1})
    assert [one["id"] for one in why.data["longest"]] == ["id-1", "id-2"]
    free = WorkerRecord("eve", "host", 1, 1, types=("mail.send",))
    assert explain(Outlook(job(), NOW, workers=[ANN, free], running=running)).reason == "ready"
    ignorant = WorkerRecord("eve", "host", 1, 1)
    assert explain(Outlook(job(), NOW, workers=[ANN, ignorant], running=running)).reason == "slots_taken"
