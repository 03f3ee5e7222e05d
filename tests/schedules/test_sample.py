"""A sample of `python -m tests.schedules`, and the oracle itself at times that are known."""

from datetime import UTC, datetime

import pytest

from tests.schedules.__main__ import main
from tests.schedules.compare import Difference, Window, compare
from tests.schedules.oracle import fire_times

SPRING = datetime(2026, 3, 29, 0, 0, tzinfo=UTC), datetime(2026, 3, 29, 2, 0, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 25, 0, 0, tzinfo=UTC), datetime(2026, 10, 25, 2, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        ("30 2 * * *", ["01:00"], ["00:30"]),
        ("*/30 2,3 * * *", ["01:00", "01:30"], ["00:00", "00:30", "02:00"]),
        ("30 * * * *", ["00:30", "01:30"], ["00:30", "01:30"]),
        ("0 */2 * * *", ["02:00"], ["00:00", "01:00"]),
        ("0 30 2 * * *", ["01:00"], ["00:30"]),
    ],
)
def test_the_oracle_knows_the_rules(expression: str, spring: list[str], autumn: list[str]) -> None:
    assert [f"{at:%H:%M}" for at in fire_times(expression, "Europe/Madrid", *SPRING)] == spring
    assert [f"{at:%H:%M}" for at in fire_times(expression, "Europe/Madrid", *AUTUMN)] == autumn


def test_demora_agrees_with_the_oracle_in_a_sample(capsys: pytest.CaptureFixture[str]) -> None:
    zones = "Europe/Madrid,America/New_York,Australia/Lord_Howe,Pacific/Apia,Africa/Casablanca,Asia/Gaza,Antarctica/Troll"
    assert main(["--zones", zones, "--years", "2010-2012"]) == 0, capsys.readouterr().out


def test_a_difference_is_shown() -> None:
    window = Window("Europe/Madrid", "30 2 * * *", *SPRING)
    assert compare(window) == 1
    shown = str(Difference(window, [], [SPRING[0]], "forwards"))
    assert shown.startswith("'30 2 * * *' in Europe/Madrid from 2026-03-29T00:00:00Z")
    assert shown.endswith("only demora has [], only the oracle has ['2026-03-29T00:00:00Z']")
