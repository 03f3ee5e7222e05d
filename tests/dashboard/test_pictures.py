"""What pages draw and write: the life of a job, sparklines, the due strip, and texts that cannot hide anything."""

import itertools
import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from demora.client.statistics import Flow, FlowPoint, FlowSeries
from demora.client.webhooks import DeliveryHistory, DeliveryTry
from demora.core.job import Attempt, Job, Lane, Priority
from demora.core.states import Status
from demora.core.statistics import Percentiles
from demora.dashboard.charts import chart_data, depth_data, due_strip, spark
from demora.dashboard.drawing import ago, draw, rough, visible
from demora.dashboard.search import read_search
from demora.dashboard.timeline import WIDTH, Timeline, draw_life
from demora.dashboard.times import told

AT = datetime(2026, 11, 17, 9, 0, tzinfo=UTC)
FLOW = Flow(0, 0, 0, 0, 0, Percentiles(0), Percentiles(0))


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def job(**changes: object) -> Job:
    names = ("id", "a job", "demo.echo", "mail", b"")
    usual = Job(*names, Priority.NORMAL, Status.QUEUED, Lane.REALTIME, AT, AT, AT, 3, timedelta(seconds=1))
    return msgspec.structs.replace(usual, **changes)


def states(life: Timeline) -> list[tuple[str, bool]]:
    return [(one.segment.state, one.segment.future) for one in life.segments]


def test_the_segments_fill_the_picture_without_gaps() -> None:
    attempts = (Attempt(1, after(60), after(62), "ann", "ValueError: no"), Attempt(2, after(92), after(93), "ann"))
    done = job(status=Status.COMPLETED, scheduled_at=after(50), attempts=attempts, completed_at=after(93))
    life = draw_life(done, after(500), reason="ended")
    assert states(life) == [
        *(("scheduled", False), ("ready", False), ("failed", False), ("scheduled", False), ("completed", False)),
    ]
    edges = [(one.x, one.x + one.width) for one in life.segments]
    assert edges[0][0] == 0
    assert edges[-1][1] == pytest.approx(WIDTH, abs=1)
    assert all(end == pytest.approx(start, abs=0.2) for (_, end), (start, _) in itertools.pairwise(edges))
    assert life.now is None


def test_a_life_of_no_measurable_length_took_under_a_millisecond() -> None:
    ran = Attempt(1, AT, AT, "ann")
    life = draw_life(job(status=Status.COMPLETED, started_at=AT, completed_at=AT, attempts=(ran,)), AT, reason="completed")
    assert life.words == "under 1ms in all"
    assert life.summary == "attempt 1 ran for under 1ms"


def test_what_is_to_come_is_drawn_after_now() -> None:
    waiting = job(scheduled_at=after(3600), due_at=after(3600))
    assert states(draw_life(waiting, after(60), reason="not_due")) == [("scheduled", False), ("scheduled", True)]
    held = draw_life(job(lane=Lane.SCHEDULED), after(60), reason="held_by_pace", until=after(200))
    assert states(held) == [("held", False), ("held", True)]
    assert [mark.word for mark in held.marks if mark.shown] == ["added", "now", "released"]


def test_a_long_wait_is_folded_and_a_run_that_took_no_time_is_seen() -> None:
    quick = (Attempt(1, after(90_000), after(90_000), "ann", "ValueError: no"),)
    dead = job(status=Status.FAILED, scheduled_at=after(90_000), attempts=quick, completed_at=after(90_000))
    life = draw_life(dead, after(90_001), reason="ended")
    assert [one.segment.folded for one in life.segments] == [True, False]
    assert life.segments[1].width >= 10


def test_a_last_attempt_that_took_no_time_is_no_webhook() -> None:
    attempts = (Attempt(1, after(1), after(2), "ann", "E: no"), Attempt(2, after(9), after(9), "ann", "E: no"))
    dead = job(status=Status.FAILED, attempts=attempts, completed_at=after(9))
    assert [mark.word for mark in draw_life(dead, after(10), reason="ended").marks] == [
        "added",
        "claimed",
        "claimed",
        "failed",
    ]


def test_an_attempt_that_is_under_way_is_told_in_the_present() -> None:
    running = job(status=Status.PROCESSING, started_at=after(1), token=1)
    assert [one.segment.words for one in draw_life(running, after(5), reason="running").segments][-1] == "attempt 1 runs"


@pytest.mark.parametrize("count", range(1, 12))
def test_the_words_above_a_life_never_overlap(count: int) -> None:
    attempts = tuple(Attempt(n + 1, after(n * 10), after(n * 10 + 1), "ann", "E: no") for n in range(count))
    dead = job(status=Status.FAILED, attempts=attempts, completed_at=after(count * 10))
    shown = [mark.x for mark in draw_life(dead, after(1000), reason="ended").marks if mark.shown]
    assert all(right - left >= 37 for left, right in itertools.pairwise(shown))


def test_a_sparkline_has_gaps_where_data_is_missing() -> None:
    drawn = spark([0, 5, None, None, 10, 10], "jobs")
    assert drawn is not None
    assert drawn.line.count("M") == 2
    assert spark([None, 3], "jobs") is None
    assert spark([0, 0, 0], "jobs") is not None


def test_bars_of_the_due_strip_lead_to_their_jobs() -> None:
    strip = due_strip([0, 2, 4], "hour", AT, lambda search: search)
    bars = strip.bars
    assert [bar.jobs for bar in bars] == [0, 2, 4]
    assert bars[2].height == 2 * bars[1].height
    assert bars[1].link == "due:2026-11-17T09:20:00.000Z..2026-11-17T09:40:00.000Z"
    found = read_search(bars[1].link, AT)
    assert (found.filter.due.since, found.filter.due.until) == (after(1200), after(2400))
    assert (strip.jobs, strip.peak) == (6, bars[2])


@pytest.mark.parametrize(("span", "apart"), [("hour", 600), ("day", 10_800), ("week", 432_000)])
def test_the_due_strip_names_whole_times(span: str, apart: int) -> None:
    strip = due_strip([1] * 30, span, after(754), lambda search: search)
    assert 4 <= len(strip.ticks) <= 9
    assert all(tick.at.timestamp() % 600 == 0 and 4 <= tick.x <= 96 for tick in strip.ticks)
    assert {(right.at - left.at).total_seconds() for left, right in itertools.pairwise(strip.ticks)} == {apart}


def test_a_due_strip_without_jobs_has_no_peak() -> None:
    assert due_strip([0, 0], "day", AT, str).peak is None


def tell(error: str | None, start: float, end: float, status: int | None) -> DeliveryHistory:
    delivery = job(id="d", status=Status.FAILED if error else Status.COMPLETED)
    return DeliveryHistory(delivery, (DeliveryTry(after(start), after(end), status, None, error),))


def test_the_tries_of_webhooks_come_after_the_end() -> None:
    ended = job(status=Status.COMPLETED, attempts=(Attempt(1, after(1), after(2), "ann"),), completed_at=after(2))
    deliveries = [tell("HttpError: 500", 3, 4, 500), tell(None, 90, 91, 200)]
    life = draw_life(ended, after(100), reason="ended", deliveries=deliveries)
    assert [one.segment.words for one in life.segments][2:] == [
        "waited to call its webhook",
        "webhook try 1 answered 500",
        "waited to call its webhook",
        "webhook try 2 answered 200",
    ]
    assert [one.segment.state for one in life.segments if one.segment.ran] == ["completed", "failed", "completed"]
    assert "completed" in [mark.word for mark in life.marks]
    assert life.marks[-1].word == "webhook"


def test_a_simple_life_names_its_attempt_and_does_not_fill_the_picture() -> None:
    quick = job(status=Status.COMPLETED, attempts=(Attempt(1, AT, after(0.02), "ann"),), completed_at=after(0.02))
    [only] = draw_life(quick, after(60), reason="ended").segments
    assert (only.inside, only.label) == ("attempt 1", "20ms")
    assert only.width < WIDTH / 2


def test_a_sentence_is_split_at_its_own_times() -> None:
    data = {"dueAt": "2026-11-17T10:00:00.000Z", "list": [{"since": "2026-11-16T23:59:59.000Z"}], "error": "at 08:00:00 UTC"}
    sentence = "It waits until 10:00:00 UTC, since 2026-11-16 23:59:59 UTC: at 08:00:00 UTC."
    assert told(sentence, data) == (
        "It waits until ",
        after(3600),
        ", since ",
        datetime(2026, 11, 16, 23, 59, 59, tzinfo=UTC),
        ": at 08:00:00 UTC.",
    )
    assert told("no time", {"error": None, "n": 1, "at": "2026-99-99T10:00:00.000Z"}) == ("no time",)


def test_lines_of_a_chart_are_the_largest_and_the_others_together() -> None:
    def line(most: int) -> FlowSeries:
        points = [FlowPoint(after(n), 0, 0, 0, 0, None, None, None, None, ready=most * n, delayed=0) for n in range(3)]
        return FlowSeries(AT, "hour", 1000, FLOW, points)

    data = json.loads(depth_data({f"q{n}": line(n) for n in range(6)}))
    assert [one["label"] for one in data["series"]] == ["q5", "q4", "q3", "2 others"]
    assert data["series"][3]["values"] == [0, 3, 6]
    assert depth_data({}) == "null"


def test_a_chart_of_nothing_but_zeros_has_nothing_to_show() -> None:
    quiet = [FlowPoint(after(60 * n), 0, 0, 0, 0, None, None, None, None, ready=0, delayed=0) for n in range(3)]
    assert chart_data(quiet, 60_000) == {"runs": "null", "late": "null"}
    prompt = [msgspec.structs.replace(one, completed=1, lateness_p50=0.0, lateness_p99=0.0) for one in quiet]
    assert [json.loads(one)["unit"] for one in chart_data(prompt, 60_000).values()] == ["jobs", "ms"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0s"),
        (0, "0s"),
        (0.0004, "under 1ms"),
        (0.12, "120ms"),
        (1.54, "1.5s"),
        (42, "42s"),
        (8100, "2h 15m"),
        (273_600, "3d 4h"),
    ],
)
def test_spans_are_rounded_for_people(seconds: float, words: str) -> None:
    assert rough(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    "hidden", ["\u202e", "\u2066", "\u200b", "\ufeff", "\x1b", "\x9b", "\x00", "\u2028", "\ud800", "\x7f"]
)
def test_a_character_that_does_not_print_is_written_out(hidden: str) -> None:
    shown = visible(f"a{hidden}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")


def test_lines_of_a_traceback_stay_lines() -> None:
    assert visible("one\n\ttwo") == "one\n\ttwo"


def test_every_value_of_a_template_is_escaped() -> None:
    text = draw("problem.html", {"base": "", "title": "<b>", "words": '"\u202e<script>', "visitor": None})
    assert "&lt;b&gt;" in text
    assert "&#34;\\u202e&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.9, "now"), (-0.9, "now"), (1.4, "in 1s"), (-1.5, "2s ago"), (-59.6, "1m ago"), (-2805, "46m 45s ago")),
        *((10_799, "in 2h 59m"), (-86_400, "1d ago"), (187_200, "in 2d 4h")),
    ],
)
def test_a_time_is_told_as_the_script_tells_it(seconds: float, words: str) -> None:
    assert ago(after(seconds), AT) == words
