"""Paces in the settings: a table of the file, `DEMORA_PACE_<QUEUE>`, and the variables that the sources name.

A queue is named in a variable in capitals, `DEMORA_PACE_MAIL` for mail; one whose name has capitals is written as it is. In
one setting for several queues each comes with its pace: `mail gap=2m burst=3; reports off`.
"""

from collections.abc import Mapping
from typing import Any

from .core.pace import Pace
from .core.pace_wish import PaceWish, read_pace
from .core.request import check_queue
from .errors import BadSetting, Invalid

PACE_VARIABLE = "DEMORA_PACE_"
USUAL = "usual_pace"
_SOURCES = {
    "DELAYED_JOB_GAP_SECONDS": ("gap", "s"),
    "MAX_DELAYED_JOBS_PER_CYCLE": ("burst", ""),
    "RAPID_GAP_WHEN_EMPTY_SECONDS": ("rapid_gap", "s"),
    "RAPID_MAX_JOBS_WHEN_EMPTY": ("rapid_burst", ""),
}


def paces_found(environment: Mapping[str, str], found: Mapping[str, tuple[str, Any]]) -> dict[str, tuple[str, Any]]:
    """What variables say of paces, besides what was found of them: by queue, and of the usual pace."""
    more: dict[str, tuple[str, Any]] = {}
    own = {name: value for name, value in environment.items() if name.startswith(PACE_VARIABLE) and value}
    if own:
        source, before = found.get("pace", ("", {}))
        table = _table(before, source or "pace")
        more["pace"] = (" and ".join(own), {**table, **{_queue(name): value for name, value in own.items()}})
    named = {name: environment[name] for name in _SOURCES if environment.get(name)}
    if named and USUAL not in found:
        values = {field: f"{_whole(name, named[name])}{unit}" for name, (field, unit) in _SOURCES.items() if name in named}
        more[USUAL] = (" and ".join(named), values)
    return more


def _whole(name: str, value: str) -> str:
    if not value.isdecimal():
        raise BadSetting(name, f"must be a whole number, not {value!r}")
    return value


def read_usual(value: Any, source: str) -> Pace:
    """The pace of paced queues that say nothing else."""
    wish = _read(value, source)
    if wish is None:
        raise Invalid(source, "the usual pace cannot be off; queues have none until one is set")
    return wish.over(Pace())


def read_paces(value: Any, source: str) -> dict[str, PaceWish | None]:
    """The paces by queue."""
    if isinstance(value, Mapping) and all(isinstance(one, PaceWish) for one in value.values()):
        return dict(value)
    return {check_queue(queue, source): _of_queue(queue, pace, source) for queue, pace in _table(value, source).items()}


def _of_queue(queue: str, pace: Any, source: str) -> PaceWish | None:
    try:
        return _read(pace, source)
    except Invalid as problem:
        raise Invalid(source, f"of queue {queue}: {problem.reason}") from None


def _read(value: Any, source: str) -> PaceWish | None:
    if not isinstance(value, str | Mapping):
        raise Invalid(source, "must be text like 'gap=2m burst=3 stagger=30s', a table, or 'off'")
    return read_pace(value, source)


def _table(value: Any, source: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        raise Invalid(source, "must be a table of queues, or text like 'mail gap=2m burst=3; reports off'")
    parts = [part.strip().partition(" ") for part in value.split(";") if part.strip()]
    return {queue: pace.strip() for queue, _, pace in parts}


def _queue(variable: str) -> str:
    name = variable.removeprefix(PACE_VARIABLE)
    return name.lower() if name.isupper() else name
