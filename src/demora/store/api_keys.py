"""The third, small port: API keys, as an engine keeps them.

Jobs need none of it, so it stays out of `Store`; an engine is both. As there, verbs take no time: the engine reads its
database's clock in the statement, and says what it read where a decision depends on it.
"""

from collections.abc import Set
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import msgspec

from ..core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret


class KeyLookup(msgspec.Struct, frozen=True):
    """The answer to a look for a key: the key if there is one, whether there is any key at all, and the time."""

    key: ApiKey | None
    any: bool
    now: datetime


class KeyList(msgspec.Struct, frozen=True):
    """Every key, the oldest first, and the time."""

    keys: list[ApiKey]
    now: datetime


@runtime_checkable
class ApiKeyStore(Protocol):
    """An engine that keeps API keys. Ids are short ASCII text; the empty text is an id that no key has."""

    async def add_key(self, key: NewKey) -> ApiKey:
        """Record a key. An id that is taken is refused with a `StoreError`, and nothing changes."""
        ...

    async def keys(self) -> KeyList:
        """All keys, those that were revoked or have expired too."""
        ...

    async def find_key(self, id: str) -> KeyLookup:
        """The key with this id, whether or not it is in force."""
        ...

    async def revoke_key(self, id: str) -> ApiKey | None:
        """Revoke a key for good, and answer with it; None if there is none. To revoke twice is to revoke once."""
        ...

    async def rotate_key(self, secret: NewSecret) -> ApiKey | None:
        """Give a key a new secret, and answer with it; None if there is no such key in force. All else of it stays. A secret
        before the last one ends at once."""
        ...

    async def limit_key(self, id: str, limits: KeyLimits) -> ApiKey | None:
        """Give a key other limits, and answer with it; None if there is none."""
        ...

    async def forget_key(self, id: str) -> bool:
        """Delete a key that is no longer in force, with the names it used; False if it is, or if there is none."""
        ...

    async def use_key(self, id: str, *, unless_within: timedelta) -> bool:
        """Note that a key was used now, unless a use so short a time ago is on record; say whether it was noted. Of calls at
        the same time, in any process, one is noted."""
        ...

    async def name_for_key(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        """Record which queues and types a key uses, all of them or none: the answer says of which there would be more than
        the limits allow. Names on record stay allowed, whatever the limits. Calls at the same time, in any process, do not
        pass the limits together. Does nothing if there is no such key."""
        ...

    async def waiting_for_key(self, id: str, *, most: int) -> int:
        """How many waiting jobs count for a key; it counts to `most`, and no further."""
        ...
