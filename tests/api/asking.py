"""Short ways to ask the API and to look at its answers."""

from typing import Any

import httpx

from demora import Demora

JOBS = "/api/v1/jobs"
NO_SUCH_ID = "01900000-0000-7000-8000-000000000000"
JSON = {"content-type": "application/json"}


async def add(http: httpx.AsyncClient, type: str = "demo.echo", **asked: Any) -> dict[str, Any]:
    """Add a job over HTTP; answers with the job."""
    answer = await http.post(JOBS, json={"type": type, **asked})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def stored(app: Demora) -> int:
    """How many jobs there are."""
    return len((await app.find(limit=200)).jobs)


def problem(answer: httpx.Response, status: int, field: str | None = None) -> dict[str, Any]:
    """The problem that was answered, which has this status and blames this field."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["type"].startswith("urn:demora:problem:")
    assert told["title"]
    assert told["detail"]
    if field is not None:
        assert (told["field"], [one["field"] for one in told["errors"]]) == (field, [field])
    return told
