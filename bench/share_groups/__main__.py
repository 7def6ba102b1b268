"""Benches of share groups on the local stack that `make run` or `penstock local up` starts.

Each part judges itself: its exit code is 1 if a promise is broken.
"""

import click

from bench.share_groups import kills, priorities, slow_record


@click.group(help=__doc__)
def main() -> None:
    pass


main.add_command(kills.main, "kills")
main.add_command(slow_record.main, "slow-record")
main.add_command(priorities.main, "priorities")

if __name__ == "__main__":
    main()
