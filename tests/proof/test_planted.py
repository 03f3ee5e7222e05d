"""Bugs planted into the SQL of the engine: the checker sees them from outside, by what a store shows."""

import asyncio
import random

import pytest

from demora.engines.sqlite.connection.connections import SQL
from demora.proof import check
from tests.proof.driving import VERBS
from tests.proof.test_good_lives import live

LIVES, STEPS = 400, 60

PLANTED = {
    "a success is recorded under any token": ("complete", " and jobs.token = done.token", "", {"I3"}),
    "a failure is recorded under any token": ("settle", "and token = :token ", "", {"I3"}),
    "a lease is renewed under any token": ("renew", " and token = :token", "", {"I3"}),
    "a success is recorded after the lease": ("complete", " and lease_until > :boot", "", {"I3"}),
    "a lapsed lease is renewed": ("renew", " and lease_until > :boot", "", {"I3"}),
    "the token does not grow": ("claim_take", "token = token + 1", "token = max(token, 1)", {"I3"}),
    "what is leased is claimed": ("claim_scan", "status < 3", "status <= 3", {"I4"}),
    "credit is given for every run": ("settle", "credits + :credit", "credits + 1", {"I5"}),
    "no credit is given": ("settle", "credits + :credit", "credits", {"I5"}),
    "jobs are claimed early": ("claim_scan", "due_at <= ?", "due_at <= ? + 30000", {"I6"}),
    "a new time is forgotten": ("change", "due_at = coalesce(:due_at, due_at),", "", {"I6"}),
    "a asked is overlooked": ("settle", "and (cancel_requested_at is null or :stands)", "", {"I9"}),
    "a asked is not written down": ("cancel_running", "coalesce(cancel_requested_at, ?)", "iif(?, null, null)", {"I9"}),
    "a key is kept for no time": ("key_taken", "expires_at > ?", "expires_at < 0 * ?", {"I10"}),
    "a retry by hand stays in its generation": ("retry", "generation = generation + 1,", "", {"I2"}),
    "a retry by hand brings no attempts": ("retry", "credits = token,", "", {"I12"}),
    "what has ended is changed": ("change", "and status < 3", "and status <> 3", {"I2"}),
    "what has not ended is removed": ("remove", "and status > 3", "", {"I1"}),
}


@pytest.mark.parametrize(("name", "sound", "bad", "rules"), PLANTED.values(), ids=PLANTED)
def test_a_planted_bug_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, sound: str, bad: str, rules: set[str]) -> None:
    assert sound in SQL[name]
    monkeypatch.setitem(SQL, name, SQL[name].replace(sound, bad))
    assert rules <= broken_in_random_lives(until=rules)


@pytest.mark.slow
def test_without_a_bug_nothing_is_caught() -> None:
    assert broken_in_random_lives(until={"any"}) == set()


def broken_in_random_lives(until: set[str]) -> set[str]:
    """The rules that random lives break, up to the one in which these are broken."""
    chance, broken = random.Random(7), set[str]()
    for _ in range(LIVES):
        if until <= broken:
            break
        steps = [(chance.choice(VERBS), chance.randrange(10), chance.randrange(10)) for _ in range(STEPS)]
        try:
            broken |= {violation.rule for violation in check(*asyncio.run(live(steps))).violations}
        except Exception:  # a bug may also break the store itself
            continue
    return broken
