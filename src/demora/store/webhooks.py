"""The port for webhooks: signing secrets, disabled URLs, and the deliveries of a job. The deliveries are jobs themselves.

As in `Store`, verbs take no current time: the engine reads the clock of its database during the call.
"""

from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from ..core.job import Job
from ..core.outbound.webhook import Secret

FIRST_SECRET = "first"  # the id of the secret that demora makes by itself


class StoredSecret(msgspec.Struct, frozen=True):
    """A secret that signs webhooks, until `ends_at` if another one replaces it."""

    id: str
    secret: Secret
    created_at: datetime
    ends_at: datetime | None = None

    def in_force(self, now: datetime) -> bool:
        """Whether deliveries are signed with it."""
        return self.ends_at is None or now < self.ends_at


class Disabled(msgspec.Struct, frozen=True):
    """A URL to which demora sends nothing until it is enabled again."""

    url: str
    reason: str
    disabled_at: datetime


class Signing(msgspec.Struct, frozen=True):
    """The data for a delivery as of `now`: the secrets on record, newest first, and whether its URL is disabled."""

    secrets: list[StoredSecret]
    disabled: Disabled | None
    now: datetime


class WebhookStore(Protocol):
    """The secrets that sign webhooks, the disabled URLs, and the deliveries."""

    async def deliveries(self, cause: str) -> list[Job]:
        """Return the deliveries about a job, oldest first, with their attempts, also after the job was deleted."""
        ...

    async def add_secret(self, id: str, secret: Secret, *, others_end_in: timedelta | None = None) -> StoredSecret:
        """Store a secret. With `others_end_in` all other secrets that have no end yet end so long from now."""
        ...

    async def ensure_secret(self, secret: Secret) -> StoredSecret | None:
        """Store a secret under the id `FIRST_SECRET` and return it; None if a secret is in force. Of concurrent calls one
        stores its secret."""
        ...

    async def forget_secret(self, id: str) -> bool:
        """Delete a secret; False if no secret has this id."""
        ...

    async def signing(self, url: str = "") -> Signing:
        """Return the secrets on record, the database's time, and whether this URL is disabled."""
        ...

    async def disable(self, url: str, reason: str) -> None:
        """Disable a URL. Disabling it again changes nothing."""
        ...

    async def enable(self, url: str) -> bool:
        """Enable a URL again; False if it was not disabled."""
        ...

    async def disabled(self) -> list[Disabled]:
        """Return all disabled URLs, in the order in which they were disabled."""
        ...
