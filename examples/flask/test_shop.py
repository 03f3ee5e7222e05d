"""How to test the shop: in the sandbox jobs are kept in memory, and run when the test says so."""

import pytest
from flask import Flask
from shop import create_app

from demora.testing import Sandbox


@pytest.fixture
def app() -> Flask:
    return create_app()


def test_an_order_is_followed_by_a_mail(app: Flask, demora_sandbox: Sandbox) -> None:
    answer = app.test_client().post("/orders", data={"email": "a@b.c"})
    assert answer.status_code == 202

    [job] = demora_sandbox.blocking.drain().ended
    assert job.result == "sent to a@b.c by shop@example.com"


def test_a_job_that_does_not_exist_is_not_found(app: Flask, demora_sandbox: Sandbox) -> None:
    assert app.test_client().get("/jobs/01a1e11f").status_code == 404
