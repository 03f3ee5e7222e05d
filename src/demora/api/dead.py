"""The operations on dead letters: the jobs that failed for good."""

from ..bulk import Tally
from ..views import tally_view
from .jobs import list_page
from .operations import SEARCH_LIMIT, Ask, Reply
from .wishes import DeadQuery, DeadWish


async def list_dead_letters(ask: Ask) -> Reply:
    """List the jobs that failed for good, newest first, page by page."""
    query: DeadQuery = ask.query
    return await list_page(ask, query.options())


async def retry_dead_letters(ask: Ask) -> Reply:
    """Run again the dead letters that match, with all their retries; with `dryRun` only count them."""
    wish: DeadWish = ask.body
    return _told(await (await ask.client()).retry_many(**wish.options(), within=SEARCH_LIMIT), wish)


async def delete_dead_letters(ask: Ask) -> Reply:
    """Remove the dead letters that match, with their history; with `dryRun` only count them."""
    wish: DeadWish = ask.body
    return _told(await (await ask.client()).delete_many(**wish.options(), within=SEARCH_LIMIT), wish)


def _told(tally: Tally, wish: DeadWish) -> Reply:
    return Reply(200, tally_view(tally, dry_run=bool(wish.dry_run)))
