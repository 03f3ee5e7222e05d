"""Limits that both engines share."""

from ...store.jobs import Topic

SILENT = 86_400_000  # milliseconds without a heartbeat after which a worker is forgotten
LAPSED_AT_ONCE = 100  # lapsed leases that one claim recovers
MOST_NAMES = 10_000  # queue names that a store remembers as recorded
# A late notification about these does no harm: a claim hands out no expired job, and reads the paces as they are.
UNHURRIED = frozenset({Topic.EXPIRY, Topic.PACE})
MANY_HEADS = 256  # queues, lanes and ranks with waiting jobs after which a claim looks for due jobs by their types
MOST_DUE = 1000  # due jobs of one type and status after which it goes back to looking at every queue
