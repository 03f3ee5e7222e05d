"""Cron expressions in words, as a person would say them: `every weekday at 09:00`. Pure.

It knows the usual shapes. For others it returns nothing, and the caller says them field by field.
"""

from collections.abc import Iterable, Sequence

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAY_NAMES = {name[:3].upper(): number for number, name in enumerate(_WEEKDAYS)}
_MONTH_NAMES = {name[:3].upper(): number for number, name in enumerate(_MONTHS, 1)}
_PLACES = ("first", "second", "third", "fourth", "fifth")
_MOST = 6  # times or days that are listed

Values = tuple[int, ...]


def say_cron(fields: Sequence[str]) -> str | None:
    """Return five or six fields in words, None for a shape that has no usual words."""
    second, minute, hour, day, month, weekday = (["0"] if len(fields) == 5 else []) + list(fields)
    clock = _values(second, 0, 59), _values(minute, 0, 59), _values(hour, 0, 23)
    seconds, minutes, hours = clock
    days = _say_days(day, month, weekday)
    if not seconds or not minutes or not hours or days is None:
        return None
    each, on, season = days
    times = _times(seconds, minutes, hours)
    if times:
        words = [each, f"at {_listed(times)}", season] if each else [f"at {_listed(times)}", on, season]
        return " ".join(filter(None, words))
    often = _often(seconds, minutes, hours)
    return None if often is None else " ".join(filter(None, [often, on, season]))


def _times(seconds: Values, minutes: Values, hours: Values) -> list[str]:
    """Return the times of a day, if they are few and no rhythm says them better."""
    if len(seconds) > 1 or len(minutes) > 1 or len(hours) > _MOST or (len(hours) > 3 and _rhythm(hours, 24)):
        return []
    if len(hours) > 2 and _is_range(hours):
        return []
    return [_clock(hour, minutes[0], seconds[0]) for hour in hours]


def _often(seconds: Values, minutes: Values, hours: Values) -> str | None:
    """Return how often it fires within a day, and from when to when."""
    if len(seconds) > 1:
        whole = len(minutes) == 60 and len(hours) == 24
        return _every(_rhythm(seconds, 60), "second") if whole else None
    if seconds != (0,):
        return None
    if len(minutes) == 1:
        return _hourly(minutes[0], hours)
    step = _rhythm(minutes, 60)
    if step:
        every = _every(step, "minute")
        if len(hours) == 24:
            return every
        return f"{every} from {_clock(hours[0], 0)} to {_clock(hours[-1], minutes[-1])}" if _is_range(hours) else None
    if len(hours) == 24 and len(minutes) <= _MOST:
        return f"every hour at minutes {_listed(map(str, minutes))}"
    return None


def _hourly(minute: int, hours: Values) -> str | None:
    if len(hours) == 24:
        return f"every hour at minute {minute}" if minute else "every hour"
    if _is_range(hours):
        return f"every hour from {_clock(hours[0], minute)} to {_clock(hours[-1], minute)}"
    step = _rhythm(hours, 24)
    return f"{_every(step, 'hour')} from {_clock(0, minute)}" if step else None


def _every(step: int | None, unit: str) -> str | None:
    return None if step is None else f"every {unit}" if step == 1 else f"every {step} {unit}s"


# Days


Days = tuple[str, str, str]


def _say_days(day: str, month: str, weekday: str) -> Days | None:
    """Return the days as they stand before the time (`every weekday`, empty where that is unusual) and after it (`on
    weekdays`, empty for every day), and the months unless they are all (`in June`)."""
    months = _values(month, 1, 12, _MONTH_NAMES)
    if not months or (day != "*" and weekday != "*"):
        return None
    if day not in ("*", "1-31"):
        return _say_dates(day, months)
    days, season = ("every day", "") if weekday == "*" else _say_weekdays(weekday), _season(months)
    return None if days is None or season is None else (*days, season)


def _season(months: Values) -> str | None:
    """Return the months in which it fires, empty for all of them."""
    if len(months) == 12:
        return ""
    if len(months) > 2 and _is_range(months):
        return f"from {_MONTHS[months[0] - 1]} to {_MONTHS[months[-1] - 1]}"
    return f"in {_names_of(months)}" if len(months) <= _MOST else None


def _say_weekdays(field: str) -> tuple[str, str] | None:
    name, place, which = field.partition("#")
    if place or (field.endswith("L") and len(field) > 1):
        number = _number(name.removesuffix("L"), _DAY_NAMES)
        if number is None or number > 7 or (place and which not in "12345"):
            return None
        return "", f"on the {_PLACES[int(which) - 1] if place else 'last'} {_WEEKDAYS[number % 7]} of each month"
    numbers = _values(field, 0, 7, _DAY_NAMES)
    if not numbers:
        return None
    days = sorted({number % 7 for number in numbers}, key=lambda number: (number - 1) % 7)  # Monday first
    if len(days) == 7:
        return "every day", ""
    if days == [1, 2, 3, 4, 5]:
        return "every weekday", "on weekdays"
    names = [_WEEKDAYS[number] for number in days]
    return f"every {_listed(names)}", f"on {_listed(f'{name}s' for name in names)}"


def _say_dates(field: str, months: Values) -> Days | None:
    if field in ("L", "LW"):
        dates = "last day" if field == "L" else "last weekday"
    else:
        numbers = _values(field, 1, 31)
        if not numbers or (len(numbers) > _MOST and not _is_range(numbers)):
            return None
        if len(numbers) == len(months) == 1:
            return "", f"on {numbers[0]} {_MONTHS[months[0] - 1]}", ""
        several = f"{_nth(numbers[0])} to {_nth(numbers[-1])}"
        dates = several if len(numbers) > 2 and _is_range(numbers) else _listed(map(_nth, numbers))
    if _MOST < len(months) < 12:
        return None
    return "", f"on the {dates} of {'each month' if len(months) == 12 else _names_of(months)}", ""


def _names_of(months: Values) -> str:
    return _listed(_MONTHS[number - 1] for number in months)


# Fields


def _values(field: str, low: int, high: int, names: dict[str, int] | None = None) -> Values:
    """Return the values of a field in order; none if it has something else than numbers, names, ranges, lists and steps."""
    found = set[int]()
    for part in field.split(","):
        span, stepped, step = part.partition("/")
        first, ranged, last = ("*", "-", "*") if span == "*" else span.partition("-")
        begin = low if first == "*" else _number(first, names)
        end = high if first == "*" or (stepped and not ranged) else _number(last, names) if ranged else begin
        if begin is None or end is None or not low <= begin <= end <= high or (stepped and not step.isdecimal()):
            return ()
        found |= set(range(begin, end + 1, int(step) or 1 if stepped else 1))
    return tuple(sorted(found))


def _number(text: str, names: dict[str, int] | None) -> int | None:
    return int(text) if text.isdecimal() else (names or {}).get(text)


def _rhythm(values: Values, whole: int) -> int | None:
    """Return how far values are apart that go on evenly from zero, over the end of the minute, hour or day."""
    step = values[1] - values[0] if len(values) > 1 else whole
    return step if step < whole and whole % step == 0 and values == tuple(range(0, whole, step)) else None


def _is_range(values: Values) -> bool:
    return values == tuple(range(values[0], values[-1] + 1))


def _clock(hour: int, minute: int, second: int = 0) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _nth(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
