"""The operations on what tells of a job's end."""

from ..views import told_view
from .operations import Ask, Reply


async def list_deliveries(ask: Ask) -> Reply:
    """Show what was told of a job's end: each delivery with its tries, and what the server answered."""
    return Reply(200, told_view(await (await ask.client()).webhooks.of(ask.path["id"])))


async def retry_deliveries(ask: Ask) -> Reply:
    """Deliver again what was given up about a job, under the same ids."""
    return Reply(200, told_view(await (await ask.client()).webhooks.redeliver(ask.path["id"])))
