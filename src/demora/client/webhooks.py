"""Webhooks: the deliveries of a job and their tries, redelivery, signing secrets and disabled URLs."""

import secrets as chance
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..core.job import Attempt, Job
from ..core.outbound.webhook import SECRET_BYTES, Secret, secret_text
from ..core.payload import unpack
from ..core.spans import span
from ..core.states import RETRYABLE, Status
from ..errors import JobNotFound, SecretNotFound, UrlNotDisabled
from ..store.store import Store
from ..store.webhooks import Disabled, Signing, StoredSecret

OVERLAP = timedelta(days=1)  # how long a replaced secret signs beside the new one


class DeliveryTry(msgspec.Struct, frozen=True):
    """One try of a delivery. `status` and `excerpt` are the HTTP status and the start of the body; None if none came."""

    at: datetime | None
    ended_at: datetime | None
    status: int | None
    excerpt: str | None
    error: str | None


class DeliveryHistory(msgspec.Struct, frozen=True):
    """A delivery about the end of a job, and its tries so far."""

    delivery: Job
    tries: tuple[DeliveryTry, ...]

    @property
    def url(self) -> str:
        return str(self.delivery.payload["url"])


class MadeSecret(msgspec.Struct, frozen=True):
    """A new secret and its text, which is shown only here."""

    stored: StoredSecret
    text: str

    def __repr__(self) -> str:
        return f"MadeSecret({self.stored.id})"


class Webhooks:
    """The webhooks of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, id: str) -> list[DeliveryHistory]:
        """Return the deliveries about a job, oldest first, also after the job was deleted."""
        found = await self._store.webhooks.deliveries(id)
        if not found and await self._store.get(id) is None:
            raise JobNotFound(id)
        return [DeliveryHistory(one, tuple(_try(one, attempt) for attempt in one.attempts)) for one in found]

    async def redeliver(self, id: str) -> list[DeliveryHistory]:
        """Retry the failed deliveries about a job, under the same message ids, and return all deliveries about it."""
        dead = [one.delivery.id for one in await self.of(id) if one.delivery.status in RETRYABLE]
        if dead:
            await self._store.retry(dead)
        return await self.of(id)

    async def create_secret(self) -> MadeSecret:
        """Create a secret. From now on every delivery is signed with it, besides the secrets in force."""
        return await self._add(None)

    async def ensure_secret(self) -> MadeSecret | None:
        """Create a secret unless one is in force. Returns the new secret, None if there was one."""
        key = chance.token_bytes(SECRET_BYTES)
        stored = await self._store.webhooks.ensure_secret(Secret(key))
        return None if stored is None else MadeSecret(stored, secret_text(key))

    async def rotate_secret(self, overlap: timedelta | str = OVERLAP) -> MadeSecret:
        """Create a secret, and end all others after the `overlap`."""
        return await self._add(span(overlap, "overlap"))

    async def forget_secret(self, id: str) -> None:
        """Delete a secret. Deliveries are no longer signed with it."""
        if not await self._store.webhooks.forget_secret(id):
            raise SecretNotFound

    async def secrets(self) -> Signing:
        """Return the secrets on record and the database's time."""
        return await self._store.webhooks.signing()

    async def signing(self, url: str) -> Signing:
        """Return the secrets on record, the database's time, and whether this URL is disabled."""
        return await self._store.webhooks.signing(url)

    async def disable(self, url: str, reason: str) -> None:
        """Send nothing to a URL until it is enabled again."""
        await self._store.webhooks.disable(url, reason)

    async def enable(self, url: str) -> None:
        """Send to a disabled URL again; `UrlNotDisabled` if it is not disabled."""
        if not await self._store.webhooks.enable(url):
            raise UrlNotDisabled

    async def disabled(self) -> list[Disabled]:
        """Return all disabled URLs, in the order in which they were disabled."""
        return await self._store.webhooks.disabled()

    async def _add(self, others_end_in: timedelta | None) -> MadeSecret:
        key = chance.token_bytes(SECRET_BYTES)
        stored = await self._store.webhooks.add_secret(chance.token_hex(6), Secret(key), others_end_in=others_end_in)
        return MadeSecret(stored, secret_text(key))


def _try(delivery: Job, attempt: Attempt) -> DeliveryTry:
    answer = _answer(delivery, attempt)
    status, excerpt = answer.get("status"), answer.get("excerpt")
    return DeliveryTry(attempt.started_at, attempt.ended_at, status, excerpt, attempt.error)


def _answer(delivery: Job, attempt: Attempt) -> dict[str, Any]:
    """Return the record of the server's answer: in the attempt if it failed, otherwise in the job's result."""
    if attempt.error is None and delivery.status is Status.COMPLETED:
        kept = delivery.result
    elif attempt.traceback is not None and attempt.traceback.startswith("{"):
        kept = unpack(attempt.traceback.encode())
    else:
        kept = None
    return kept if isinstance(kept, dict) else {}
