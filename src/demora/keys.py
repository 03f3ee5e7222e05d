"""What may be asked about API keys: the part of the client that makes, shows, revokes and looks them up."""

import secrets
import string
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from .core.access import USE_NOTED_EVERY, ApiKey, Scope, is_key_id, key_text, make_key
from .errors import ApiKeyInForce, ApiKeyNotFound, StoreError
from .keyring import Found, Keyring, Ring
from .store import Store

_ID = string.ascii_lowercase + string.digits
_SECRET = string.ascii_letters + string.digits


class MadeKey(msgspec.Struct, frozen=True):
    """A new key and its text, which nothing can show again."""

    key: ApiKey
    text: str


class Keys:
    """Speaks to the keyring of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self, name: str, scopes: Iterable[Scope | str], *, expires_in: timedelta | str | None = None
    ) -> MadeKey:
        """Make a key. Its text is in this answer and nowhere else: the store keeps a digest."""
        text = key_text(_drawn(_ID, 12), _drawn(_SECRET, 43))  # 43 of 62 letters are 256 bits
        return MadeKey(await self._ring().add_key(make_key(text, name, scopes, expires_in)), text)

    async def list(self) -> Ring:
        return await self._ring().keys()

    async def find(self, id: str) -> Found:
        """The key with this id. A store that keeps no keys has none."""
        if not isinstance(self._store, Keyring):
            return Found(None, False, datetime.now(UTC))
        return await self._store.find_key(id)

    async def any_in_force(self) -> bool:
        """Whether somebody can come in with a key."""
        if not isinstance(self._store, Keyring):
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

    def _ring(self) -> Keyring:
        if isinstance(self._store, Keyring):
            return self._store
        raise StoreError("this store keeps no API keys")


def _checked(id: str) -> str:
    if not is_key_id(id):
        raise ApiKeyNotFound
    return id


def _drawn(letters: str, count: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(count))
