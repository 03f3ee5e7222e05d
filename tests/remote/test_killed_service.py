"""A service that is killed with -9 while its remote workers hold jobs: another process of it takes over."""

import json
from pathlib import Path
from typing import Any

import pytest

from demora import Demora, Status
from tests.servers.service import Service, running


async def ask(service: Service, path: str, body: Any) -> Any:
    text = json.dumps(body)
    head = f"POST /api/v1/workers{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = await service.ask(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
    assert answer.status < 300, answer.body
    return answer.json


@pytest.mark.slow
async def test_the_jobs_of_a_claim_stay_with_the_worker_that_repeats_it(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    async with Demora(f"sqlite:///{file}") as app:
        ids = [job.id for job in await app.enqueue_many([("a", None)] * 3)]
        async with running(file) as service:
            worker = (await ask(service, "", {"name": "ann", "types": ["a"], "slots": 3}))["workerId"]
            before = (await ask(service, f"/{worker}/claim", {"limit": 2, "claimId": "one"}))["jobs"]
            service.kill(9)
            await service.ended()
        async with running(file) as service:
            again = (await ask(service, f"/{worker}/claim", {"limit": 2, "claimId": "one"}))["jobs"]
            assert [(job["id"], job["token"]) for job in again] == [(job["id"], job["token"]) for job in before]
            leases = [{"id": job["id"], "token": job["token"]} for job in again]
            assert (await ask(service, f"/{worker}/renew", {"jobs": leases}))["lost"] == []
            ends = {"jobs": [{**lease, "outcome": "completed"} for lease in leases]}
            first = await ask(service, f"/{worker}/settle", ends)
            service.kill(9)
            await service.ended()
        async with running(file) as service:
            assert await ask(service, f"/{worker}/settle", ends) == first
        assert [(await app.get(id)).status for id in ids] == [Status.COMPLETED, Status.COMPLETED, Status.QUEUED]
        assert [len((await app.get(id)).attempts) for id in ids] == [1, 1, 0]
