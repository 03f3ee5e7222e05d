"""What a handler says of its run: nothing of it is lost or said twice, from whatever thread it comes."""

import math
import threading
from collections.abc import Iterable
from datetime import timedelta

import pytest

from demora.errors import Invalid
from demora.handlers.context import _CUT, Context
from demora.store.jobs import MOST_LINES, Report
from tests.builders import claimed_job


def a_run() -> Context:
    return Context(claimed_job(), "ann")


def lines(*reports: Report) -> list[str]:
    return [line for report in reports for _, line in report.log]


class Interrupted:
    """A text that another thread reports in the middle of, as threads may at any time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __str__(self) -> str:
        reporting = threading.Thread(target=self._ctx.report)
        reporting.start()
        reporting.join()
        return "written while another thread reported"


def test_a_line_that_is_written_while_another_thread_reports_is_in_the_next_report() -> None:
    ctx = a_run()
    ctx.log(Interrupted(ctx))  # type: ignore[arg-type]
    assert ctx.has_news
    assert lines(ctx.report()) == ["written while another thread reported"]
    assert lines(ctx.report()) == []


def test_each_line_is_in_one_report_however_many_threads_write_and_report() -> None:
    ctx, written = a_run(), threading.Event()
    reports: list[Report] = []

    def write(numbers: Iterable[int]) -> None:
        for n in numbers:
            ctx.log(str(n))

    def report() -> None:
        while not written.is_set():
            reports.append(ctx.report())

    writing = [threading.Thread(target=write, args=(range(start, MOST_LINES, 4),)) for start in range(4)]
    reporting = [threading.Thread(target=report) for _ in range(2)]
    for thread in (*writing, *reporting):
        thread.start()
    for thread in writing:
        thread.join()
    written.set()
    for thread in reporting:
        thread.join()
    assert sorted(lines(*reports, ctx.report()), key=int) == [str(n) for n in range(MOST_LINES)]


def test_a_report_that_could_not_be_recorded_is_said_again_before_what_came_later() -> None:
    ctx = a_run()
    ctx.progress(0.5, "half")
    ctx.log("first")
    unrecorded = ctx.report()
    ctx.log("second")
    ctx.restore(unrecorded)
    again = ctx.report()
    assert (again.progress, again.message, lines(again)) == (0.5, "half", ["first", "second"])
    assert not ctx.has_news


def test_what_another_process_reported_is_said_as_it_was() -> None:
    there, here = a_run(), a_run()
    there.progress(0.25, "a quarter")
    there._write(timedelta(seconds=3), "a line")
    here.merge(there.report())
    here.merge(Report(here.job.lease, timedelta(0)))
    heard = here.report()
    assert (heard.progress, heard.message, heard.log) == (0.25, "a quarter", ((timedelta(seconds=3), "a line"),))


def test_a_line_beyond_the_most_says_that_more_were_written_and_further_ones_say_nothing() -> None:
    ctx = a_run()
    for n in range(MOST_LINES + 5):
        ctx.log(str(n))
    assert lines(ctx.report()) == [*(str(n) for n in range(MOST_LINES)), _CUT]


def test_progress_is_held_between_nothing_and_all_and_text_is_made_storable() -> None:
    ctx = a_run()
    ctx.progress(7, "a\0b\ud800")
    assert (ctx.report().progress, ctx.report().message) == (1.0, "a\ufffdb?")
    ctx.progress(-1)
    assert (ctx.report().progress, ctx.report().message) == (0.0, None)


@pytest.mark.parametrize("fraction", [math.nan, math.inf, -math.inf, "nan"])
def test_progress_that_is_no_number_is_refused_and_what_was_said_before_stands(fraction: float) -> None:
    ctx = a_run()
    ctx.progress(0.5, "half")
    with pytest.raises(Invalid, match="fraction: must be a number from 0 to 1"):
        ctx.progress(fraction, "lost")
    assert (ctx.report().progress, ctx.report().message) == (0.5, "half")
