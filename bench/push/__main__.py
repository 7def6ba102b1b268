"""Benches of push subscriptions on the local stack that `make run` or `penstock local up` starts.

Each part judges itself: its exit code is 1 if a promise is broken.
"""

import click

from bench.push import failures, idle, kills, latency, price

PARTS = {
    "kills": kills.main,
    "failures": failures.main,
    "latency": latency.main,
    "idle": idle.main,
    "price": price.main,
}


@click.group(help=__doc__)
def main() -> None:
    pass


for _name, _part in PARTS.items():
    main.add_command(_part, _name)

if __name__ == "__main__":
    main()
