"""The large runs, by command. Exit code 1 if a promise does not hold."""

import argparse
import os
import sys
from contextlib import redirect_stdout

from tests.fuzz.decoders import compare_decoders
from tests.fuzz.filters import fuzz_filters
from tests.fuzz.requests import fuzz_requests

SHOWN = 10


def main() -> int:
    """Run one kind of fuzzing and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return _KINDS[options.kind](options.count, options.seed)


def _decoders(count: int, seed: int) -> int:
    report = compare_decoders(count, seed)
    print(f"{report.inputs} inputs of seed {seed}: {report.refused} refused, {len(report.differing)} differ,")
    print(f"slowest {report.slowest_s:.3f} s for both decoders")
    for each in report.differing[:SHOWN]:
        print(each.hex())
    return 1 if report.differing else 0


def _requests(count: int, seed: int) -> int:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # the handlers log each request
        report = fuzz_requests(count, seed)
    print(f"{report.inputs} requests of seed {seed}, answers by status: {dict(sorted(report.statuses.items()))},")
    print(f"{len(report.broken)} broken promises, {len(report.slow)} slow, slowest {report.slowest_s:.3f} s of CPU,")
    print(f"largest answer {report.largest_bytes} bytes as Lambda counts it")
    for what, request in report.broken[:SHOWN]:
        print(what, repr(request)[:2_000])
    for request in report.slow[:SHOWN]:
        print("slow", repr(request)[:2_000])
    return 1 if report.broken else 0


def _filters(count: int, seed: int) -> int:
    report = fuzz_filters(count, seed)
    print(f"{report.inputs} policies of seed {seed}: {report.taken} taken, {len(report.broken)} broken promises,")
    print(f"slowest {report.slowest_s:.3f} s of CPU")
    for what, policy in report.broken[:SHOWN]:
        print(what, policy[:2_000])
    return 1 if report.broken else 0


_KINDS = {"decoders": _decoders, "requests": _requests, "filters": _filters}

if __name__ == "__main__":
    sys.exit(main())
