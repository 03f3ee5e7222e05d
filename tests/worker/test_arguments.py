"""What a worker is given is checked before it does anything, as settings are."""

from datetime import timedelta
from typing import Any

import pytest

from demora import Demora
from demora.errors import BadSetting, Invalid
from demora.worker import Worker

WHOLE, RANGE, SPAN = "must be a whole number", "must be from 1 to 10000", "a span is a timedelta or text like"
REFUSED: list[tuple[str, Any, str]] = [
    *(("concurrency", value, RANGE) for value in (0, -1, 10_001, 100_000)),
    *(("concurrency", value, WHOLE) for value in ("5", "many", 2.0, True, [3])),
    *(("lease", value, SPAN) for value in (30, 0.5, True)),
    *(("lease", value, "must be from 100ms to 1d") for value in (timedelta(0), "99ms", "2d")),
    ("lease", "soon", "is not a span"),
    ("lease", timedelta(seconds=-1), "cannot be negative"),
    ("grace", 8, SPAN),
    ("grace", "1 second", "is not a span"),
    ("grace", timedelta(seconds=-1), "cannot be negative"),
    ("queues", "mail", "must be a list of names"),
    ("queues", b"mail", "a queue is named with"),
    ("queues", 7, "must be a list of names"),
    ("queues", [], "name at least one queue"),
    ("queues", ["no good"], "a queue is named with"),
    ("queues", {"mail": "3"}, "the weight of mail must be a whole number"),
    ("strict", "no", "must be true or false"),
]


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_what_could_not_be_a_setting_is_refused_by_name(name: str, value: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as refused:
        Worker(Demora("sqlite://"), **{name: value})
    assert refused.value.field == name


async def test_what_is_refused_is_refused_before_the_block_begins(app: Demora) -> None:
    with pytest.raises(Invalid, match="queues: must be a list of names"):
        async with app.worker(queues="mail"):
            raise AssertionError


def test_spans_may_be_text() -> None:
    worker = Worker(Demora("sqlite://"), concurrency=10_000, lease="1m", grace="1500ms")
    assert (worker.slots, worker._lease, worker._grace) == (10_000, timedelta(minutes=1), 1.5)


def test_what_is_not_given_is_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_LEASE", "7s")
    app = Demora("sqlite://")
    app.configure(concurrency=3)
    worker = Worker(app, grace=timedelta(0))
    assert (worker.slots, worker._lease, worker._grace) == (3, timedelta(seconds=7), 0.0)


def test_a_setting_that_is_wrong_is_not_blamed_on_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMORA_CONCURRENCY", "0")
    with pytest.raises(BadSetting, match="DEMORA_CONCURRENCY"):
        Worker(Demora("sqlite://"), lease="1m")
