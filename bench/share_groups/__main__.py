"""Benches of share groups on the local stack that `make run` or `penstock local up` starts.

Each part judges itself: its exit code is 1 if a promise is broken. `all` runs one part after the other.
"""

import subprocess
import sys

import click

from bench.share_groups import beside_sqs, failing, kills, slow_record, writes

PARTS = {
    "kills": kills.main,
    "slow-record": slow_record.main,
    "failing": failing.main,
    "sqs": beside_sqs.main,
    "writes": writes.main,
}


@click.group(help=__doc__)
def main() -> None:
    pass


for _name, _part in PARTS.items():
    main.add_command(_part, _name)


@main.command("all")
@click.option("--write", is_flag=True, help="Write each result to bench/results/.")
def run_all(write: bool) -> None:
    """Run all parts with their defaults, each in a process of its own."""
    arguments = ["--write"] if write else []
    codes = [subprocess.run([sys.executable, "-m", __package__, name, *arguments]).returncode for name in PARTS]
    raise SystemExit(max(codes))


if __name__ == "__main__":
    main()
