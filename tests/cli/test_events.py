"""`demora events`: one line for each event, until Ctrl-C."""

import asyncio
import json
import signal
from datetime import UTC, datetime

import pytest

from demora import Demora
from demora.cli.jobs import event_line
from demora.core.events import Event, EventJob, EventKind
from demora.core.pace import Pace
from demora.core.states import Status
from tests.cli.conftest import Run, Start, read_until

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = EventJob("id", "name", "demo.echo", "mail", Status.RETRYING, (), 2, 2, NOW, NOW, "ann", 0.5, "half", "no")


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (Event(EventKind.ADDED, "1", NOW, "mail", JOB), "job.added  id  demo.echo  mail"),
        (Event(EventKind.STARTED, "1", NOW, "mail", JOB), "job.started  id  demo.echo  mail  attempt 2  ann"),
        (Event(EventKind.PROGRESS, "1", NOW, "mail", JOB), "job.progress  id  demo.echo  mail  50%  half"),
        (
            Event(EventKind.RETRYING, "1", NOW, "mail", JOB),
            "job.retrying  id  demo.echo  mail  due 2030-01-01T00:00:00.000Z  no",
        ),
        (Event(EventKind.FAILED, "1", NOW, "mail", JOB), "job.failed  id  demo.echo  mail  no"),
        (Event(EventKind.COMPLETED, "1", NOW, "mail", JOB), "job.completed  id  demo.echo  mail"),
        (Event(EventKind.PAUSED, "1", NOW, "mail", by="ann", reason="full"), "queue.paused  mail  full  by ann"),
        (Event(EventKind.RESUMED, "1", NOW, "mail"), "queue.resumed  mail"),
        (Event(EventKind.PACE, "1", NOW, "mail", by="ann"), "queue.pace  mail  off  by ann"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_says_what_happened_and_to_what(event: Event, shown: str) -> None:
    assert event_line(event) == f"2030-01-01T00:00:00.000Z  {shown}"


def test_a_pace_is_said_in_words_and_a_reset_has_no_time() -> None:
    paced = event_line(Event(EventKind.PACE, "1", NOW, "mail", pace=Pace()))
    assert paced.startswith("2030-01-01T00:00:00.000Z  queue.pace  mail  ")
    assert "2m" in paced
    assert event_line(Event(EventKind.RESET, "1")) == "-  reset  the position is too old; events are missing"


async def begin_events() -> None:
    """Have ends numbered from now on, whether or not a listener is there when the worker settles the first job."""
    async with Demora() as app:
        await (await app.open()).store.events.begin()


@pytest.mark.slow
def test_events_are_printed_until_ctrl_c_and_can_be_resumed(start: Start, run: Run) -> None:
    asyncio.run(begin_events())
    run("enqueue", "demo.echo")
    watching = start("events", "--after", "0", "--json")
    read_until(start("worker"), "started")
    said = read_until(watching, "job.completed", "stdout")
    event = json.loads(said.splitlines()[-1])
    assert (event["event"], event["position"]) == ("job.completed", "1")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(20) == 0
    assert watching.communicate()[1] == ""
    again = start("events", "--after", "0")
    assert "job.completed" in read_until(again, "job.completed", "stdout")
    again.send_signal(signal.SIGINT)
    assert again.wait(20) == 0


def test_a_malformed_filter_is_a_usage_error(run: Run) -> None:
    run("migrate")
    assert run("events", "--queue", "a b").exit_code == 2
