"""All rows of a run, in order.

Rows that append come first, then those that load the stage. The idle minutes begin behind them. Meanwhile rows run that
neither append nor read, so that the functions stay idle. The second phase begins once no row waits any more: it has
the cold starts, and looks back on the run.
"""

from collections.abc import Sequence

from penstock.prove.proof import ProofRow
from penstock.prove.rows.access import access_rows
from penstock.prove.rows.deployed import deployed_rows, last_rows
from penstock.prove.rows.loads import cold_rows, load_rows
from penstock.prove.rows.nouns import noun_rows
from penstock.prove.rows.records import record_rows


def all_rows(idle_ms: int) -> list[Sequence[ProofRow]]:
    """The rows of each phase, with so many idle milliseconds."""
    first = [*record_rows(), *noun_rows(), *access_rows(), *load_rows(idle_ms), *deployed_rows()]
    return [first, [*cold_rows(), *last_rows()]]
