"""Workers: whom they serve, and when all of their slots are taken."""

from datetime import UTC, datetime, timedelta

import pytest

from demora.core.action import OWN_QUEUES
from demora.core.workers import LIVE_WITHIN, Running, WorkerRecord, all_taken, knows_type, say_types, serves

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAIL = WorkerRecord("ann", "host", 1, 2, queues=("mail",), types=("mail.send",))
ALL = WorkerRecord("ben", "host", 2, 1, types=("report.build",))


def running(worker_id: str, type: str, jobs: int, *, since: int = 0, latest: int = 0) -> Running:
    start = NOW - timedelta(seconds=since)
    return Running(worker_id, type, jobs, f"{worker_id}-{type}", start, NOW - timedelta(seconds=latest))


@pytest.mark.parametrize("queue", ["mail", *OWN_QUEUES])
def test_a_worker_serves_its_queues_and_those_of_demora(queue: str) -> None:
    assert serves(MAIL, queue)
    assert serves(ALL, queue)


def test_a_worker_with_queues_serves_no_others() -> None:
    assert not serves(MAIL, "reports")
    assert serves(ALL, "reports")


def test_only_workers_that_serve_a_queue_count_for_its_types() -> None:
    assert knows_type([MAIL, ALL], "mail", "mail.send") is True
    assert knows_type([MAIL, ALL], "reports", "mail.send") is False
    assert knows_type([MAIL], "reports", "mail.send") is None


def test_a_worker_is_live_until_its_heartbeat_is_too_old() -> None:
    assert WorkerRecord("ann", "host", 1, 1, heartbeat_ago=LIVE_WITHIN - timedelta(milliseconds=1)).live
    assert not WorkerRecord("ann", "host", 1, 1, heartbeat_ago=LIVE_WITHIN).live


def test_slots_are_taken_only_if_every_worker_is_full() -> None:
    assert all_taken([MAIL, ALL], [running("ann", "mail.send", 2)]) is None
    assert all_taken([MAIL], [running("ann", "mail.send", 1), running("ben", "report.build", 1)]) is None
    assert all_taken([], [running("ann", "mail.send", 2)]) is None


def test_taken_slots_name_what_takes_them() -> None:
    mail = running("ann", "mail.send", 2, since=5, latest=1)
    report = running("ben", "report.build", 1, since=9, latest=9)
    taken = all_taken([MAIL, ALL], [mail, report, running("gone", "mail.send", 7)])
    assert taken is not None
    assert taken.slots == 3
    assert taken.by_type == (("mail.send", 2), ("report.build", 1))
    assert taken.longest == (report, mail)
    assert taken.latest_at == mail.latest_at
    assert say_types(taken) == "2 mail.send, 1 report.build"


def test_types_beyond_the_first_three_are_counted() -> None:
    taken = all_taken([MAIL], [running("ann", f"type.{n}", n) for n in range(1, 6)])
    assert taken is not None
    assert say_types(taken) == "5 type.5, 4 type.4, 3 type.3, 2 other types"
    assert len(taken.longest) == 3
