"""API keys: create, list, rotate, limit, revoke and look them up."""

import hashlib
import secrets
import string
from collections.abc import Collection, Iterable, Mapping, Set
from datetime import timedelta
from typing import Any

import msgspec

from ..core.access import (
    USE_NOTED_EVERY,
    ApiKey,
    KeyLimits,
    NameKind,
    Scope,
    accepted_for,
    check_limits,
    is_key_id,
    key_text,
    make_key,
    make_secret,
    present,
)
from ..errors import ApiKeyInForce, ApiKeyNotFound, ApiKeyNotInForce
from ..store.api_keys import ApiKeyStore, KeyList, KeyLookup

SESSION_LIFE = timedelta(hours=12)
_ID = string.ascii_lowercase + string.digits
_SECRET = string.ascii_letters + string.digits


class MadeKey(msgspec.Struct, frozen=True):
    """A new key and its text. The store keeps only a digest, so the text cannot be shown again."""

    key: ApiKey
    text: str


class FoundSessions(msgspec.Struct, frozen=True):
    """The keys of the sessions that go on, by the tokens of the sessions, and whether any key exists."""

    keys: Mapping[str, ApiKey]
    any: bool


class ApiKeys:
    """The API keys of one store."""

    def __init__(self, api_keys: ApiKeyStore) -> None:
        self._api_keys = api_keys

    async def create(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        *,
        expires_in: timedelta | str | None = None,
        namespace: str | None = None,
        limits: KeyLimits | None = None,
    ) -> MadeKey:
        """Create a key, and return it with its text. The store keeps only a digest of the text."""
        text = _text(_drawn(_ID, 12))
        new = make_key(text, name, scopes, expires_in, namespace=namespace, limits=limits)
        return MadeKey(await self._api_keys.add(new), text)

    async def rotate(
        self, id: str, *, overlap: timedelta | str | None = None, expires_in: timedelta | str | None = None
    ) -> MadeKey:
        """Give a key in force a new secret. Its id, name, scopes, limits and namespace stay.

        The old secret is accepted for the `overlap`; without one it ends at once. Sessions that it has opened end with it.
        """
        text = _text(_checked(id))
        key = await self._api_keys.rotate(make_secret(text, overlap=overlap, expires_in=expires_in))
        if key is None:
            raise ApiKeyNotFound if (await self.find(id)).key is None else ApiKeyNotInForce
        return MadeKey(key, text)

    async def limit(self, id: str, **changes: Any) -> ApiKey:
        """Change some limits of a key: `changes` are the arguments of `check_limits`. Services follow within a second."""
        key = (await self._api_keys.find(_checked(id))).key
        if key is not None:
            limits = check_limits(**{**msgspec.structs.asdict(key.limits), **changes})
            key = await self._api_keys.limit(id, limits)
        if key is None:
            raise ApiKeyNotFound
        return key

    async def list(self) -> KeyList:
        """Return all keys, revoked and expired ones included, and the database's time."""
        return await self._api_keys.all()

    async def find(self, id: str) -> KeyLookup:
        """Look a key up by its id, whether or not it is in force."""
        return await self._api_keys.find(id)

    async def any_in_force(self) -> bool:
        """Return whether any key is in force."""
        found = await self._api_keys.all()
        return any(key.in_force(found.now) for key in found.keys)

    async def revoke(self, id: str) -> ApiKey:
        """Revoke a key for good. It stays on the list until it is forgotten."""
        key = await self._api_keys.revoke(_checked(id))
        if key is None:
            raise ApiKeyNotFound
        return key

    async def forget(self, id: str) -> None:
        """Delete a key that is no longer in force; `ApiKeyInForce` if it still is."""
        if not await self._api_keys.forget(_checked(id)):
            raise ApiKeyNotFound if (await self.find(id)).key is None else ApiKeyInForce

    async def note_use(self, key: ApiKey) -> None:
        """Record that a key is in use, at most once a minute across all processes."""
        await self._api_keys.use(key.id, unless_within=USE_NOTED_EVERY)

    async def name(self, key: ApiKey, queues: Set[str], types: Set[str], limits: KeyLimits) -> NameKind | None:
        """Record which queues and types a key uses. If either would exceed its limit, return which, and record none."""
        return await self._api_keys.name(key.id, queues, types, limits)

    async def waiting(self, key: ApiKey, *, most: int) -> int:
        """Return how many waiting jobs count for a key, at most `most`."""
        return await self._api_keys.waiting(key.id, most=most)

    async def open_session(self, key: ApiKey, text: str | None = None) -> str:
        """Sign a browser in with a key, and return the token of its session. The store keeps only a digest of it.

        A session ends after 12 hours, and as soon as its key is not in force any more. With the `text` of the key it also
        ends when that secret does.
        """
        token, life = secrets.token_urlsafe(32), SESSION_LIFE
        presented = None if text is None else present(text)
        if presented is not None and presented.digest != key.digest:  # a former secret, or one of this very moment
            found = await self._api_keys.find(key.id)
            life = min(life, accepted_for(found.key, presented, found.now))
        await self._api_keys.open_session(_session_digest(token), key.id, expires_in=life)
        return token

    async def find_sessions(self, tokens: Collection[str]) -> FoundSessions:
        """Look up the keys of sessions in one call. Sessions that have ended, and those whose key is not in force, are left
        out."""
        digests = {_session_digest(token): token for token in tokens}
        found = await self._api_keys.find_sessions(digests.keys())
        keys = {digests[digest]: key for digest, key in found.keys.items() if key.in_force(found.now)}
        return FoundSessions(keys, found.any)

    async def end_session(self, token: str) -> None:
        """Sign a browser out. Does nothing if its session has ended."""
        await self._api_keys.end_session(_session_digest(token))

    async def database_id(self) -> str:
        """Return the random id of the database. It is made once."""
        return await self._api_keys.database_id()


def _session_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()  # of 256 random bits, so a fast hash is enough


def _checked(id: str) -> str:
    if not is_key_id(id):
        raise ApiKeyNotFound
    return id


def _text(id: str) -> str:
    return key_text(id, _drawn(_SECRET, 43))  # 43 of 62 letters make 256 bits


def _drawn(letters: str, count: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(count))
