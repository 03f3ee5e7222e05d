"""Paces as they are stored: those of an earlier version keep what they had, and it can read those of this one."""

from typing import Any

import msgspec
import pytest

from demora.core.pace import USUAL_RAPID, Governs, Pace, Rate
from demora.engines.sql.paces import pace_of, text
from tests.builders import ms, seconds

PACES = [
    Pace(),
    Pace(gap=seconds(10), burst=1),
    Pace(gap=seconds(10), burst=5, stagger=seconds(2)),
    Pace(rapid=USUAL_RAPID, governs=Governs.RETRIES, protect=("web",)),
    Pace(rapid=Rate(ms(100), 2, ms(50))),
]


def as_stored(**values: Any) -> str:
    """What the version before wrote: every value, and a stagger that was always given."""
    usual = {"gap": "PT120S", "burst": 3, "stagger": "PT30S", "rapid": None, "governs": "both", "protect": []}
    return msgspec.json.encode(usual | values).decode()


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_a_stored_pace_is_read_as_it_was_written(pace: Pace) -> None:
    assert pace_of(text(pace)) == pace


def test_a_stored_rapid_rate_stays_although_it_is_off_by_default() -> None:
    rapid = {"gap": "PT30S", "burst": 5, "stagger": "PT15S"}
    kept = pace_of(as_stored(rapid=rapid))
    assert kept == Pace(stagger=seconds(30), rapid=Rate(seconds(75), 5, seconds(15)))


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        ({}, Rate(seconds(120), 3, seconds(30))),
        ({"gap": "PT10S"}, Rate(seconds(90), 3, seconds(30))),
        ({"gap": "PT10S", "burst": 1}, Rate(seconds(30), 1)),
        ({"gap": "PT0S"}, Rate(seconds(90), 3, seconds(30))),
    ],
    ids=str,
)
def test_a_stored_pace_keeps_the_cycle_that_it_had(stored: dict[str, Any], kept: Rate) -> None:
    assert pace_of(as_stored(**stored)).rate(quiet=False) == kept
    assert kept.fits


@pytest.mark.parametrize("pace", PACES, ids=str)
def test_an_earlier_version_finds_every_stagger_written_out(pace: Pace) -> None:
    stored = msgspec.json.decode(text(pace))
    rates = [(stored, pace.rate(quiet=False)), *([(stored["rapid"], pace.rapid)] if pace.rapid else [])]
    for written, rate in rates:
        assert msgspec.convert(written["stagger"], type=type(rate.apart)) == rate.apart
