"""Paces as engines store them: the policy and the state as JSON, and changes as evidence for a checker."""

from functools import lru_cache

import msgspec

from ...core.pace import Pace, PaceState
from ...core.spans import span_ms
from ...store.audit import PaceFacts

A_FEW = 4  # held jobs to plan for at first: a claim in time releases one of them, and only a late one must read all


def text(value: Pace | PaceState) -> str:
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=256)
def pace_of(text: str) -> Pace:
    return msgspec.json.decode(text, type=Pace)


def state_of(text: str) -> PaceState:
    return msgspec.json.decode(text, type=PaceState)


def facts_of(queue: str, at: int, text: str | None) -> PaceFacts:
    """A change of a pace as evidence; without a text the pace was removed."""
    if text is None:
        return PaceFacts(queue, at)
    pace = pace_of(text)
    rates = [pace.rate(quiet=quiet) for quiet in (True, False)]
    spans = tuple((span_ms(rate.gap), rate.burst, span_ms(rate.stagger)) for rate in rates)
    return PaceFacts(queue, at, tuple(pace.governs.lanes), spans)
