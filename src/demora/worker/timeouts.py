"""The deadlines of runs, watched with one timer. Most runs end long before theirs, so `watch` and `forget` are cheap.

Runs with the same timeout reach their deadlines in the order of their start, so each such group is a plain dict.
"""

import asyncio
from collections.abc import Callable
from math import inf

from .run import Run


class Timeouts:
    """Calls `expired` for each run that is still watched at its deadline, once."""

    def __init__(self, expired: Callable[[Run], None]) -> None:
        self._expired = expired
        self._groups: dict[float, dict[Run, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def watch(self, run: Run, seconds: float) -> None:
        """Call `expired` for the run after so many seconds, unless it is forgotten before."""
        deadline = asyncio.get_running_loop().time() + seconds
        group = self._groups.get(seconds)
        if group is None:
            group = self._groups[seconds] = {}
        group[run] = deadline
        if deadline < self._at:
            self._set_timer(deadline)

    def forget(self, run: Run, seconds: float) -> None:
        """Stop watching the run; `seconds` is the value given to `watch`."""
        group = self._groups.get(seconds)
        if group is not None:
            group.pop(run, None)
            if not group:
                del self._groups[seconds]

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = None if at == inf else asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        late = [(group, run) for group in self._groups.values() for run, deadline in group.items() if deadline <= now]
        for group, run in late:
            del group[run]
        self._groups = {seconds: group for seconds, group in self._groups.items() if group}
        self._set_timer(min((next(iter(group.values())) for group in self._groups.values()), default=inf))
        for _, run in late:
            self._expired(run)
