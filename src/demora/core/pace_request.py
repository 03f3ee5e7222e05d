"""Requests to change the pace of a queue, in part or as a whole. Python, HTTP, settings and the command line use them, so
all refuse the same."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal

import msgspec

from ..errors import Invalid
from .pace import EVERY_QUEUE, USUAL_RAPID, Governs, Pace, Rate
from .request import check_queue
from .spans import ZERO, say, span

LONGEST_GAP = timedelta(days=366)
MOST_BURST = 10_000
MOST_PROTECTED = 100
Fit = Literal["fit"]  # in place of a stagger: one with which the burst fits into the gap
_NAMES = ("gap", "burst", "stagger", "rapid_gap", "rapid_burst", "rapid_stagger", "rapid", "governs", "protect")


class RateRequest(msgspec.Struct, frozen=True):
    """A change of a rate. None leaves a value as it is."""

    gap: timedelta | None = None
    burst: int | None = None
    stagger: timedelta | Fit | None = None

    def over(self, rate: Rate, where: str = "") -> Rate:
        """Return the changed rate. `Invalid` if its burst does not fit into its gap; a stagger that was never given does."""
        changed = Rate(
            rate.gap if self.gap is None else self.gap,
            rate.burst if self.burst is None else self.burst,
            None if self.stagger == "fit" else rate.stagger if self.stagger is None else self.stagger,
        )
        if changed.gap == ZERO:
            raise Invalid(f"{where}gap", "a gap of zero holds nothing back; remove the pace instead")
        if not changed.fits:
            raise Invalid(f"{where}stagger", _too_wide(changed))
        return Rate(changed.gap, 1) if changed.burst == 1 else changed


class PaceRequest(msgspec.Struct, frozen=True):
    """A change of a pace. None leaves a value as it is; `rapid` True adds a rapid rate, False removes it."""

    gap: timedelta | None = None
    burst: int | None = None
    stagger: timedelta | Fit | None = None
    rapid: RateRequest | bool | None = None
    governs: Governs | None = None
    protect: tuple[str, ...] | None = None

    def over(self, pace: Pace) -> Pace:
        """Return the changed pace, checked as a whole."""
        rate = RateRequest(self.gap, self.burst, self.stagger).over(pace.rate(quiet=False))
        return Pace(
            *(rate.gap, rate.burst, rate.stagger),
            rapid=self._rapid(pace),
            governs=pace.governs if self.governs is None else self.governs,
            protect=pace.protect if self.protect is None else self.protect,
        )

    def _rapid(self, pace: Pace) -> Rate | None:
        if self.rapid is False:
            return None
        if isinstance(self.rapid, RateRequest):
            return self.rapid.over(pace.rapid or USUAL_RAPID, "rapid_")
        return pace.rapid or USUAL_RAPID if self.rapid else pace.rapid


def check_paced(queue: str, field: str = "queue") -> str:
    """Return the name of a queue that gets a pace, or `*` for all queues without one of their own."""
    return queue if queue == EVERY_QUEUE else check_queue(queue, field)


def request_of(pace: Pace) -> PaceRequest:
    """Return the request for exactly this pace."""
    rapid = _whole(pace.rapid) if pace.rapid else False
    rate = _whole(pace.rate(quiet=False))
    return check_pace(PaceRequest(rate.gap, rate.burst, rate.stagger, rapid, pace.governs, pace.protect))


def check_pace(request: PaceRequest) -> PaceRequest:
    """Return the checked request. `Invalid` names the field and says what would be right."""
    rapid = request.rapid
    if isinstance(rapid, RateRequest):
        rapid = _rate(rapid, "rapid_")
    rate = _rate(RateRequest(request.gap, request.burst, request.stagger))
    protect = None if request.protect is None else _protect(request.protect)
    return PaceRequest(rate.gap, rate.burst, rate.stagger, rapid, request.governs, protect)


def make_pace_request(
    *,
    gap: timedelta | str | None = None,
    burst: int | None = None,
    stagger: timedelta | str | None = None,
    rapid_gap: timedelta | str | None = None,
    rapid_burst: int | None = None,
    rapid_stagger: timedelta | str | None = None,
    rapid: bool | None = None,
    governs: Governs | str | None = None,
    protect: Iterable[str] | None = None,
) -> PaceRequest:
    """Return a checked request from single values. Spans are text or `timedelta`; a stagger may be `fit`."""
    given = (rapid_gap, rapid_burst, rapid_stagger)
    if rapid is False and any(value is not None for value in given):
        raise Invalid("rapid", "is off; give no rapid gap, burst or stagger with it")
    fast = RateRequest(_span(rapid_gap, "rapid_gap"), rapid_burst, _stagger(rapid_stagger, "rapid_stagger"))
    return check_pace(
        PaceRequest(
            gap=_span(gap, "gap"),
            burst=burst,
            stagger=_stagger(stagger, "stagger"),
            rapid=fast if any(value is not None for value in given) else rapid,
            governs=None if governs is None else check_governs(governs),
            protect=None if protect is None else _protect(protect),
        )
    )


def read_pace(value: str | Mapping[str, Any], field: str) -> PaceRequest | None:
    """Read a setting: `gap=2m burst=3 stagger=30s`, the same as a table, or `off`, which returns None."""
    if value == "off":
        return None
    if isinstance(value, str):
        value = _pairs(value, field)
    try:
        values = _typed(value)
        if unknown := [name for name in values if name not in _NAMES]:
            raise Invalid(field, f"{unknown[0]!r} is not a part of a pace; give {', '.join(_NAMES)}, or 'off'")
        return make_pace_request(**values)
    except TypeError:
        raise Invalid(field, "protect: must be a list of queues") from None
    except Invalid as problem:
        where = "" if problem.field == field else f"{problem.field}: "
        raise Invalid(field, f"{where}{problem.reason}") from None


def check_governs(governs: Governs | str) -> Governs:
    if isinstance(governs, Governs):
        return governs
    names = [kind.value for kind in Governs]
    if governs not in names:
        raise Invalid("governs", f"must be one of {', '.join(names)}")
    return Governs(governs)


def say_pace(pace: Pace) -> str:
    """Format a pace: `3 in 2m, 30s apart; rapid 5 in 30s, 15s apart; governs both`."""
    rates = [_say_rate(pace.rate(quiet=False)), *(["rapid " + _say_rate(pace.rapid)] if pace.rapid else [])]
    protects = [f"protects {', '.join(pace.protect)}"] if pace.protect else []
    return "; ".join([*rates, f"governs {pace.governs.value}", *protects])


def say_request(request: PaceRequest) -> str:
    """Format a request as settings write it: `gap=2m burst=3 rapid_gap=30s`."""
    rapid = request.rapid if isinstance(request.rapid, RateRequest) else RateRequest()
    switch = {True: "on", False: "off"}.get(request.rapid) if isinstance(request.rapid, bool) else None
    parts = {
        "gap": request.gap,
        "burst": request.burst,
        "stagger": request.stagger,
        "rapid": switch,
        "rapid_gap": rapid.gap,
        "rapid_burst": rapid.burst,
        "rapid_stagger": rapid.stagger,
        "governs": request.governs and request.governs.value,
        "protect": request.protect and "+".join(request.protect),
    }
    given = ((name, value) for name, value in parts.items() if value is not None)
    return " ".join(f"{name}={say(value) if isinstance(value, timedelta) else value}" for name, value in given)


def say_briefly(pace: Pace) -> str:
    """Format the normal rate alone: `3 in 2m`."""
    return f"{pace.burst} in {say(pace.gap)}"


def _say_rate(rate: Rate) -> str:
    return f"{rate.burst} in {say(rate.gap)}" + (f", {say(rate.apart)} apart" if rate.burst > 1 else "")


def _too_wide(rate: Rate) -> str:
    took = f"{rate.burst} releases {say(rate.apart)} apart take {say(rate.burst * rate.apart)}"
    return f"{took}, longer than the gap of {say(rate.gap)}; at most {say(rate.widest)} fits"


def _whole(rate: Rate) -> RateRequest:
    return RateRequest(rate.gap, rate.burst, "fit" if rate.stagger is None else rate.stagger)


def _rate(rate: RateRequest, where: str = "") -> RateRequest:
    if rate.burst is not None and (
        not isinstance(rate.burst, int) or not 1 <= rate.burst <= MOST_BURST or rate.burst is True
    ):
        raise Invalid(f"{where}burst", f"must be a whole number from 1 to {MOST_BURST}")
    return RateRequest(_span(rate.gap, f"{where}gap"), rate.burst, _stagger(rate.stagger, f"{where}stagger"))


def _span(value: timedelta | str | None, field: str) -> timedelta | None:
    return None if value is None else span(value, field, most=LONGEST_GAP)


def _stagger(value: timedelta | str | None, field: str) -> timedelta | Fit | None:
    return "fit" if value == "fit" else _span(value, field)


def _protect(queues: Iterable[str]) -> tuple[str, ...]:
    if isinstance(queues, str):
        raise Invalid("protect", "must be a list of queues")
    names = tuple(dict.fromkeys(check_queue(queue, "protect") for queue in queues))
    if len(names) > MOST_PROTECTED:
        raise Invalid("protect", f"at most {MOST_PROTECTED} queues can be protected")
    return names


def _pairs(text: str, field: str) -> dict[str, str]:
    parts = [part.partition("=") for part in text.replace(",", " ").split()]
    if any(not sign for _, sign, _ in parts):
        raise Invalid(field, "write for instance 'gap=2m burst=3 stagger=30s', or 'off'")
    return {name: value for name, _, value in parts}


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a setting with their types: text may stand for a number, a switch or several names."""
    values = dict(given)
    nested = values.pop("rapid", None)
    if isinstance(nested, Mapping):
        values |= {f"rapid_{name}": value for name, value in nested.items()}
    elif nested is not None:
        values["rapid"] = _switch(nested)
    for name in ("burst", "rapid_burst"):
        if isinstance(values.get(name), str) and values[name].isdecimal():
            values[name] = int(values[name])
    if isinstance(values.get("protect"), str):
        values["protect"] = tuple(name for name in values["protect"].split("+") if name)
    return values


def _switch(value: Any) -> bool:
    if value in (True, "on", "true"):
        return True
    if value in (False, "off", "false"):
        return False
    raise Invalid("rapid", "must be on or off, or a table")
