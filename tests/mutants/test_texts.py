"""A bug can be planted only where its text stands."""

import pytest

from tests.mutants.__main__ import SOURCE
from tests.mutants.foreign import FOREIGN
from tests.mutants.locks import LOCKS
from tests.mutants.planted import MUTANTS, Mutant
from tests.mutants.rooms import ROOMS
from tests.mutants.schedules import SCHEDULES


@pytest.mark.parametrize("mutant", [*MUTANTS, *FOREIGN, *LOCKS, *ROOMS, *SCHEDULES], ids=lambda mutant: mutant.name)
def test_the_text_of_a_planted_bug_stands_once(mutant: Mutant) -> None:
    assert (SOURCE / mutant.file).read_text().count(mutant.old) == 1
