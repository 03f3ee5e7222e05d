"""Choices that both engines make alike."""

from ...core.states import Status
from ...store.jobs import Topic

SILENT = 86_400_000  # milliseconds without a heartbeat after which a worker is forgotten
LAPSED_AT_ONCE = 100  # lapsed leases that one claim recovers
MOST_NAMES = 10_000  # queue names that a store remembers as recorded
# A late notification about these does no harm: a claim hands out no expired job, and reads the paces as they are.
UNHURRIED = frozenset({Topic.EXPIRY, Topic.PACE})
# Statuses whose jobs have an index of their own, and the block that limits `find` to it.
NARROW = {frozenset({Status.FAILED}): "narrow_dead", frozenset({Status.PROCESSING}): "narrow_processing"}
