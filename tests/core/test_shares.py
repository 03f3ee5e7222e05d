"""How a worker divides itself among queues."""

import random
from collections import Counter

import pytest

from demora.core.action import OWN_QUEUES
from demora.core.workers import QueueShares
from demora.errors import Invalid


def test_without_queues_all_are_served_as_one_line() -> None:
    share = QueueShares(None)
    assert (share.turn(random.random), share.in_turn, str(share)) == (None, False, "all")


def test_named_queues_are_one_line_too() -> None:
    share = QueueShares(["a", "b"])
    assert (share.turn(random.random), share.in_turn, str(share)) == (("a", "b", *OWN_QUEUES), False, "a,b")


def test_strictly_they_are_asked_in_the_order_named() -> None:
    share = QueueShares(["b", "a"], strict=True)
    assert (share.turn(random.random), share.in_turn, str(share)) == (("b", "a", *OWN_QUEUES), True, "b then a")


def test_by_weight_each_comes_first_as_often_as_its_weight_is_of_all() -> None:
    share, chance = QueueShares({"a": 60, "b": 30, "c": 10}), random.Random(7)
    turns = [share.turn(chance.random) for _ in range(10_000)]
    assert all(turn is not None and sorted(turn) == sorted(["a", "b", "c", *OWN_QUEUES]) for turn in turns)
    first = Counter(turn[0] for turn in turns if turn)
    assert [round(first[queue] / 10_000, 1) for queue in "abc"] == [0.6, 0.3, 0.1]
    assert (share.in_turn, str(share)) == (True, "a=60,b=30,c=10")
    assert all(50 < first[queue] < 200 for queue in OWN_QUEUES)  # of weight 1
    assert QueueShares(OWN_QUEUES).turn(random.random) == OWN_QUEUES


@pytest.mark.parametrize(
    ("queues", "strict"),
    [
        ([], False),
        (["a", "a"], False),
        (["no good"], False),
        (None, True),
        ({"a": 1}, True),
        ({"a": 0}, False),
        ({"a": 1001}, False),
        ({"a": True}, False),
        ({"a": 1.5}, False),
    ],
)
def test_what_makes_no_sense_is_refused(queues: object, strict: bool) -> None:
    with pytest.raises(Invalid):
        QueueShares(queues, strict=strict)  # type: ignore[arg-type]
