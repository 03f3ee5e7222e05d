"""The port for API keys.

It is separate from `Store` because running jobs does not need it. Verbs take no current time: the engine reads its
database's clock, and returns it where the caller decides by it.
"""

from collections.abc import Collection, Mapping, Set
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from ..core.access import ApiKey, KeyLimits, NameKind, NewKey, NewSecret


class KeyLookup(msgspec.Struct, frozen=True):
    """The result of a lookup: the key, None if it does not exist; whether any key exists; and the database's time."""

    key: ApiKey | None
    any: bool
    now: datetime


class KeyList(msgspec.Struct, frozen=True):
    """All keys, oldest first, and the database's time."""

    keys: list[ApiKey]
    now: datetime


class SessionsLookup(msgspec.Struct, frozen=True):
    """The result of looking up sessions: the key of each one that exists and has not expired, by the digest of its token;
    whether any key exists; and the database's time. A key may be revoked or expired, as with `KeyLookup`."""

    keys: Mapping[bytes, ApiKey]
    any: bool
    now: datetime


class ApiKeyStore(Protocol):
    """The API keys. An id is short ASCII text. No key has the empty text as its id."""

    async def add(self, key: NewKey) -> ApiKey:
        """Store a key. `StoreError` if the id is taken; then nothing changes."""
        ...

    async def all(self) -> KeyList:
        """Return all keys, revoked and expired ones included."""
        ...

    async def find(self, id: str) -> KeyLookup:
        """Look up the key with this id, whether or not it is in force."""
        ...

    async def revoke(self, id: str) -> ApiKey | None:
        """Revoke a key for good, and return it; None if no key has this id. Revoking it again changes nothing."""
        ...

    async def rotate(self, secret: NewSecret) -> ApiKey | None:
        """Give a key in force a new secret, and return it; None if no key in force has this id.

        Everything else about the key stays. The previous secret is accepted for the overlap of the request; a secret before
        that ends at once. The sessions of the key end with the previous secret.
        """
        ...

    async def limit(self, id: str, limits: KeyLimits) -> ApiKey | None:
        """Replace the limits of a key, and return it; None if no key has this id."""
        ...

    async def forget(self, id: str) -> bool:
        """Delete a key that is no longer in force, with its names and sessions; False if it is in force or unknown."""
        ...

    async def use(self, id: str, *, unless_within: timedelta) -> bool:
        """Record that a key is used now, unless a use `unless_within` this time is on record. Return whether it was
        recorded.

        Of concurrent calls, in any process, one records the use.
        """
        ...

    async def name(self, id: str, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        """Record which queues and types a key uses, all or none. Return the kind that would exceed its limit, else None.

        Names on record stay allowed under lower limits. Concurrent calls, in any process, cannot exceed a limit together.
        Does nothing if no key has this id.
        """
        ...

    async def waiting(self, id: str, *, most: int) -> int:
        """Return how many waiting jobs belong to a key. Counting stops at `most`."""
        ...

    async def open_session(self, digest: bytes, key_id: str, *, expires_in: timedelta) -> None:
        """Record a session of a browser that signed in with a key, by the digest of its token. Deletes expired sessions."""
        ...

    async def find_sessions(self, digests: Collection[bytes]) -> SessionsLookup:
        """Look up the keys of sessions that have not expired, whether or not the keys are in force."""
        ...

    async def end_session(self, digest: bytes) -> bool:
        """Delete a session. Returns whether it existed."""
        ...

    async def database_id(self) -> str:
        """Return the random id of this database. It is made once, and a copy of the database has the same."""
        ...
