"""Problems of a service as exceptions: their fields are named as the arguments of the same verb."""

import pytest

from demora.remote.problems import _argument


@pytest.mark.parametrize(
    ("field", "argument"),
    [
        ("maxRetries", "max_retries"),
        ("jobs[2].scheduledAt", "jobs[2].at"),
        ("idempotencyKey", "key"),
        ("payload.firstName", "payload.firstName"),
        ("jobs[0].payload.scheduledAt", "jobs[0].payload.scheduledAt"),
    ],
)
def test_a_field_is_named_as_its_argument_and_what_is_inside_a_payload_stays(field: str, argument: str) -> None:
    assert _argument(field) == argument
