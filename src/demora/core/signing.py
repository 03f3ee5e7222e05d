"""Signatures of webhooks: Standard Webhooks 1.0, version v1, several at once while a secret is being replaced."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from ..errors import Invalid

PREFIX = "whsec_"
SECRET_BYTES = 32
TOLERANCE = timedelta(minutes=5)
_SHORTEST, _LONGEST = 24, 64


class Secret(msgspec.Struct, frozen=True):
    """The key that webhooks are signed with. Shows nothing of itself."""

    key: bytes

    def __repr__(self) -> str:
        return "Secret(…)"

    def __str__(self) -> str:
        return "whsec_…"


def read_secret(text: str, field: str = "secret") -> Secret:
    """The secret that `whsec_…` means; `Invalid` repeats nothing of it."""
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
    """How the secret is written for whoever is to verify with it."""
    return PREFIX + base64.b64encode(key).decode()


def signed(id: str, body: bytes, secrets: Iterable[Secret], now: datetime) -> dict[str, str]:
    """The headers of a message that is sent now, with a signature for each secret."""
    seconds = str(int(now.timestamp()))
    signatures = [f"v1,{_signature(id, seconds, body, secret)}" for secret in secrets]
    return {"webhook-id": id, "webhook-timestamp": seconds, "webhook-signature": " ".join(signatures)}


def objection(headers: Mapping[str, str], body: bytes, secrets: Iterable[Secret], now: datetime) -> str | None:
    """Why a message with these headers, named in small letters, is not to be trusted; None if it is."""
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
