"""A week of runs of a thousand queues and types: reading the metrics takes little memory, and keeps less."""

import json
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from demora.core.statistics import Tally
from demora.engines.sql.statistics import text
from tests.hostile.services import Service, serving

PAIRS, HOURS = 1000, 159
HOUR = 3_600_000
MOST = 100_000_000  # bytes more, for all metrics of all spans


def fill(path: Path) -> None:
    """Write what a merge would have left: an hour for each row."""
    spread = dict.fromkeys(range(20, 60, 4), 3)
    tally = text(Tally(completed=30, realtime=spread, delayed=spread, run=spread, latest_realtime=10**6, longest=10**6))
    last = int(time.time() * 1000) // HOUR * HOUR
    db = apsw.Connection(str(path))
    db.set_busy_timeout(10_000)
    with db:
        db.executemany(
            "insert into statistics (width, at, queue, type, tally) values (?, ?, ?, ?, ?)",
            [
                (HOUR, last - hour * HOUR, f"queue-{pair:04}", f"type-{pair:04}", tally)
                for hour in range(1, HOURS + 1)
                for pair in range(PAIRS)
            ],
        )
    db.close()


async def get(service: Service, path: str) -> dict[str, Any]:
    answer, body = await service.ask("GET", f"/api/v1/metrics/{path}")
    assert answer.status == 200
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.mark.slow
async def test_metrics_of_many_queues_and_types_take_little_memory(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-worker") as service:
        await get(service, "overview")
        fill(tmp_path / "demora.db")
        before = service.memory()
        overview = await get(service, "overview?span=week")
        for span in ("week", "day"):
            queues = await get(service, f"queues?span={span}&limit=100")
            await get(service, f"types?span={span}&limit=100")
            assert (len(queues["queues"]), queues["more"]) == (100, PAIRS - 100)
        one = await get(service, "queues?span=week&name=queue-0999")
        assert service.memory() - before < MOST
    assert overview["total"]["completed"] == 30 * PAIRS * HOURS
    assert one["queues"][0]["total"]["completed"] == 30 * HOURS
