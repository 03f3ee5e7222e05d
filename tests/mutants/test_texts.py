"""A bug can be planted only where its text stands."""

import pytest

from tests.mutants.__main__ import PLANTED
from tests.mutants.planted import Mutant
from tests.mutants.trials import SOURCE


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_the_text_of_a_planted_bug_stands_once(mutant: Mutant) -> None:
    assert (SOURCE / mutant.file).read_text().count(mutant.old) == 1
