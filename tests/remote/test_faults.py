"""Remote workers under faults: killed, stopped beyond their leases and cut off, while the checker watches every step."""

import asyncio
import contextlib
import random
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from demora import Demora, Status
from demora.proof import check
from demora.worker_kit.proxy import Proxy as AnswerProxy
from demora.worker_kit.trials import QUEUE, Kit
from tests.remote.test_python_worker import APP
from tests.servers.nearby import serving
from tests.servers.proxy import before

LEASE = timedelta(seconds=1)
JOBS, FAULTS, WORKERS = 240, 12, 3


@pytest.mark.slow
async def test_the_guarantees_hold_for_remote_runs(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    chance, service = random.Random(1), Demora(f"sqlite:///{tmp_path}/jobs.db")
    service.configure(lease=LEASE, audit=True)
    program = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, ''); from demora.cli import main; main()"
    command = [sys.executable, "-c", program, "worker", "--url", "{url}", "--app", "shop:app", "--concurrency", "4"]
    async with service, serving(service, lease=LEASE) as url, before(f"{url}/") as (proxy, through):
        kit = Kit(service, command, AnswerProxy("", 0, tls=False), through.rstrip("/"), lease=LEASE.total_seconds())
        ids = [
            job.id
            for job in await service.enqueue_many(
                [("example.sleep", {"ms": 400}, {"queue": QUEUE, "max_retries": 50, "retry_delay": "10ms"})] * JOBS
            )
        ]

        async def one_after_another() -> None:
            """A worker that is replaced when it is killed."""
            while True:
                async with kit.worker() as process:
                    processes.append(process)
                    await process.wait()
                    processes.remove(process)

        async def disturb(victim: asyncio.subprocess.Process) -> None:
            match chance.randrange(3):
                case 0:
                    kit.signal(victim, signal.SIGKILL)
                case 1:
                    kit.signal(victim, signal.SIGSTOP)
                    await asyncio.sleep(LEASE.total_seconds() * 1.5)
                    kit.signal(victim, signal.SIGCONT)
                case _:
                    proxy.cut_all()

        processes: list[asyncio.subprocess.Process] = []
        working = [asyncio.ensure_future(one_after_another()) for _ in range(WORKERS)]
        for _ in range(FAULTS):
            await asyncio.sleep(chance.uniform(0.3, 1.2))  # the pace of the faults, not a wait for a fact
            if not processes:
                continue
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                await disturb(chance.choice(processes))
        for id in ids:
            assert (await service.wait(id, "120s")).status is Status.COMPLETED
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        findings = check([], await (await service.open()).evidence())
        runs = [len((await service.get(id)).attempts) for id in ids]
    assert findings.ok, findings.explain()
    assert max(runs) > 1  # some faults hit a run
