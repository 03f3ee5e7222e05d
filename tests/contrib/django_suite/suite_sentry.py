"""Sentry with Django: as its page says, in a process of its own, with the integrations that Sentry switches on by itself."""

import subprocess
import sys
import textwrap
from pathlib import Path

REPORTING = """
    import django, sentry_sdk
    from sentry_sdk.transport import Transport

    class Memory(Transport):
        events = []

        def capture_envelope(self, envelope):
            self.events += filter(None, [envelope.get_event()])

    sentry_sdk.init("https://k@example.com/1", transport=Memory)
    django.setup()
    from demora.contrib.django.applications import application
    from demora.contrib.sentry import report_errors
    from demora.testing import Sandbox
    from shop import tasks

    for alias in ("default", "retrying"):
        report_errors(application(alias))
    with Sandbox(application("default")) as first, Sandbox(application("retrying")) as second:
        id = tasks.fail.enqueue().id
        tasks.add.enqueue(1)
        tasks.fail.using(backend="retrying").enqueue()
        first.blocking.drain()
        assert [event["contexts"]["job"]["job_id"] for event in Memory.events] == [id]
        second.blocking.drain()
        assert len(Memory.events) == 1
        second.blocking.advance("1h")
    assert [event["exception"]["values"][-1]["type"] for event in Memory.events] == ["ShopError"] * 2
    assert [event["contexts"]["job"]["attempt"] for event in Memory.events] == [1, 3]
    assert [event["transaction"] for event in Memory.events] == ["shop.tasks.fail"] * 2
"""


def test_a_task_that_failed_for_good_is_reported_once() -> None:
    command = [sys.executable, "-c", textwrap.dedent(REPORTING)]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
