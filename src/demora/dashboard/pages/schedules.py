"""The schedules: when they fire in the week to come, how their last runs ended, and the actions on them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from ...core.access import Scope
from ...core.schedules.schedule import fire_times_between, say_schedule, why_unreadable
from ...core.spans import plural, say
from ...errors import DemoraError, Invalid
from ...store.schedules import StoredSchedule
from ...system import notices
from ..drawing import clip, state_of
from ..visit import Acted, Route, View, Visit

MOST = 200  # schedules on the page
MOST_FIRE_TIMES = 8 * 24 * 2  # fire times of one schedule in the week: one that has more is named, not drawn
DRAWN_EVERY = 30.0  # seconds
_HIGH, _TOP = 27, 20  # of a day on the week grid, and of the row of hours above it; hours have their places in percent
_HOUR = timedelta(hours=1)


class Cell(msgspec.Struct, frozen=True):
    """An hour with runs on the week grid: its place by UTC, how strong its colour is, from 1 to 4, and what runs in it.

    The script of the page moves it to its place in local time. `shown` says whether it is in the week by UTC.
    """

    x: float
    y: int
    strength: int
    at: datetime
    about: str
    shown: bool


async def show_schedules(visit: Visit) -> View:
    stored = await visit.shared.get("schedules", 1.0, lambda: visit.client.schedules(limit=MOST))
    grid, constant = await visit.shared.get("week", DRAWN_EVERY, lambda: _week(visit.now, stored))
    days = [(visit.now.astimezone(UTC) + timedelta(days=n)).strftime("%a %d %b") for n in range(7)]
    values = {
        "page": "schedules",
        "schedules": stored,
        "say_schedule": say_schedule,
        "unreadable": {one.schedule.name: why for one in stored if (why := why_unreadable(one.schedule)) is not None},
        "last_state": {one.schedule.name: state_of(one.last_status.name) for one in stored if one.last_status is not None},
        "cells": grid,
        "constant": constant,
        "days": days,
        "high": _HIGH,
        "top": _TOP,
    }
    return View("schedules.html", values)


async def _week(now: datetime, stored: Sequence[StoredSchedule]) -> tuple[list[Cell], list[str]]:
    """Count the runs of each hour of the days to come. Also return the schedules that fire so often that every hour would
    look the same. One whose times cannot be computed here is left out."""
    first = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    names, constant = dict[int, list[str]](), list[str]()
    drawn = (one.schedule for one in stored if one.schedule.enabled and why_unreadable(one.schedule) is None)
    for schedule in drawn:
        # A day more than the week by UTC, for browsers whose week begins or ends later.
        fire_times = list(islice(fire_times_between(schedule, now, first + timedelta(days=8)), MOST_FIRE_TIMES))
        if len(fire_times) == MOST_FIRE_TIMES:
            constant.append(schedule.name)
            continue
        for fire_time in fire_times:
            names.setdefault((fire_time - first) // _HOUR, []).append(schedule.name)
    return [_cell(hour, first, names[hour]) for hour in sorted(names)], constant


def _cell(hour: int, first: datetime, runs: Sequence[str]) -> Cell:
    day, clock = divmod(hour, 24)
    count = len(runs)
    about = f"{plural(count, 'run')}: {clip(', '.join(sorted(set(runs))))}"
    x, y = round(clock * 100 / 24, 3), _TOP + day * _HIGH
    return Cell(x, y, 1 + (count > 1) + (count > 3) + (count > 9), first + hour * _HOUR, about, 0 <= day < 7)


async def trigger(visit: Visit) -> Acted:
    name = visit.path["name"]
    job = await visit.client.trigger_schedule(name)
    notices.acted(visit.by, "trigger", name)
    return Acted(f"A job of {name} was added.", go=visit.link("jobs", job.id))


async def ask_pause(visit: Visit) -> View:
    return View("dialogs/pause_schedule.html", {"stored": await visit.client.schedule(visit.path["name"])})


async def pause(visit: Visit) -> Acted:
    name = visit.path["name"]
    await visit.client.pause_schedule(name, reason=visit.form.get("reason", "").strip() or None, by=visit.by)
    notices.acted(visit.by, "pause schedule", name)
    return Acted(f"Schedule {name} is paused.", undo=visit.link("schedules", name, "resume"))


async def resume(visit: Visit) -> Acted:
    name = visit.path["name"]
    await visit.client.resume_schedule(name, by=visit.by)
    notices.acted(visit.by, "resume schedule", name)
    return Acted(f"Schedule {name} fires again.")


async def edit(visit: Visit) -> View:
    stored = await visit.client.schedule(visit.path["name"])
    schedule = stored.schedule
    every = say(schedule.every) if schedule.every else ""
    form = {"cron": schedule.cron or "", "every": every, "timezone": schedule.timezone}
    return View("dialogs/schedule.html", {"stored": stored, "form": form, **_preview(visit, form)})


async def preview(visit: Visit) -> View:
    return View("parts/schedule_preview.html", _preview(visit, visit.query))


def _preview(visit: Visit, form: Mapping[str, str]) -> dict[str, Any]:
    try:
        found = visit.client.preview_schedule(count=5, now=visit.now, **_timing(form))
    except DemoraError as problem:
        words = f"{problem.field}: {problem.reason}" if isinstance(problem, Invalid) else str(problem)
        return {"refused": words, "words": "", "runs": []}
    return {"refused": None, "words": found.words, "runs": found.runs}


async def change(visit: Visit) -> Acted:
    name = visit.path["name"]
    timing = _timing(visit.form)
    stored = await visit.client.change_schedule(name, by=visit.by, **timing)
    notices.acted(visit.by, "change schedule", name)
    return Acted(f"{name} fires {say_schedule(stored.schedule)}.")


def _timing(form: Mapping[str, str]) -> dict[str, Any]:
    cron, every, zone = (form.get(name, "").strip() for name in ("cron", "every", "timezone"))
    if bool(cron) == bool(every):
        raise Invalid("cron", "give either a cron expression or an interval")
    return {**({"cron": cron} if cron else {"every": every}), **({"timezone": zone} if zone else {})}


ROUTES = (
    Route("GET", "/schedules", Scope.READ, show_schedules),
    Route("POST", "/schedules/{name}/trigger", Scope.OPERATE, trigger),
    Route("GET", "/schedules/{name}/pause", Scope.OPERATE, ask_pause),
    Route("POST", "/schedules/{name}/pause", Scope.OPERATE, pause),
    Route("POST", "/schedules/{name}/resume", Scope.OPERATE, resume),
    Route("GET", "/schedules/{name}/edit", Scope.ADMIN, edit),
    Route("GET", "/schedules/{name}/preview", Scope.ADMIN, preview),
    Route("POST", "/schedules/{name}/change", Scope.ADMIN, change),
)
