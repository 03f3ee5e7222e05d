"""Requests for a pace: laid over another, read from settings, and refused."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.pace import (
    MOST_PROTECTED,
    USUAL_RAPID,
    Governs,
    Pace,
    PaceRequest,
    Rate,
    RateRequest,
    make_pace_request,
    read_pace,
    request_of,
    say_pace,
)
from demora.core.spans import spread
from demora.errors import Invalid
from tests.builders import ms, seconds


def test_a_request_changes_only_what_it_names() -> None:
    assert PaceRequest().over(Pace()) == Pace()
    assert PaceRequest(burst=9).over(Pace(gap=seconds(5))) == Pace(gap=seconds(5), burst=9)
    rapid = PaceRequest(rapid=RateRequest(burst=9)).over(Pace())
    assert rapid.rapid == Rate(seconds(30), 9)


def test_there_is_no_rapid_rate_unless_it_is_asked_for() -> None:
    assert PaceRequest(burst=2).over(Pace()).rapid is None
    rapid = PaceRequest(rapid=True).over(Pace())
    assert rapid == Pace(rapid=USUAL_RAPID)
    assert PaceRequest(burst=2).over(rapid).rapid == USUAL_RAPID
    assert PaceRequest(rapid=False).over(rapid) == Pace()


def test_a_stagger_follows_from_gap_and_burst_until_it_is_given() -> None:
    fitting = PaceRequest(gap=seconds(10), burst=5).over(Pace())
    assert fitting.rate(quiet=False).apart == seconds(2)
    assert PaceRequest(gap=seconds(1000)).over(fitting).rate(quiet=False).apart == seconds(30)
    given = PaceRequest(stagger=seconds(1)).over(fitting)
    assert PaceRequest(gap=seconds(1000)).over(given).rate(quiet=False).apart == seconds(1)
    assert PaceRequest(stagger="fit").over(given) == fitting


def test_a_stagger_that_was_given_and_does_not_fit_is_refused() -> None:
    given = Pace(gap=seconds(10), burst=5, stagger=seconds(2))
    assert request_of(given).over(Pace()) == given
    for change, field in (
        (PaceRequest(burst=6), "stagger"),
        (PaceRequest(gap=seconds(9)), "stagger"),
        (PaceRequest(rapid=RateRequest(stagger=seconds(7))), "rapid_stagger"),
    ):
        with pytest.raises(Invalid, match=r"releases [27]s apart take .* longer than the gap of .*s; at most .* fits") as no:
            change.over(given)
        assert no.value.field == field


def test_with_a_burst_of_one_the_stagger_plays_no_part() -> None:
    pace = PaceRequest(gap=seconds(10), burst=1, stagger=seconds(30)).over(Pace())
    assert (pace, pace.rate(quiet=False).cycle) == (Pace(gap=seconds(10), burst=1), 10_000)


@pytest.mark.parametrize("pace", [Pace(), Pace(rapid=None, protect=("a", "b"), governs=Governs.RETRIES), Pace(gap=ms(1))])
def test_the_wish_for_a_pace_gives_that_pace(pace: Pace) -> None:
    assert request_of(pace).over(Pace(gap=seconds(7), burst=99)) == pace


def test_settings_are_read_from_text_and_tables() -> None:
    asked = make_pace_request(gap="2m", burst=3, rapid_gap="5s", governs="retries", protect=("a", "b"))
    assert read_pace("gap=2m burst=3, rapid_gap=5s governs=retries protect=a+b", "x") == asked
    assert (
        read_pace({"gap": "2m", "burst": 3, "rapid": {"gap": "5s"}, "governs": "retries", "protect": ["a", "b"]}, "x")
        == asked
    )
    assert read_pace("off", "x") is None
    assert read_pace("rapid=off", "x") == PaceRequest(rapid=False)


@pytest.mark.parametrize(
    "text",
    ["gap", "gap=2", "speed=3", "burst=0", "burst=x", "rapid=maybe", "governs=all", "rapid=off rapid_gap=5s"],
)
def test_settings_that_cannot_be_meant_are_refused_with_their_name(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_pace(text, "DEMORA_PACE_MAIL")
    assert refused.value.field == "DEMORA_PACE_MAIL"


def test_a_pace_that_holds_nothing_is_refused() -> None:
    for stagger in (None, ms(0), seconds(1)):
        with pytest.raises(Invalid, match=r"^gap: a gap of zero holds nothing back"):
            PaceRequest(gap=ms(0), stagger=stagger).over(Pace())


def test_a_pace_is_said_in_a_line() -> None:
    assert say_pace(Pace(rapid=None, protect=("web",))) == "3 in 2m, 30s apart; governs both; protects web"
    assert say_pace(Pace(burst=2, rapid=None)) == "2 in 2m, 30s apart; governs both"
    assert say_pace(Pace(burst=1, rapid=None)) == "1 in 2m; governs both"


@given(st.integers(1, 500), st.integers(1, 10**9))
def test_a_spread_is_even_and_stays_within_its_span(count: int, over: int) -> None:
    times = [delay // ms(1) for delay in spread(count, ms(over))]
    assert times[0] == 0
    assert all(0 <= time < over for time in times)
    apart = [later - earlier for earlier, later in pairwise(times)]
    assert all(over // count <= gap <= over // count + 1 for gap in apart)


def test_a_spread_of_no_time_is_refused() -> None:
    with pytest.raises(Invalid, match=r"^spread: must be greater than zero"):
        spread(2, "0s")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"gap": "soon"}, "gap"),
        ({"burst": 0}, "burst"),
        ({"rapid_gap": "soon"}, "rapid_gap"),
        ({"rapid_burst": 0}, "rapid_burst"),
        ({"rapid_stagger": -1}, "rapid_stagger"),
        ({"rapid": False, "rapid_burst": 2}, "rapid"),
        ({"governs": "all"}, "governs"),
        ({"protect": "mail"}, "protect"),
        ({"protect": [f"q{n}" for n in range(MOST_PROTECTED + 1)]}, "protect"),
    ],
)
def test_a_value_that_cannot_be_is_refused_under_the_name_of_its_argument(values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        make_pace_request(**values)
    assert refused.value.field == field


def test_a_rapid_rate_that_holds_nothing_is_refused() -> None:
    with pytest.raises(Invalid, match=r"^rapid_gap: "):
        PaceRequest(rapid=RateRequest(gap=ms(0), stagger=ms(0))).over(Pace())
