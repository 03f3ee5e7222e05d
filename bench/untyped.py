"""The handlers of `bench.jobs`, in a worker that claims jobs of every type: what its types cost is measured against it."""

from typing import Any

import msgspec

from bench.jobs import app
from demora.engines.postgres import PostgresStore
from demora.engines.sqlite import SqliteStore
from demora.line import LinedStore
from demora.store.jobs import Claimed, ClaimRequest

__all__ = ["app"]


def _claim_every_type(kind: Any) -> None:
    claim = kind.claim

    async def claim_every_type(store: Any, request: ClaimRequest) -> Claimed:
        claimed: Claimed = await claim(store, msgspec.structs.replace(request, types=None))
        return claimed

    kind.claim = claim_every_type


for _kind in (SqliteStore, PostgresStore, LinedStore):
    _claim_every_type(_kind)
