"""Every two verbs that touch one row, interleaved at each of their statements: both answers and the rows are those of one
order or the other."""

import importlib
import inspect
import itertools
import pkgutil
from collections.abc import Iterator

import pytest

from demora import store as ports
from tests.engines.postgres.race_verbs import (
    ABOUT_JOBS,
    NOT_RACED,
    OF_PARTS,
    ONLY,
    SITUATIONS,
    THOROUGH,
    USUAL_SITUATIONS,
    USUALLY_HOOKED,
    VERBS,
)
from tests.engines.postgres.races import Case, Races

RACING = [verb for verb in VERBS if verb.usual or THOROUGH]
PLAIN = SITUATIONS if THOROUGH else USUAL_SITUATIONS
HOOKED = [name for name in SITUATIONS if name != "absent" and name not in ONLY] if THOROUGH else USUALLY_HOOKED


def port_verbs() -> Iterator[str]:
    """The verbs of all ports, under the name of the protocol that declares them."""
    for found in pkgutil.iter_modules(ports.__path__):
        module = importlib.import_module(f"{ports.__name__}.{found.name}")
        for name, one in inspect.getmembers(module, inspect.isclass):
            if one.__module__ == module.__name__ and getattr(one, "_is_protocol", False):
                yield from (f"{name}.{verb}" for verb in vars(one) if not verb.startswith("_") and callable(vars(one)[verb]))


def test_every_verb_of_the_port_is_raced_or_left_out_for_a_reason() -> None:
    raced = {verb.port for verb in VERBS}
    verbs = set(port_verbs())
    assert sorted(verbs - raced - NOT_RACED.keys()) == []
    assert sorted((raced | NOT_RACED.keys()) - verbs) == []
    assert not raced & NOT_RACED.keys()
    assert {verb.port for verb in VERBS if verb.usual} == raced - {"Store.purge"}  # housekeep runs the same statement


@pytest.mark.slow  # thousands of interleavings
@pytest.mark.timeout(1800 if THOROUGH else 300)
@pytest.mark.parametrize("situation", PLAIN)
async def test_two_verbs_at_once_come_to_what_they_come_to_in_turn(url: str, schema: str, situation: str) -> None:
    await race(url, schema, situation, hooked=False)


@pytest.mark.slow  # thousands of interleavings
@pytest.mark.timeout(1800 if THOROUGH else 300)
@pytest.mark.parametrize("situation", HOOKED)
async def test_two_verbs_at_once_about_a_job_with_a_webhook(url: str, schema: str, situation: str) -> None:
    await race(url, schema, situation, hooked=True)


async def race(url: str, schema: str, situation: str, *, hooked: bool) -> None:
    async with Races.opened(url, schema) as races:
        racing = [verb for verb in RACING if verb.name in ONLY.get(situation, ABOUT_JOBS)]
        for held, other in itertools.product(racing, racing):
            faults = await races.faults(Case(situation, hooked, held, other), thorough=THOROUGH)
            assert not faults, "\n".join(f"{case}, {gate}:\n    {reason}" for case, gate, reason in faults)
    assert races.count > (1 if situation in OF_PARTS else 5 if situation in ONLY else 20)
