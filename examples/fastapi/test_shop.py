"""How to test the shop: in the sandbox jobs are kept in memory, and run when the test says so."""

from fastapi.testclient import TestClient
from shop import jobs, web

from demora.testing import Sandbox


def test_a_report_is_built_later() -> None:
    with Sandbox(jobs) as sandbox, TestClient(web) as http:
        added = http.post("/reports", json={"pages": 3}, headers={"authorization": "Bearer ada"})
        assert added.status_code == 202

        assert not sandbox.blocking.drain().failures
        done = http.get(added.json()["resultUrl"])
        assert done.json()["title"] == "Sales, 3 pages, for ada"


def test_a_photo_is_measured_later() -> None:
    with Sandbox(jobs) as sandbox, TestClient(web) as http:
        added = http.post("/photos", files={"photo": b"pixels"})
        assert not sandbox.blocking.drain().failures
        assert http.get(added.json()["resultUrl"]).json() == {"bytes": 6}
