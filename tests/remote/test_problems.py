"""Problems of a service as exceptions: the same classes with the same attributes as those of the verb on a database."""

from typing import Any

import msgspec
import pytest

from demora import errors
from demora.errors import DemoraError, Invalid
from demora.remote.problems import _CLASSES, error_of
from demora.wire.names import as_argument, as_field
from demora.wire.problems import as_sent, kind_of, problem_of

# Each error that a verb over HTTP can raise, and what the client knows of it by itself.
ARRIVING: list[tuple[DemoraError, dict[str, Any]]] = [
    (Invalid("max_retries", "must be a whole number"), {}),
    (Invalid("jobs[2].at", "must have a time zone"), {}),
    (errors.TooLarge("payload", "at most 1 MiB"), {}),
    (errors.UnknownJobType("a", ["b"]), {"type": "a"}),
    (errors.UnknownJobType("a", ["b"], job=3), {"type": "a"}),
    (errors.JobNotFound("1"), {"id": "1"}),
    (errors.WrongState("1", "cancel", "COMPLETED", "QUEUED"), {"id": "1", "verb": "cancel"}),
    (errors.KeyReused("order-1"), {"key": "order-1"}),
    (errors.KeyReused("order-1", 3), {"key": "order-1"}),
    (errors.NotAllowedForKey("queue", "mail", ["post"]), {}),
    (errors.LimitReached("type", 10), {}),
    (errors.TooManyWaiting(10), {}),
    (errors.QueueNotFound("mail"), {"name": "mail"}),
    (errors.WorkerNotFound("ann-1"), {"id": "ann-1"}),
    (errors.StoreError("a statement failed"), {}),
    (errors.StoreUnreachable("no connection", may_pass=True), {}),
    (errors.StoreBusy("locked"), {}),
    (errors.SearchTooSlow(3), {}),
    (errors.TooManySearches(4), {}),
]
# No verb over HTTP asks for what these refuse, or the client raises them itself.
OF_OTHER_VERBS = {
    *(errors.MetricsNotInstalled, errors.ScheduleNotFound, errors.ScheduleTaken, errors.UndoTooLate, errors.JobChanged),
    *(errors.ApiKeyNotFound, errors.ApiKeyInForce, errors.ApiKeyNotInForce, errors.SecretNotFound, errors.UrlNotDisabled),
    *(errors.StillRunning, errors.JobFailed),
}
WITHOUT_DETAILS = {errors.StoreGone}  # a service does not say where its database is


@pytest.mark.parametrize(("error", "facts"), ARRIVING)
def test_an_error_arrives_with_its_class_its_text_and_its_attributes(error: DemoraError, facts: dict[str, Any]) -> None:
    sent = problem_of(as_sent(error) if isinstance(error, Invalid) else error)
    arrived = error_of(sent.status, msgspec.json.encode(sent), facts)
    assert type(arrived) is type(error)
    assert str(arrived) == (kind_of(error).detail or str(error))
    assert (vars(arrived), arrived.repeated) == (vars(error), False)


def test_every_error_that_a_service_can_answer_is_tried() -> None:
    assert set(_CLASSES.values()) == {type(error) for error, _ in ARRIVING} | OF_OTHER_VERBS | WITHOUT_DETAILS


@pytest.mark.parametrize(
    ("field", "argument"),
    [
        ("maxRetries", "max_retries"),
        ("jobs[2].scheduledAt", "jobs[2].at"),
        ("idempotencyKey", "key"),
        ("cursor", "after"),
        ("payload.firstName", "payload.firstName"),
        ("jobs[0].payload.scheduledAt", "jobs[0].payload.scheduledAt"),
    ],
)
def test_a_field_is_named_as_its_argument_and_what_is_inside_a_payload_stays(field: str, argument: str) -> None:
    assert (as_argument(field), as_field(argument)) == (argument, field)
