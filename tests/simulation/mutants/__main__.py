"""`python -m tests.simulation.mutants [TEXT]`: hold the first seed of each mutant, of those with this text in the name.

Prints the head line of each whose seed no longer shows it, with the first one that does. It takes minutes.
"""

import sys

from tests.simulation.mutants.mutant import SEEDS_MAX, mutants

for mutant in mutants():
    for find, known in ((mutant.find, mutant.first_seed), (mutant.find_anomaly, mutant.checked_seed)):
        is_wanted = " ".join(sys.argv[1:]) in mutant.name and (find == mutant.find or mutant.kind is not None)
        if is_wanted and (known is None or not find([known])):
            seed, failure = find(range(SEEDS_MAX)) or (f"none of {SEEDS_MAX}", "")
            print(f"{mutant.name} | {mutant.workload} | {seed}, not {known}: {failure[-100:]!r}", flush=True)
