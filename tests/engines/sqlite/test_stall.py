"""Which leases are spared after periods in which no process could write. Times are milliseconds of the clock of leases."""

import os
import time
from pathlib import Path

import pytest

from demora.engines.sqlite.connection.locking import SPARING, Stall


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stalled"


def test_leases_are_judged_by_the_beginning_of_a_stall_until_every_worker_had_time_to_renew() -> None:
    stall = Stall()
    stall.is_over(1_000, 7_000)
    assert (stall.lease_clock(7_000), stall.spared_until(7_000)) == (1_000, 7_000 + SPARING)
    assert (stall.lease_clock(7_000 + SPARING), stall.spared_until(7_000 + SPARING)) == (7_000 + SPARING, None)


def test_a_second_connection_that_waited_for_less_does_not_move_the_beginning_of_the_stall() -> None:
    stall = Stall()
    stall.goes_on(1_000, 6_000)  # the writer of the worker
    stall.goes_on(1_200, 6_200)  # the connection that renews
    stall.is_over(6_100, 8_000)
    stall.is_over(6_600, 8_100)  # the second try of the connection that renews: its leases have lapsed before
    assert stall.lease_clock(8_100) == 1_000


def test_a_wait_that_is_given_up_after_the_stall_does_not_move_its_beginning() -> None:
    stall = Stall()
    stall.is_over(1_000, 6_000)
    stall.goes_on(1_500, 6_500)
    assert stall.lease_clock(6_500) == 1_000
    stall.is_over(7_000, 7_000)
    assert stall.lease_clock(7_000) == 1_000


def test_one_stall_after_the_other_does_not_spare_a_dead_worker_for_ever() -> None:
    stall = Stall()
    stall.is_over(0, 2_000)
    for began in range(2_000, 2_000 + 2 * SPARING, 2_000):
        stall.is_over(began, began + 2_000)
    assert stall.lease_clock(2_000 + 2 * SPARING) == 2_000 + SPARING


def test_a_process_that_did_not_wait_heeds_the_ones_that_did(file: Path) -> None:
    Stall(file).goes_on(1_000, 7_000)
    other = Stall(file)
    assert other.heeds_others(7_100)
    assert (other.lease_clock(7_100), other.spared_until(7_100)) == (1_000, 7_000 + SPARING)
    assert not other.heeds_others(7_000 + SPARING)
    assert other.lease_clock(7_000 + SPARING) == 7_000 + SPARING


def test_a_lease_is_spared_only_once_for_the_sake_of_others(file: Path) -> None:
    waiting, other = Stall(file), Stall(file)
    for now in range(7_000, 7_000 + 2 * SPARING, 1_000):  # some process waits all the time
        waiting.goes_on(now - 1_000, now)
        assert other.heeds_others(now)
    assert other.lease_clock(6_000 + 2 * SPARING) >= 7_000


def test_a_process_that_starts_late_does_not_spare_what_had_lapsed_before_the_stall(file: Path) -> None:
    waiting = Stall(file)
    for now in range(50_000, 50_000 + 2 * SPARING, 2_000):  # some process waits now and then
        waiting.goes_on(now - 1_100, now)
        waiting.is_over(now - 1_100, now + 10)
        new = Stall(file)
        assert new.heeds_others(now + 20)
        assert new.lease_clock(now + 20) == now - 1_100


def test_waits_of_several_processes_that_overlap_are_one_stall(file: Path) -> None:
    Stall(file).goes_on(1_000, 7_000)
    Stall(file).goes_on(6_500, 7_600)
    other = Stall(file)
    assert other.heeds_others(7_700)
    assert other.lease_clock(7_700) == 1_000


def test_a_stamp_that_does_not_say_when_the_stall_began_spares_every_lease(file: Path) -> None:
    Stall(file).goes_on(1_000, 7_000)
    os.utime(file, ns=(time.time_ns(), 7_000_000_000))  # something read the file
    other = Stall(file)
    assert other.heeds_others(7_100)
    assert other.lease_clock(7_100) == 0


def test_a_stamp_of_another_boot_counts_for_nothing(file: Path) -> None:
    Stall(file).goes_on(899_000, 900_000)
    assert not Stall(file).heeds_others(1_000)


def test_a_folder_that_cannot_be_written_to_does_no_harm(tmp_path: Path) -> None:
    stall = Stall(tmp_path / "missing" / "stalled")
    stall.goes_on(1_000, 6_000)
    assert not stall.heeds_others(6_000)
    assert stall.lease_clock(6_000) == 1_000
