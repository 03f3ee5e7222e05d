"""Sentry: which errors are reported, how often, and with what."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from flask import Flask, current_app
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import _IGNORED_LOGGERS, LoggingIntegration
from sentry_sdk.scope import Scope, ScopeType, use_isolation_scope, use_scope
from sentry_sdk.transport import Transport

from demora import Cancel, Demora, Fail, Retry, Snooze
from demora.contrib.flask import FlaskDemora
from demora.contrib.sentry import _Reporter, report_errors
from demora.system import notices
from demora.testing import Sandbox

SECRET = "hunter2"


class Memory(Transport):
    """Keeps events in place of sending them."""

    def __init__(self) -> None:
        super().__init__({})
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(event)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    transport, before = Memory(), set(_IGNORED_LOGGERS)
    logging_ = LoggingIntegration(level=logging.INFO, event_level=logging.ERROR)
    # Other tests of this process may have initialised Sentry: the examples of the docs do.
    with use_isolation_scope(Scope(ty=ScopeType.ISOLATION)), use_scope(Scope(ty=ScopeType.CURRENT)):
        scope = sentry_sdk.get_current_scope()
        client = sentry_sdk.Client("https://k@example.com/1", transport=transport, integrations=[logging_])
        scope.set_client(client)
        yield transport.events
        client.close()
    logger = logging.getLogger("demora")
    logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _Reporter)]
    _IGNORED_LOGGERS.intersection_update(before)


@pytest.fixture
def app(events: list[Any]) -> Demora:
    app = Demora("sqlite://")
    report_errors(app)
    return app


def exceptions(events: list[Any]) -> list[str]:
    return [event["exception"]["values"][-1]["type"] for event in events]


async def test_a_job_that_fails_for_good_is_reported_once_with_its_facts(app: Demora, events: list[Any]) -> None:
    @app.job("mail.send", queue="mail", max_retries=2, retry_delay="1s")
    def send(to: str) -> None:
        sentry_sdk.add_breadcrumb(message="opening the mailbox")
        raise ValueError("no mailbox")

    with Sandbox(app) as sandbox:
        job = await send.enqueue(to=SECRET)
        await sandbox.drain()
        assert events == []
        await sandbox.advance("1h")
    [event] = events
    assert exceptions(events) == ["ValueError"]
    assert event["exception"]["values"][-1]["mechanism"] == {"type": "demora", "handled": False}
    facts = event["contexts"]["job"]
    assert (facts["job_id"], facts["type"], facts["queue"], facts["attempt"]) == (job.id, "mail.send", "mail", 3)
    assert event["tags"] == {"job.type": "mail.send", "job.queue": "mail"}
    assert event["transaction"] == "mail.send"
    assert [crumb["message"] for crumb in event["breadcrumbs"]["values"]] == ["opening the mailbox"]
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert [frame["function"] for frame in frames] == ["send"]  # none of the frames with which Sentry wraps threads


async def test_a_job_without_retries_is_reported_too(app: Demora, events: list[Any]) -> None:
    @app.job("once", max_retries=0)
    async def once() -> None:
        raise KeyError("x")

    with Sandbox(app) as sandbox:
        await once.enqueue()
        await sandbox.drain()
    assert exceptions(events) == ["KeyError"]


@pytest.mark.parametrize(
    ("raised", "reported"),
    [
        (Fail("useless"), ["Fail"]),
        (Retry("again"), []),
        (Snooze("1h"), []),
        (Cancel("no"), []),
        (LookupError(), ["LookupError"]),
    ],
)
async def test_what_a_handler_says_decides(app: Demora, events: list[Any], raised: Exception, reported: list[str]) -> None:
    @app.job("say", max_retries=1, permanent=LookupError)
    async def say() -> None:
        raise raised

    with Sandbox(app) as sandbox:
        await say.enqueue()
        await sandbox.drain()
    assert exceptions(events) == reported


async def test_a_payload_that_no_longer_fits_is_reported(app: Demora, events: list[Any]) -> None:
    with Sandbox(app) as sandbox:
        await app.enqueue("grow", {"n": "x"})

        @app.job("grow")
        async def grow(n: int) -> None: ...

        await sandbox.drain()
    assert exceptions(events) == ["Invalid"]
    assert events[0]["contexts"]["job"]["type"] == "grow"


async def test_a_timeout_is_reported_without_an_exception(app: Demora, events: list[Any]) -> None:
    import asyncio

    @app.job("slow", max_retries=0, timeout="50ms")
    async def slow() -> None:
        await asyncio.sleep(3600)

    with Sandbox(app) as sandbox:
        await slow.enqueue()
        await sandbox.drain()
    [event] = events
    assert "TimedOut" in event["message"]
    assert event["fingerprint"] == ["demora", "job.failed", "slow", "TimedOut"]


async def test_runs_do_not_share_tags_and_breadcrumbs(app: Demora, events: list[Any]) -> None:
    @app.job("tag", max_retries=0)
    async def tag(name: str) -> None:
        sentry_sdk.set_tag(name, "yes")
        sentry_sdk.add_breadcrumb(message=name)
        raise ValueError(name)

    with Sandbox(app) as sandbox:
        await tag.enqueue(name="a")
        await tag.enqueue(name="b")
        await sandbox.drain()
    tags = [sorted(event["tags"]) for event in events]
    assert sorted(tags) == [["a", "job.queue", "job.type"], ["b", "job.queue", "job.type"]]
    assert [len(event["breadcrumbs"]["values"]) for event in events] == [1, 1]


async def test_an_event_that_a_handler_captures_has_the_context_of_its_job(app: Demora, events: list[Any]) -> None:
    @app.job("note")
    def note() -> None:
        sentry_sdk.capture_message("noted")

    with Sandbox(app) as sandbox:
        job = await note.enqueue()
        await sandbox.drain()
    assert [event["contexts"]["job"]["job_id"] for event in events] == [job.id]


async def test_the_payload_of_a_job_is_not_sent(app: Demora, events: list[Any]) -> None:
    @app.job("keep", max_retries=0)
    async def keep(secret: str) -> None:
        del secret
        raise ValueError

    with Sandbox(app) as sandbox:
        await keep.enqueue(secret=SECRET)
        await sandbox.drain()
    [event] = events
    assert SECRET not in str(event["contexts"])


def test_the_jobs_of_a_flask_application_are_reported(events: list[Any]) -> None:
    jobs, web = FlaskDemora(), Flask("shop")
    report_errors(jobs)
    jobs.init_app(web)

    @jobs.job("mail.send", max_retries=0)
    def send() -> None:
        raise KeyError(current_app.name)

    with Sandbox(jobs) as sandbox:
        job = send.enqueue_blocking()
        sandbox.blocking.drain()
    assert exceptions(events) == ["KeyError"]
    assert events[0]["contexts"]["job"]["job_id"] == job.id


def test_what_else_demora_logs_as_an_error_is_reported(app: Demora, events: list[Any]) -> None:
    notices.worker_died(7, 1, 0.5)
    [event] = events
    assert (event["level"], event["contexts"]["demora"]["pid"]) == ("error", 7)


def test_reporting_for_two_applications_reports_nothing_twice(app: Demora) -> None:
    report_errors(Demora("sqlite://"))
    handlers = logging.getLogger("demora").handlers
    assert len([handler for handler in handlers if isinstance(handler, _Reporter)]) == 1


async def test_a_run_does_not_show_the_breadcrumbs_of_its_process(app: Demora, events: list[Any]) -> None:
    @app.job("fail", max_retries=0)
    async def fail() -> None:
        sentry_sdk.add_breadcrumb(message="of the run")
        raise ValueError

    sentry_sdk.get_isolation_scope().add_breadcrumb(message="of the process")
    with Sandbox(app) as sandbox:
        await fail.enqueue()
        await sandbox.drain()
    assert [crumb["message"] for crumb in events[0]["breadcrumbs"]["values"]] == ["of the run"]
