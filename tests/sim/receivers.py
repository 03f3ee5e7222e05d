"""The receivers of the simulated webhooks, in the place of the network: they answer late, badly, or not at all."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from demora.core.outbound.targets import Policy, Target
from demora.core.outbound.webhook import message_id
from demora.outbound.sender import Crowded, NoAnswer, ServerReply
from demora.store.audit import Evidence
from tests.sim.world import World

SECRET = "whsec_c2ltdWxhdGVkLXNlY3JldC1zaW11bGF0ZWQ="


class Receivers:
    """What all of them were told, over all processes: by message, the statuses that were answered."""

    def __init__(self, world: World) -> None:
        self._world, self.policy = world, Policy()
        self._told: defaultdict[str, list[int]] = defaultdict(list)

    def leave_room(self, slots: int) -> None:
        """Nothing is counted here."""

    async def send(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> ServerReply:
        """Answer as chance has it; who is killed meanwhile may have been heard."""
        chance: Any = self._world.random
        drawn = chance.random()
        if drawn < 0.05:
            raise Crowded(target.host, 4, timedelta(seconds=0.5 + chance.random()))
        await asyncio.sleep(chance.random())
        if drawn < 0.15:
            self._world.happened("webhook not answered")
            raise NoAnswer("nobody is there")
        status = 503 if drawn < 0.28 else 410 if drawn < 0.29 else 200
        self._world.happened(f"webhook answered {status}")
        self._told[headers["webhook-id"]].append(status)
        await asyncio.sleep(chance.random() / 10)
        return ServerReply(status, {}, b"", False)

    def judge(self, evidence: Evidence) -> Iterator[str]:
        """What is recorded as delivered was accepted; what was accepted once is never told under another id."""
        for job in evidence.jobs:
            if job.cause is not None and job.status == "COMPLETED" and 200 not in self._told[message_id(job.id)]:
                yield f"I13 webhook: delivery {job.id} is COMPLETED and nobody accepted it"
        known = {message_id(job.id) for job in evidence.jobs} | {message_id(event.job) for event in evidence.events or ()}
        for id in self._told.keys() - known:
            yield f"I13 webhook: message {id} is of no delivery"
