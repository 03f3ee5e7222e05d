"""The life of a job as a picture: what it waited for and when it ran, with long waits folded. Pure.

The picture is a row of segments. A segment is as wide as its length in time, on a logarithmic scale, so that a second of
running beside a week of waiting can be seen.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from ..client.webhooks import DeliveryHistory
from ..core.job import Attempt, Job, Lane
from ..core.states import Status
from .drawing import measured

WIDTH, HEIGHT = 960, 80  # the picture is as wide as its page; these are the units in which places are computed
TOP, THICK = 36, 24  # of the row of segments
NARROWEST, MARK_ROOM, LABEL_ROOM, LETTER = 10.0, 74.0, 36.0, 6.6
LEAST_WEIGHT = 8.0  # a life of less weight does not fill the picture: a second is not as wide as a week
FOLDED = timedelta(hours=1)  # a wait that is longer is drawn with a fold
_SECOND = timedelta(seconds=1)


class Segment(msgspec.Struct, frozen=True):
    """A stretch of the life of a job. `words` says what it did, and `short` in a word or two; `future` that this is still to
    come, `ran` that the job or a webhook about it ran, and `delivers` that this is about its webhooks."""

    state: str
    words: str
    start: datetime
    end: datetime
    future: bool = False
    short: str = ""
    ran: bool = False
    delivers: bool = False

    @property
    def folded(self) -> bool:
        return not self.ran and self.end - self.start > FOLDED


class PlacedSegment(msgspec.Struct, frozen=True):
    """A segment with its place in the picture; its length and its short words where there is room for them."""

    segment: Segment
    x: float
    width: float
    label: str
    inside: str = ""


class Mark(msgspec.Struct, frozen=True):
    """A moment with its place: a word and a time, or only a tick where the words would overlap others."""

    x: float
    word: str
    at: datetime
    anchor: str
    shown: bool


class Timeline(msgspec.Struct, frozen=True):
    """The whole picture. `now` is the place of the present, None if the job has ended; `words` says how long it took."""

    segments: list[PlacedSegment]
    marks: list[Mark]
    now: float | None
    summary: str
    words: str = ""


def draw_life(
    job: Job,
    now: datetime,
    *,
    reason: str,
    until: datetime | None = None,
    deliveries: Sequence[DeliveryHistory] = (),
) -> Timeline:
    """Return the picture of a job. `reason` is why it is in its present state, `until` when a pace is to release it."""
    segments = [*_waits_and_runs(job, now, reason, until), *_deliveries(job, deliveries)]
    placed, x = [], 0.0
    weights = [_weight(one) for one in segments]
    room = WIDTH - NARROWEST * len(segments)
    for one, weight in zip(segments, weights, strict=True):
        width = NARROWEST + room * weight / max(sum(weights), LEAST_WEIGHT)
        label = length(one) if width >= LABEL_ROOM else ""
        inside = one.short if width >= LETTER * len(one.short) + 12 else ""
        placed.append(PlacedSegment(one, round(x, 1), round(width, 1), label, inside))
        x += width
    present = next((one.x + one.width for one in reversed(placed) if not one.segment.future), 0.0)
    marks = _marks(job, placed, now)
    words = "; ".join(f"{one.words} for {length(one)}" for one in segments)
    past = [one for one in segments if not one.future]
    whole = f"{measured(past[-1].end - job.created_at)} {'in all' if job.status.ended else 'so far'}" if past else ""
    return Timeline(placed, marks, None if job.status.ended else present, words or "just added", whole)


def length(segment: Segment) -> str:
    return measured(segment.end - segment.start)


def _deliveries(job: Job, deliveries: Sequence[DeliveryHistory]) -> list[Segment]:
    """Return the tries of the webhooks about the end of a job, and the waits between them."""
    found, at = list[Segment](), job.completed_at
    tries = [one for delivery in deliveries for one in delivery.tries if one.at is not None]
    for n, one in enumerate(sorted(tries, key=lambda one: one.at or job.created_at)):
        if at is None or one.at is None or not job.status.ended:
            break
        if one.at > at:
            found.append(Segment("cancelled", "waited to call its webhook", at, one.at, short="waited", delivers=True))
        answer = f"answered {one.status}" if one.status else "failed" if one.error else "ran"
        state, ended = "failed" if one.error else "completed", one.ended_at or one.at
        words, short = f"webhook try {n + 1} {answer}", f"webhook {one.status or ''}".strip()
        begin = max(one.at, at)
        found.append(Segment(state, words, begin, max(ended, begin), short=short, ran=True, delivers=True))
        at = found[-1].end
    return found


def _waits_and_runs(job: Job, now: datetime, reason: str, until: datetime | None) -> list[Segment]:
    runs, running = _runs(job, now), job.status is Status.PROCESSING
    end = job.completed_at if job.status.ended and job.completed_at else now
    found: list[Segment] = []
    at = job.created_at
    due = max(job.scheduled_at, at)
    first = runs[0].started_at if runs and runs[0].started_at else end
    if due > at and first > at:
        found.append(Segment("scheduled", "waited for its time", at, min(due, first), short="scheduled"))
        at = min(due, first)
    for n, run in enumerate(runs):
        started, ended, last = run.started_at or at, run.ended_at or end, n == len(runs) - 1
        if started > at:
            found.append(_wait_before(job, at, started, again=n > 0))
        found.append(
            Segment(
                *(_end_state(run, job, last=last), _run_words(n, run, running=last and running)),
                *(started, max(ended, started)),
                short=f"attempt {n + 1}",
                ran=True,
            )
        )
        at = max(ended, started)
    if not job.status.ended and not running:
        found += _present(job, at, now, reason, until)
    elif job.status.ended and end > at:
        found.append(Segment("ready" if runs else "cancelled", "waited", at, end, short="waited"))
    whole = [one for one in found if one.end > one.start or one.ran]
    if job.status.ended and not whole:
        word = job.status.name.lower()
        return [Segment("cancelled", f"was {word} at once", at, end, short=word)]
    return whole


def _runs(job: Job, now: datetime) -> list[Attempt]:
    runs = [run for run in job.attempts if run.started_at is not None]
    if job.status is Status.PROCESSING and job.started_at is not None:
        runs.append(Attempt(job.token, job.started_at, now, job.worker_id))
    return sorted(runs, key=lambda run: run.started_at or now)


def _wait_before(job: Job, start: datetime, end: datetime, *, again: bool) -> Segment:
    if again:
        return Segment("scheduled", "waited for its retry", start, end, short="until retry")
    if job.lane is Lane.RELEASED:
        return Segment("held", "was held by the pace", start, end, short="held")
    return Segment("ready", "waited for a slot", start, end, short="waited")


def _present(job: Job, at: datetime, now: datetime, reason: str, until: datetime | None) -> list[Segment]:
    """Return what the job waits for now, and for what it will."""
    if reason in ("held_by_pace", "queue_paused"):
        words = "is held by the pace" if reason == "held_by_pace" else "waits while its queue is paused"
        future = until is not None and until > now
        coming = [Segment("held", "will be held", now, until or now, future=True, short="still held")] if future else []
        return [Segment("held", words, at, now, short="held" if reason == "held_by_pace" else "paused"), *coming]
    if job.due_at > now:
        words = "waits for its retry" if job.status is Status.RETRYING else "waits for its time"
        return [
            Segment("scheduled", words, at, now, short="waited"),
            Segment("scheduled", "will wait", max(at, now), job.due_at, future=True, short="still to wait"),
        ]
    return [Segment("ready", "waits for a slot", at, now, short="waits")]


def _end_state(run: Attempt, job: Job, *, last: bool) -> str:
    if run.error is not None:
        return "failed"
    return "completed" if last and job.status is Status.COMPLETED else "running"


def _run_words(n: int, run: Attempt, *, running: bool) -> str:
    if run.error is not None:
        return f"attempt {n + 1} failed after running"
    return f"attempt {n + 1} {'runs' if running else 'ran'}"


def _weight(segment: Segment) -> float:
    return math.log1p((segment.end - segment.start) / _SECOND * 10) + (1.5 if segment.state != "scheduled" else 0.0)


def _marks(job: Job, placed: Sequence[PlacedSegment], now: datetime) -> list[Mark]:
    """Return the moments at the borders of the segments. The first and the last are always written out."""
    moments = [(0.0, "added", job.created_at)]
    ended = False
    for one in placed:
        segment = one.segment
        if job.status.ended and not ended and segment.delivers and one.x > 0:
            ended = True
            moments.append((one.x, job.status.name.lower(), segment.start))
        elif segment.ran and one.x > 0:
            moments.append((one.x, "webhook" if ended else "claimed", segment.start))
        elif segment.start == job.scheduled_at and one.x > 0:
            moments.append((one.x, "due", segment.start))
    if placed and not placed[-1].segment.future:
        last = placed[-1]
        word = "webhook" if ended else job.status.name.lower() if job.status.ended else "now"
        moments.append((last.x + last.width, word, last.segment.end))
    elif placed:
        word = "released" if placed[-1].segment.state == "held" else "due"
        moments.append((placed[-1].x + placed[-1].width, word, placed[-1].segment.end))
        before = placed[-1].x
        moments.append((before, "now", now))
    return _without_overlaps(sorted(moments, key=lambda one: one[0]))


def _without_overlaps(moments: Sequence[tuple[float, str, datetime]]) -> list[Mark]:
    marks: list[Mark] = []
    last, end = -math.inf, moments[-1][0]
    for n, (x, word, at) in enumerate(moments):
        final = n == len(moments) - 1
        shown = n == 0 or final or (x - last >= MARK_ROOM and end - x >= MARK_ROOM)
        anchor = "start" if x < MARK_ROOM / 2 else "end" if x > WIDTH - MARK_ROOM / 2 else "middle"
        marks.append(Mark(round(x, 1), word, at, anchor, shown))
        last = x if shown else last
    return marks
