"""What may be asked about API keys: the part of the client that makes, shows, revokes and looks them up."""

import secrets
import string
from collections.abc import Iterable, Set
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..core.access import (
    USE_NOTED_EVERY,
    ApiKey,
    KeyLimits,
    NameKind,
    Scope,
    check_limits,
    is_key_id,
    key_text,
    make_key,
    make_secret,
)
from ..errors import ApiKeyInForce, ApiKeyNotFound, ApiKeyNotInForce, StoreError
from ..store.api_keys import ApiKeyStore, KeyList, KeyLookup
from ..store.jobs import Store

_ID = string.ascii_lowercase + string.digits
_SECRET = string.ascii_letters + string.digits


class MadeKey(msgspec.Struct, frozen=True):
    """A new key and its text, which nothing can show again."""

    key: ApiKey
    text: str


class ApiKeys:
    """Speaks to the keyring of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        *,
        expires_in: timedelta | str | None = None,
        namespace: str | None = None,
        limits: KeyLimits | None = None,
    ) -> MadeKey:
        """Make a key. Its text is in this answer and nowhere else: the store keeps a digest."""
        text = _text(_drawn(_ID, 12))
        new = make_key(text, name, scopes, expires_in, namespace=namespace, limits=limits)
        return MadeKey(await self._ring().add_key(new), text)

    async def rotate(
        self, id: str, *, overlap: timedelta | str | None = None, expires_in: timedelta | str | None = None
    ) -> MadeKey:
        """Give a key in force a new secret: its id, name, scopes, limits and namespace stay. The old secret is accepted for
        the `overlap`, or no longer."""
        text = _text(_checked(id))
        key = await self._ring().rotate_key(make_secret(text, overlap=overlap, expires_in=expires_in))
        if key is None:
            raise ApiKeyNotFound if (await self.find(id)).key is None else ApiKeyNotInForce
        return MadeKey(key, text)

    async def limit(self, id: str, **changes: Any) -> ApiKey:
        """Change limits of a key, named as `check_limits` has them; the others stay. Services follow within a second."""
        ring = self._ring()
        key = (await ring.find_key(_checked(id))).key
        if key is not None:
            limits = check_limits(**{**msgspec.structs.asdict(key.limits), **changes})
            key = await ring.limit_key(id, limits)
        if key is None:
            raise ApiKeyNotFound
        return key

    async def list(self) -> KeyList:
        return await self._ring().keys()

    async def find(self, id: str) -> KeyLookup:
        """The key with this id. A store that keeps no keys has none."""
        if not isinstance(self._store, ApiKeyStore):
            return KeyLookup(None, False, datetime.now(UTC))
        return await self._store.find_key(id)

    async def any_in_force(self) -> bool:
        """Whether somebody can come in with a key."""
        if not isinstance(self._store, ApiKeyStore):
            return False
        ring = await self._store.keys()
        return any(key.in_force(ring.now) for key in ring.keys)

    async def revoke(self, id: str) -> ApiKey:
        """End a key for good; it stays on the list."""
        key = await self._ring().revoke_key(_checked(id))
        if key is None:
            raise ApiKeyNotFound
        return key

    async def forget(self, id: str) -> None:
        """Take a key off the list that is no longer in force."""
        if not await self._ring().forget_key(_checked(id)):
            raise ApiKeyNotFound if (await self.find(id)).key is None else ApiKeyInForce

    async def note_use(self, key: ApiKey) -> None:
        """Note that a key is in use, at most once a minute over all processes."""
        await self._ring().use_key(key.id, unless_within=USE_NOTED_EVERY)

    async def name(self, key: ApiKey, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        """Record which queues and types a key uses; the answer says of which there would be too many."""
        return await self._ring().name_for_key(key.id, queues, types, limits)

    async def waiting(self, key: ApiKey, *, most: int) -> int:
        """How many waiting jobs count for a key, up to `most`."""
        return await self._ring().waiting_for_key(key.id, most=most)

    def _ring(self) -> ApiKeyStore:
        if isinstance(self._store, ApiKeyStore):
            return self._store
        raise StoreError("this store keeps no API keys")


def _checked(id: str) -> str:
    if not is_key_id(id):
        raise ApiKeyNotFound
    return id


def _text(id: str) -> str:
    return key_text(id, _drawn(_SECRET, 43))  # 43 of 62 letters are 256 bits


def _drawn(letters: str, count: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(count))
