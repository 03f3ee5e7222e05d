"""The retention of each queue as engines apply it: which limits its ended jobs have, and when the next job is over them."""

from collections.abc import Iterable, Iterator

from ...core.retention import Keep, Retention
from ...core.spans import span_ms
from ...core.states import Status
from . import columns

EndedKind = tuple[str, int, int]  # queue, status and oldest end of some ended jobs: a row of the block `ended_kinds`
OVERDUE = 0  # milliseconds: a time before all others, for jobs that are over their limits now


class RetentionLimits:
    """The limits of all queues: those of the settings, and a queue's own over them, a row of the block `retentions`."""

    def __init__(self, general: Retention, own: Iterable[tuple[str, str]]) -> None:
        self._general = general
        self._own = {queue: columns.retention(text).over(general) for queue, text in own}

    def of(self, kinds: Iterable[EndedKind]) -> Iterator[tuple[str, Status, Keep]]:
        """Return the queues and statuses of which not all ended jobs are kept, with their limits."""
        for queue, number, _ in kinds:
            keep = self._keep(queue, number)
            if keep is not None and keep != Keep():
                yield queue, Status(number), keep

    def over_at(self, kinds: Iterable[EndedKind]) -> list[int]:
        """Return when the oldest job of each queue and status is over its age, in milliseconds."""
        limited = ((oldest, self._keep(queue, number)) for queue, number, oldest in kinds)
        return [oldest + span_ms(keep.age) for oldest, keep in limited if keep is not None and keep.age is not None]

    def _keep(self, queue: str, number: int) -> Keep | None:
        return self._own.get(queue, self._general).of(Status(number))
