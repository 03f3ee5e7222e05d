"""What is told of a job's end, to whom, and how often it is tried: the one place that decides it."""

import hashlib
from datetime import datetime, timedelta

import msgspec

from .job import NewJob, Priority
from .spans import to_ms
from .states import Status

TYPE = "demora.webhook"
QUEUE = "demora.webhooks"
RETRIES = 15
RETRY_DELAY = timedelta(seconds=5)
RETRY_CAP = timedelta(hours=12)  # so that the last try is about two days after the end
MOST_RESULT = 64 * 1024  # bytes; a greater result is left out, and can be asked for by the id

_NAMES = {Status.COMPLETED: "completed", Status.FAILED: "failed", Status.CANCELLED: "cancelled"}


class Ended(msgspec.Struct, frozen=True):
    """What is known of a job that has a webhook, at the moment of its end."""

    id: str
    type: str
    generation: int
    status: Status
    completed_at: datetime
    attempts: int
    url: str
    on_cancel: bool = False
    result: bytes | None = None
    error: str | None = None


class Message(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The body of a webhook."""

    job_id: str
    job_type: str
    status: str
    completed_at: str
    attempts: int
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    result_too_large: bool = False


class Delivery(msgspec.Struct, frozen=True):
    """The payload of a delivery: the message as it is sent, and where to."""

    url: str
    message: msgspec.Raw


def delivery(ended: Ended) -> NewJob | None:
    """The job that tells of an end, None if nobody is to be told. The same end gives the same job, whoever asks."""
    if ended.type == TYPE or ended.status not in _NAMES:
        return None
    if ended.status is Status.CANCELLED and not ended.on_cancel:
        return None
    payload = Delivery(ended.url, msgspec.Raw(msgspec.json.encode(message(ended))))
    return NewJob(
        id=delivery_id(ended),
        type=TYPE,
        name=TYPE,
        queue=QUEUE,
        priority=Priority.NORMAL,
        payload=msgspec.json.encode(payload),
        max_retries=RETRIES,
        retry_delay=RETRY_DELAY,
        cause=ended.id,
    )


def message(ended: Ended) -> Message:
    completed = ended.status is Status.COMPLETED
    too_large = completed and len(ended.result or b"") > MOST_RESULT
    result = b"null" if ended.result is None or too_large else ended.result
    return Message(
        job_id=ended.id,
        job_type=ended.type,
        status=_NAMES[ended.status],
        completed_at=ended.completed_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        attempts=ended.attempts,
        result=msgspec.Raw(result) if completed else msgspec.UNSET,
        error=msgspec.UNSET if completed else ended.error,
        result_too_large=too_large,
    )


def delivery_id(ended: Ended) -> str:
    """An id that sorts by the time of the end, as all ids do, and is the same for the same end of the same generation."""
    drawn = hashlib.sha256(f"{ended.id} {ended.generation}".encode()).digest()
    bits = (to_ms(ended.completed_at) & ((1 << 48) - 1)) << 80 | int.from_bytes(drawn[:10])
    text = f"{(bits & ~(0xF << 76) & ~(0x3 << 62)) | 7 << 76 | 2 << 62:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def message_id(delivery: str) -> str:
    """The `webhook-id` of a delivery: the same on each try, also after a retry by hand."""
    return f"msg_{delivery.replace('-', '')}"
