"""The fourth, small port: what an engine keeps for webhooks besides the deliveries, which are jobs.

As in `Store`, verbs take no time: the engine reads its database's clock in the statement.
"""

from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import msgspec

from ..core.job import Job
from ..core.webhook import Secret


class StoredSecret(msgspec.Struct, frozen=True):
    """A secret that webhooks are signed with, until `ends_at` if another has taken its place."""

    id: str
    secret: Secret
    created_at: datetime
    ends_at: datetime | None = None

    def in_force(self, now: datetime) -> bool:
        return self.ends_at is None or now < self.ends_at


class Disabled(msgspec.Struct, frozen=True):
    """A URL that nothing is sent to any more."""

    url: str
    reason: str
    disabled_at: datetime


class Signing(msgspec.Struct, frozen=True):
    """What a delivery needs to know, as of `now`: the secrets on record, newest first, and whether its URL is disabled."""

    secrets: list[StoredSecret]
    disabled: Disabled | None
    now: datetime


@runtime_checkable
class WebhookStore(Protocol):
    """An engine that keeps what webhooks need."""

    async def deliveries(self, cause: str) -> list[Job]:
        """The deliveries that tell of a job's ends, the oldest first, with their attempts; also when the job is gone."""
        ...

    async def add_secret(self, id: str, secret: Secret, *, others_end_in: timedelta | None = None) -> StoredSecret:
        """Record a secret; with `others_end_in` all others that have no end yet end after so long."""
        ...

    async def forget_secret(self, id: str) -> bool:
        """Delete a secret at once; False if there is none."""
        ...

    async def signing(self, url: str = "") -> Signing:
        """The secrets on record, and whether this URL is disabled."""
        ...

    async def disable(self, url: str, reason: str) -> None:
        """Send nothing to a URL from now on; to disable twice is to disable once."""
        ...

    async def enable(self, url: str) -> bool:
        """Send to a URL again; False if it was not disabled."""
        ...

    async def disabled(self) -> list[Disabled]:
        """All disabled URLs, in the order of their disabling."""
        ...
