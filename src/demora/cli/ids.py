"""Ids as people type them: the whole id, or a part of it that belongs to one job, API key, secret or worker."""

import re
from uuid import UUID

from ..client.client import Client
from ..client.queues import MOST_PER_PAGE
from ..core.job import Job
from ..errors import JobNotFound
from .root import Failure

LEAST = 4  # characters
MOST_SEARCHED = 1000  # newest jobs in which a part at the end of an id is looked for
_DIGITS = 32  # of an id
_PART = re.compile(r"[0-9a-f]+")


async def whole_id(client: Client, typed: str) -> str:
    """Return the id that begins with what was typed or, among the newest jobs, ends with it.

    Fails if several ids do, and raises `JobNotFound` if none does. A whole id is returned as it is.
    """
    part = _digits(typed)
    if not LEAST <= len(part) < _DIGITS or not _PART.fullmatch(part):
        return typed
    found = await _beginning(client, part) or await _ending(client, part)
    if not found:
        raise JobNotFound(typed)
    if len(found) > 1:
        some = ", ".join(f"{job.id} ({job.type})" for job in found[:3])
        raise Failure(f"{typed} belongs to several jobs, for example {some}; type more of the id")
    return found[0].id


async def whole_key_id(client: Client, typed: str) -> str:
    """Return the id of the API key that begins with what was typed; what was typed if none does."""
    return _only(typed, [key.id for key in (await client.keys.list()).keys])


async def whole_secret_id(client: Client, typed: str) -> str:
    """Return the id of the webhook secret that begins with what was typed; what was typed if none does."""
    return _only(typed, [secret.id for secret in (await client.webhooks.secrets()).secrets])


async def whole_worker_id(client: Client, typed: str) -> str:
    """Return the id of the worker that begins with what was typed; what was typed if none does."""
    return _only(typed, [worker.id for worker in await client.registered_workers()])


def _only(typed: str, known: list[str]) -> str:
    found = [id for id in known if id.startswith(typed)]
    if typed in known or len(typed) < LEAST or not found:
        return typed
    if len(found) > 1:
        raise Failure(f"several ids begin so, for example {', '.join(found[:3])}; type more of the id")
    return found[0]


async def _beginning(client: Client, part: str) -> list[Job]:
    """Return up to four jobs whose ids begin with this part. Ids are in order, so this reads no other jobs."""
    last = str(UUID(part.ljust(_DIGITS, "f")))
    page = await client.find(after=last, limit=4, fields=())
    return [job for job in page.jobs if _digits(job.id).startswith(part)]


async def _ending(client: Client, part: str) -> list[Job]:
    found: list[Job] = []
    after: str | None = None
    for _ in range(MOST_SEARCHED // MOST_PER_PAGE):
        page = await client.find(after=after, limit=MOST_PER_PAGE, fields=())
        found += [job for job in page.jobs if _digits(job.id).endswith(part)]
        after = page.next
        if after is None:
            break
    return found


def _digits(id: str) -> str:
    return id.lower().replace("-", "")
