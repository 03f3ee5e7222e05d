"""Paces as engines store them: the policy and the state as JSON, and changes as evidence for a checker."""

from functools import lru_cache
from typing import Any

import msgspec

from ...core.pace import Pace, PaceState, Rate
from ...core.spans import span_ms
from ...store.audit import PaceFacts

A_FEW = 4  # held jobs to plan for at first: a claim in time releases one of them, and only a late one must read all


def text(value: Pace | PaceState) -> str:
    """Return a pace or a state as JSON. A stagger that follows from gap and burst is written out and marked as `fitted`, for
    processes of an earlier version."""
    if isinstance(value, PaceState):
        return msgspec.json.encode(value).decode()
    stored = msgspec.to_builtins(value)
    _write_out(stored, value.rate(quiet=False))
    if value.rapid is not None:
        _write_out(stored["rapid"], value.rapid)
    return msgspec.json.encode(stored).decode()


def _write_out(stored: dict[str, Any], rate: Rate) -> None:
    if rate.stagger is None:
        stored |= {"stagger": msgspec.to_builtins(rate.apart), "fitted": True}


@lru_cache(maxsize=256)
def pace_of(text: str) -> Pace:
    """Return a stored pace. An earlier version stored staggers that did not fit, and began the next cycle later than the gap
    said: there, the gap is what the queue kept to."""
    stored = msgspec.json.decode(text)
    rate, rapid = _rate_of(stored), None if stored["rapid"] is None else _rate_of(stored["rapid"])
    pace: Pace = msgspec.convert({**stored, "stagger": None, "rapid": None}, Pace)
    return msgspec.structs.replace(pace, gap=rate.gap, stagger=rate.stagger, rapid=rapid)


def _rate_of(stored: dict[str, Any]) -> Rate:
    rate: Rate = msgspec.convert({**stored, "stagger": None if "fitted" in stored else stored["stagger"]}, Rate)
    if rate.stagger is None:
        return rate
    gap = max(rate.gap, rate.burst * rate.stagger)
    return Rate(gap, 1) if rate.burst == 1 else Rate(gap, rate.burst, rate.stagger)


def state_of(text: str) -> PaceState:
    return msgspec.json.decode(text, type=PaceState)


def facts_of(queue: str, at: int, text: str | None, follows: object) -> PaceFacts:
    """A change of a pace as evidence; without a text the pace was removed, or the queue follows that of `*`."""
    if text is None:
        return PaceFacts(queue, at, follows=bool(follows))
    pace = pace_of(text)
    rates = [pace.rate(quiet=quiet) for quiet in (True, False)]
    spans = tuple((span_ms(rate.gap), rate.burst, span_ms(rate.apart)) for rate in rates)
    return PaceFacts(queue, at, tuple(pace.governs.lanes), spans)
