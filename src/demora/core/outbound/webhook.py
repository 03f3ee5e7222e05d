"""Webhooks: the message about the end of a job, the delivery that sends it, and its signatures.

Signatures follow Standard Webhooks 1.0, version v1. While a secret is being replaced, a message has several.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from ...errors import Invalid
from ..job import NewJob, Priority
from ..spans import timestamp, to_ms
from ..states import Status

TYPE = "demora.webhook"
QUEUE = "demora.webhooks"
RETRIES = 15
RETRY_DELAY = timedelta(seconds=5)
RETRY_CAP = timedelta(hours=12)  # so that the last try is about a day and a half after the end
MOST_RESULT = 64 * 1024  # bytes; a larger result is left out, and the receiver can read it by the job's id

_NAMES = {Status.COMPLETED: "completed", Status.FAILED: "failed", Status.CANCELLED: "cancelled"}
PREFIX = "whsec_"
SECRET_BYTES = 32
TOLERANCE = timedelta(minutes=5)
_SHORTEST, _LONGEST = 24, 64


# Messages and deliveries


class EndedJob(msgspec.Struct, frozen=True):
    """The facts about a job with a webhook at its end."""

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
    schedule: str | None = None
    slot_at: datetime | None = None


class Message(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The body of a webhook. Only a job of a schedule has `schedule_name`, and `slot_at` unless a caller triggered it."""

    job_id: str
    job_type: str
    status: str
    completed_at: str
    attempts: int
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    result_too_large: bool = False
    schedule_name: str | None = None
    slot_at: str | None = None


class Delivery(msgspec.Struct, frozen=True):
    """The payload of a delivery: the URL, and the message exactly as it is sent."""

    url: str
    message: msgspec.Raw


def delivery(ended: EndedJob) -> NewJob | None:
    """Return the job that sends the message about an end, None if no message is to be sent. The same end always gives the
    same job."""
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


def message(ended: EndedJob) -> Message:
    completed = ended.status is Status.COMPLETED
    too_large = completed and len(ended.result or b"") > MOST_RESULT
    result = b"null" if ended.result is None or too_large else ended.result
    return Message(
        job_id=ended.id,
        job_type=ended.type,
        status=_NAMES[ended.status],
        completed_at=timestamp(ended.completed_at),
        attempts=ended.attempts,
        result=msgspec.Raw(result) if completed else msgspec.UNSET,
        error=msgspec.UNSET if completed else ended.error,
        result_too_large=too_large,
        schedule_name=ended.schedule,
        slot_at=None if ended.slot_at is None else timestamp(ended.slot_at),
    )


def delivery_id(ended: EndedJob) -> str:
    """Return an id that sorts by the time of the end, as all ids do, and is always the same for an end of a generation."""
    drawn = hashlib.sha256(f"{ended.id} {ended.generation}".encode()).digest()
    bits = (to_ms(ended.completed_at) & ((1 << 48) - 1)) << 80 | int.from_bytes(drawn[:10])
    text = f"{(bits & ~(0xF << 76) & ~(0x3 << 62)) | 7 << 76 | 2 << 62:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def message_id(delivery: str) -> str:
    """Return the `webhook-id` of a delivery. It is the same on each try, also after a retry by hand."""
    return f"msg_{delivery.replace('-', '')}"


# Signatures


class Secret(msgspec.Struct, frozen=True):
    """The key that signs webhooks. Its text forms do not reveal it."""

    key: bytes

    def __repr__(self) -> str:
        return "Secret(…)"

    def __str__(self) -> str:
        return "whsec_…"


def read_secret(text: str, field: str = "secret") -> Secret:
    """Read a secret, `whsec_…`. `Invalid` repeats no part of it."""
    wrong = Invalid(field, f"must be {PREFIX} and then {_SHORTEST} to {_LONGEST} random bytes in base64")
    if not text.startswith(PREFIX):
        raise wrong
    encoded = text.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise wrong from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise wrong
    return Secret(key)


def secret_text(key: bytes) -> str:
    """Return the secret as text, for the receiver that verifies with it."""
    return PREFIX + base64.b64encode(key).decode()


def signed(id: str, body: bytes, secrets: Iterable[Secret], now: datetime) -> dict[str, str]:
    """Return the headers of a message that is sent now, with a signature for each secret."""
    seconds = str(int(now.timestamp()))
    signatures = [f"v1,{_signature(id, seconds, body, secret)}" for secret in secrets]
    return {"webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": " ".join(signatures)}


def objection(headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], now: datetime) -> str | None:
    """Return why a message must not be trusted, None if it is genuine. The names of the headers are in lower case."""
    try:
        id, seconds, given = (headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        return f"the header {missing.args[0]} is missing"
    if not (seconds.isascii() and seconds.isdigit()) or abs(now.timestamp() - int(seconds)) > TOLERANCE.total_seconds():
        return "it was signed more than 5 minutes ago or ahead of now"
    right = [_signature(id, seconds, body, secret).encode() for secret in secrets]
    for signature in given.split():
        version, _, value = signature.partition(",")
        if version == "v1" and any(hmac.compare_digest(one, value.encode()) for one in right):
            return None
    return "no signature fits"


def _signature(id: str, seconds: str, body: bytes, secret: Secret) -> str:
    return base64.b64encode(hmac.digest(secret.key, f"{id}.{seconds}.".encode() + body, hashlib.sha256)).decode()
