"""Each mutant of the simulator meets the text that it changes: a moved line shows here, and not an hour later."""

import pytest

from tests.simulation.mutants.mutant import Mutant, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_mutant_can_be_put_in(mutant: Mutant) -> None:
    with mutant.patched():
        pass
