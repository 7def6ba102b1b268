"""Benches of callers that share a local stack, which `make run` or `penstock local up` starts.

Each part judges itself: its exit code is 1 if a promise is broken. Nothing else may use the stack meanwhile.
"""

import click

from bench.neighbours import crowd, exact, teams

PARTS = {"teams": teams.main, "exact": exact.main, "crowd": crowd.main}


@click.group(help=__doc__)
def main() -> None:
    pass


for _name, _part in PARTS.items():
    main.add_command(_part, _name)

if __name__ == "__main__":
    main()
