"""SAQ's side of the comparison; its server is named by the environment."""

import os
from typing import Any

from saq import Queue

URL = "DEMORA_BENCH_SAQ"
queue = Queue.from_url(os.environ.get(URL, "redis://localhost"))


async def noop(ctx: Any, *, to: str, subject: str, body: str) -> dict[str, bool]:
    return {"ok": True}


settings = {"queue": queue, "functions": [noop]}
