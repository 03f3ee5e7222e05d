"""What a key may submit: patterns, and limits that are right."""

from typing import Any

import pytest

from demora.core.access import KeyLimits, check_allowed, check_limits, matches
from demora.errors import Invalid, NotAllowedForKey
from tests.builders import new_job


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("mail", "mail", True),
        ("mail", "mail.eu", False),
        ("mail.*", "mail.eu", True),
        ("mail.*", "mail.", True),
        ("mail.*", "mail", False),
        ("mail.*", "mailXeu", False),
        ("*.eu", "mail.eu", True),
        ("*.eu", ".eu", True),
        ("*.eu", "mail.us", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("*", "anything", True),
        ("Mail", "mail", False),
    ],
)
def test_one_star_stands_for_any_characters(pattern: str, name: str, fits: bool) -> None:
    assert matches(pattern, name) is fits


def test_without_patterns_every_name_is_allowed() -> None:
    check_allowed(KeyLimits(), [new_job(queue="a", type="b")])


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (KeyLimits(queues=("mail.*", "news")), "jobs[1].queue"),
        (KeyLimits(types=("email.*",)), "jobs[1].type"),
    ],
)
def test_the_first_job_that_is_not_allowed_is_named(limits: KeyLimits, field: str) -> None:
    jobs = [new_job(queue="mail.eu", type="email.send"), new_job(queue="other", type="other")]
    check_allowed(limits, jobs[:1])
    with pytest.raises(NotAllowedForKey) as refused:
        check_allowed(limits, jobs)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queues", ["a*b*c"]),
        ("queues", [""]),
        ("queues", ["a/b"]),
        ("queues", ["x" * 65]),
        ("queues", [f"q{n}" for n in range(101)]),
        ("types", ["a b"]),
        ("types", ["x" * 129]),
        ("max_queues", -1),
        ("max_types", True),
        ("max_waiting", 1.5),
        ("rate", 2**63),
    ],
)
def test_what_is_no_limit_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        check_limits(**{field: value})
    assert refused.value.field == field


def test_what_a_key_does_not_say_the_settings_do() -> None:
    own, usual = check_limits(max_queues=0, types=["a/b:c"]), KeyLimits(10, 20, 30, 40)
    assert own.over(usual) == KeyLimits(0, 20, 30, 40, types=("a/b:c",))
