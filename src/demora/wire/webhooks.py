"""Deliveries of webhooks, and the secrets that sign them, on the wire."""

from datetime import datetime

import msgspec

from ..client.webhooks import DeliveryHistory, DeliveryTry
from ..core.outbound.webhook import message_id
from ..core.spans import timestamp
from ..store.webhooks import StoredSecret
from .shape import Shape


class TryView(msgspec.Struct, frozen=True, rename="camel"):
    """One try of a delivery: the HTTP status, null without an answer, and the start of the body."""

    at: str | None
    ended_at: str | None
    status: int | None
    excerpt: str | None
    error: str | None


class DeliveryView(msgspec.Struct, frozen=True, rename="camel"):
    """A delivery about the end of a job. `id` is the job that delivers it, `webhookId` the id that the receiver sees."""

    id: str
    webhook_id: str
    url: str
    event: str
    status: str
    due_at: str
    tries: list[TryView]


class DeliveriesView(msgspec.Struct, frozen=True):
    deliveries: list[DeliveryView]


class SecretView(msgspec.Struct, frozen=True, rename="camel"):
    """A secret that signs webhooks, without its text."""

    id: str
    in_force: bool
    created_at: str
    ends_at: str | None


_TRY = Shape(DeliveryTry, TryView)
_SECRET = Shape(StoredSecret, SecretView)


def deliveries_view(found: list[DeliveryHistory]) -> DeliveriesView:
    return DeliveriesView([_delivery(one) for one in found])


def secret_view(secret: StoredSecret, now: datetime) -> SecretView:
    return _SECRET.write(secret, in_force=secret.in_force(now))


def _delivery(history: DeliveryHistory) -> DeliveryView:
    job = history.delivery
    event = str(job.payload["message"]["status"])
    return DeliveryView(
        id=job.id,
        webhook_id=message_id(job.id),
        url=history.url,
        event=event,
        status=job.status.name,
        due_at=timestamp(job.due_at),
        tries=[_TRY.write(one) for one in history.tries],
    )
