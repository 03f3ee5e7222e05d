"""API keys on the wire."""

from datetime import datetime

import msgspec

from ..core.access import ApiKey, KeyLimits
from .shape import Shape, time_or_none


class LimitsView(msgspec.Struct, frozen=True, rename="camel"):
    """What an API key may submit. A null number means that of the settings, 0 no limit, an empty list all names."""

    max_queues: int | None
    max_types: int | None
    max_waiting: int | None
    rate: int | None
    queues: list[str]
    types: list[str]


class KeyView(msgspec.Struct, frozen=True, rename="camel"):
    """An API key without its secret. `key`, the text of the key, is there only in the answer that creates it."""

    id: str
    name: str
    scopes: list[str]
    state: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    namespace: str
    limits: LimitsView
    former_until: str | None
    key: str | msgspec.UnsetType = msgspec.UNSET


_KEY = Shape(ApiKey, KeyView, limits=Shape(KeyLimits, LimitsView))


def key_view(key: ApiKey, now: datetime) -> KeyView:
    former_until = None if key.former(now) is None else time_or_none(key.former_until)
    return _KEY.write(key, state=key.state(now), former_until=former_until)


def made_key_view(key: ApiKey, text: str) -> KeyView:
    """Return the view of a new key with its text."""
    return msgspec.structs.replace(key_view(key, key.created_at), key=text)
