"""The handlers of `bench.jobs`, in a worker that counts no statistics: what the statistics cost is measured against it."""

import re

from bench.jobs import app
from demora.core.statistics import Tally
from demora.engines.postgres.connection import connections
from demora.engines.sqlite.statistics import Writer

__all__ = ["app"]

_COUNTED = re.compile(r"^counted as \(.*?^\),\n", re.MULTILINE | re.DOTALL)


def _nothing(*_: object) -> None:
    pass


Writer.write = _nothing  # type: ignore[method-assign]
Tally.add_successes = Tally.add_times = _nothing  # type: ignore[method-assign]
for _name in ("settle", "complete"):
    connections._BLOCKS[_name], _found = _COUNTED.subn("", connections._BLOCKS[_name])
    assert _found == 1, f"the statement {_name} counts statistics"
