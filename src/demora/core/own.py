"""The job types and queues of demora's own, which callers neither add jobs to nor run."""

from . import action, webhook
from .filters import JobFilter

OWN_TYPES = (webhook.TYPE, action.TYPE)
OWN_QUEUES = (webhook.QUEUE, action.QUEUE)  # every worker serves them, and the pace of all queues leaves them out
RESUMED_TYPES = frozenset({action.TYPE})  # a run goes on where the last one was, so claims and retries keep its message


def means_own(filter: JobFilter) -> bool:
    """Return whether a filter names jobs of demora's own, by their queue or type. Verbs on many jobs leave them alone
    otherwise: who cancels everything does not mean the action that does it, nor the webhooks of the cancelled jobs."""
    return filter.queue in OWN_QUEUES or filter.exact_type in OWN_TYPES
