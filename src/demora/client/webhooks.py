"""What may be asked about webhooks: the part of the client that shows tries, delivers again, and keeps secrets."""

import secrets as chance
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..core.job import Attempt, Job
from ..core.payload import unpack
from ..core.spans import span
from ..core.states import RETRYABLE, Status
from ..core.webhook import SECRET_BYTES, Secret, secret_text
from ..errors import JobNotFound, SecretNotFound, StoreError, UrlNotDisabled
from ..store.jobs import Store
from ..store.webhooks import Disabled, Signing, StoredSecret, WebhookStore

OVERLAP = timedelta(days=1)  # that a replaced secret goes on signing beside the new one


class DeliveryTry(msgspec.Struct, frozen=True):
    """One try of a delivery: what the server answered, None if it did not, and the beginning of what it said."""

    at: datetime | None
    ended_at: datetime | None
    status: int | None
    excerpt: str | None
    error: str | None


class DeliveryHistory(msgspec.Struct, frozen=True):
    """A delivery about a job's end, and its tries so far."""

    delivery: Job
    tries: tuple[DeliveryTry, ...]

    @property
    def url(self) -> str:
        return str(self.delivery.payload["url"])


class MadeSecret(msgspec.Struct, frozen=True):
    """A new secret and its text, which nothing shows again."""

    stored: StoredSecret
    text: str

    def __repr__(self) -> str:
        return f"MadeSecret({self.stored.id})"


class Webhooks:
    """Speaks to what a store keeps for webhooks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, id: str) -> list[DeliveryHistory]:
        """The deliveries about a job, the oldest first; also when the job itself is gone."""
        found = await self._hooks().deliveries(id)
        if not found and await self._store.get(id) is None:
            raise JobNotFound(id)
        return [DeliveryHistory(one, tuple(_try(one, attempt) for attempt in one.attempts)) for one in found]

    async def redeliver(self, id: str) -> list[DeliveryHistory]:
        """Try again what was given up about a job, under the ids of before; answers with all deliveries about it."""
        dead = [told.delivery.id for told in await self.of(id) if told.delivery.status in RETRYABLE]
        if dead:
            await self._store.retry(dead)
        return await self.of(id)

    async def create_secret(self) -> MadeSecret:
        """Make a secret beside those in force; from now on each delivery is signed with it too."""
        return await self._add(None)

    async def rotate_secret(self, overlap: timedelta | str = OVERLAP) -> MadeSecret:
        """Make a secret, and let all others sign for so long only."""
        return await self._add(span(overlap, "overlap"))

    async def forget_secret(self, id: str) -> None:
        """Sign with it no more, from now on."""
        if not await self._hooks().forget_secret(id):
            raise SecretNotFound

    async def secrets(self) -> Signing:
        """The secrets on record, without their texts, and the time."""
        return await self._hooks().signing()

    async def signing(self, url: str) -> Signing:
        return await self._hooks().signing(url)

    async def disable(self, url: str, reason: str) -> None:
        await self._hooks().disable(url, reason)

    async def enable(self, url: str) -> None:
        """Send to a URL again that was disabled."""
        if not await self._hooks().enable(url):
            raise UrlNotDisabled

    async def disabled(self) -> list[Disabled]:
        return await self._hooks().disabled()

    async def _add(self, others_end_in: timedelta | None) -> MadeSecret:
        key = chance.token_bytes(SECRET_BYTES)
        stored = await self._hooks().add_secret(chance.token_hex(6), Secret(key), others_end_in=others_end_in)
        return MadeSecret(stored, secret_text(key))

    def _hooks(self) -> WebhookStore:
        if isinstance(self._store, WebhookStore):
            return self._store
        raise StoreError("this store keeps nothing for webhooks")


def _try(delivery: Job, attempt: Attempt) -> DeliveryTry:
    said = _said(delivery, attempt)
    status, excerpt = said.get("status"), said.get("excerpt")
    return DeliveryTry(attempt.started_at, attempt.ended_at, status, excerpt, attempt.error)


def _said(delivery: Job, attempt: Attempt) -> dict[str, Any]:
    """What is kept of the answer to one try: with the attempt if it failed, else in the result."""
    if attempt.error is None and delivery.status is Status.COMPLETED:
        kept = delivery.result
    elif attempt.traceback is not None and attempt.traceback.startswith("{"):
        kept = unpack(attempt.traceback.encode())
    else:
        kept = None
    return kept if isinstance(kept, dict) else {}
