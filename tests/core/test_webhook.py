"""What is told of a job's end."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import RFC_4122, UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from demora.core.outbound.webhook import MOST_RESULT, QUEUE, TYPE, EndedJob, delivery, delivery_id, message_id
from demora.core.spans import to_ms
from demora.core.states import Status

NOW = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
ID = "01930000-0000-7000-8000-000000000001"


def ended(status: Status = Status.COMPLETED, **more: Any) -> EndedJob:
    fields: dict[str, Any] = {"id": ID, "type": "mail.send", "generation": 1, "completed_at": NOW, "attempts": 2}
    return EndedJob(**fields | {"status": status, "url": "https://example.com/hook"} | more)


def told(end: EndedJob) -> dict[str, Any]:
    asked = delivery(end)
    assert asked is not None
    return json.loads(asked.payload)["message"]


def test_a_success_is_told_with_its_result() -> None:
    assert told(ended(result=b'{"sent":[1,2.50]}')) == {
        "jobId": ID,
        "jobType": "mail.send",
        "status": "completed",
        "completedAt": "2030-01-01T12:00:00.250Z",
        "attempts": 2,
        "result": {"sent": [1, 2.5]},
    }
    assert told(ended())["result"] is None


def test_a_failure_is_told_with_its_error() -> None:
    message = told(ended(Status.FAILED, error="ValueError: no"))
    assert (message["status"], message["error"], "result" in message) == ("failed", "ValueError: no", False)


def test_a_job_of_a_schedule_is_told_with_its_fire_time() -> None:
    fired, triggered = told(ended(schedule="nightly", slot_at=NOW)), told(ended(schedule="nightly"))
    assert (fired["scheduleName"], fired["slotAt"]) == ("nightly", "2030-01-01T12:00:00.250Z")
    assert (triggered["scheduleName"], "slotAt" in triggered) == ("nightly", False)


def test_a_cancel_is_told_only_if_that_was_asked_for() -> None:
    assert delivery(ended(Status.CANCELLED, error="no need")) is None
    assert told(ended(Status.CANCELLED, error="no need", on_cancel=True))["status"] == "cancelled"


def test_nothing_is_told_of_a_delivery_or_of_a_job_that_has_not_ended() -> None:
    assert delivery(ended(type=TYPE)) is None
    for status in Status:
        if not status.ended:
            assert delivery(ended(status)) is None


def test_a_result_beyond_the_limit_is_left_out_and_said_to_be() -> None:
    message = told(ended(result=json.dumps("x" * MOST_RESULT).encode()))
    assert (message["result"], message["resultTooLarge"]) == (None, True)


def test_a_delivery_is_a_job_in_its_own_queue_without_a_webhook_and_knows_its_cause() -> None:
    asked = delivery(ended())
    assert asked is not None
    assert (asked.type, asked.queue, asked.webhook_url, asked.cause, asked.key) == (TYPE, QUEUE, None, ID, None)
    assert msgspec.json.decode(asked.payload)["url"] == "https://example.com/hook"


@given(st.integers(1, 100), st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1)), st.uuids())
def test_the_same_end_has_the_same_id_and_every_other_end_another(generation: int, at: datetime, id: UUID) -> None:
    end = ended(generation=generation, completed_at=at.replace(tzinfo=UTC), id=str(id))
    same = delivery_id(end)
    assert (UUID(same).version, UUID(same).variant) == (7, RFC_4122)
    assert UUID(same).int >> 80 == to_ms(end.completed_at)
    assert str(UUID(same)) == same == delivery_id(end)
    assert same != delivery_id(msgspec.structs.replace(end, generation=generation + 1))
    assert same < delivery_id(msgspec.structs.replace(end, completed_at=end.completed_at + timedelta(milliseconds=2)))
    assert message_id(same) == f"msg_{UUID(same).hex}"
