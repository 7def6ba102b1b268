"""`python -m tests.simulation.mutants`: search each mutant from seed 0, and print first_seeds.txt. It takes minutes."""

import sys

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import SEEDS_MAX

for mutant in MUTANTS:
    found = mutant.find(range(SEEDS_MAX))
    if found is None:
        sys.exit(f"{mutant.name}: none of {SEEDS_MAX:,} seeds shows it")
    if found[0]:
        print(found[0], mutant.name, flush=True)
