"""The SQL store below a line, and the small ports of it that a line has nothing to do with."""

from datetime import timedelta
from typing import Protocol

from ..audit import Audited, Evidence, SqlEvent
from ..core.access import ApiKey, NewKey
from ..core.job import Job
from ..core.signing import Secret
from ..hookstore import Disabled, HookStore, Signing, StoredSecret
from ..keyring import Found, Keyring, Ring
from ..outbox import Outbox
from ..pacing import Outlook, PaceChange, Paced, Pacing
from ..store import Store
from ..survey import Probed, Pulse, Survey, Surveyed


class Inner(Store, Outbox, Audited, Surveyed, Keyring, HookStore, Paced, Protocol):
    """What an SQL store must be to have a line."""


class Passed:
    """Verbs that are passed on as they are."""

    inner: Inner

    # API keys

    async def add_key(self, key: NewKey) -> ApiKey:
        return await self.inner.add_key(key)

    async def keys(self) -> Ring:
        return await self.inner.keys()

    async def find_key(self, id: str) -> Found:
        return await self.inner.find_key(id)

    async def revoke_key(self, id: str) -> ApiKey | None:
        return await self.inner.revoke_key(id)

    async def forget_key(self, id: str) -> bool:
        return await self.inner.forget_key(id)

    async def use_key(self, id: str, *, unless_within: timedelta) -> bool:
        return await self.inner.use_key(id, unless_within=unless_within)

    # What can be shown to a checker

    async def events(self, after: int = 0) -> list[SqlEvent]:
        return await self.inner.events(after)

    async def evidence(self, *, integrity: bool = True) -> Evidence:
        return await self.inner.evidence(integrity=integrity)

    async def end_audit(self) -> None:
        await self.inner.end_audit()

    # What can be told to those who look after it

    async def survey(self) -> Survey:
        return await self.inner.survey()

    async def pulse(self, mark: int | None = None) -> Pulse:
        return await self.inner.pulse(mark)

    async def probe(self) -> None:
        if isinstance(self.inner, Probed):
            await self.inner.probe()

    # What webhooks need

    async def deliveries(self, cause: str) -> list[Job]:
        return await self.inner.deliveries(cause)

    async def add_secret(self, id: str, secret: Secret, *, others_end_in: timedelta | None = None) -> StoredSecret:
        return await self.inner.add_secret(id, secret, others_end_in=others_end_in)

    async def forget_secret(self, id: str) -> bool:
        return await self.inner.forget_secret(id)

    async def signing(self, url: str = "") -> Signing:
        return await self.inner.signing(url)

    async def disable(self, url: str, reason: str) -> None:
        await self.inner.disable(url, reason)

    async def enable(self, url: str) -> bool:
        return await self.inner.enable(url)

    async def disabled(self) -> list[Disabled]:
        return await self.inner.disabled()

    # What is told of paces

    async def pacings(self) -> list[Pacing]:
        return await self.inner.pacings()

    async def pace_changes(self, queue: str, *, limit: int) -> list[PaceChange]:
        return await self.inner.pace_changes(queue, limit=limit)

    async def outlook(self, id: str) -> Outlook | None:
        return await self.inner.outlook(id)
