"""`python -m tests.mutants`: which tests find the mutants of the expressions that ship, and which none finds."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import click
import pytest

from tests.mutants.driver import Mutant, recording
from tests.mutants.judge import Judge, Verdict, try_mutant
from tests.mutants.ledger import read_equivalent, read_found, write_found
from tests.simulation.run import run
from tests.simulation.workloads import WORKLOADS

FOUND_SHARE_MIN = 0.97
SEEDS = 20  # that the simulator tries for a mutant in each workload
CONTRACTS = (
    "tests/contract",
    "tests/service/adapters/test_stored_items.py",
    "tests/service/adapters/test_stored_log_items.py",
)
ROOMS = ("tests/service", "tests/handlers", "tests/sdk")
_OPTIONS = (
    *("-o", "addopts=--strict-markers --import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:terminal"),
    *("-m", "not minutes and not chaos", "--hypothesis-profile", "quick", "--hypothesis-seed", "0"),
)


@dataclass(slots=True)
class Search:
    """What is known of all mutants so far."""

    only: str
    ends_s: float
    found_before: Mapping[Mutant, str]
    equivalent: Mapping[Mutant, str]
    met: dict[Mutant, None] = field(default_factory=dict)
    verdicts: dict[Mutant, Verdict] = field(default_factory=dict)

    def go_on(self, tests: Judge) -> None:
        """Judges each mutant that these tests meet, and that no test has found yet. Equivalent ones, too."""
        tests.record()
        self.met |= dict.fromkeys(tests.met)
        for mutant in sorted(tests.met):
            if self.only not in str(mutant) or self._is_found(mutant) or time.monotonic() > self.ends_s:
                continue
            chosen = tests.order(tests.met[mutant], first=self.found_before.get(mutant))
            self._note(tests.judge(mutant, chosen))

    def simulate(self) -> None:
        """Lets the simulator judge what the tests have passed by, with the workloads that meet it."""
        for workload in WORKLOADS:
            met: set[Mutant] = set()
            with recording(lambda mutant, _, met=met: met.add(mutant)):  # type: ignore[misc]
                run(0, workload)
            for mutant in sorted(met.intersection(self.lost())):
                if time.monotonic() < self.ends_s:
                    trials = {f"{workload} {seed}": partial(_failure, seed, workload) for seed in range(SEEDS)}
                    self._note(try_mutant(mutant, trials))

    def found(self) -> dict[Mutant, str]:
        """The test that found each mutant."""
        return {each.mutant: each.found_by for each in self.verdicts.values() if each.found_by is not None}

    def lost(self) -> list[Mutant]:
        """The mutants that all their tests passed by, without the equivalent ones."""
        return [each for each in self.verdicts if not self._is_found(each) and each not in self.equivalent]

    def not_judged(self) -> list[Mutant]:
        """The mutants that the time was too short for."""
        return [each for each in self.met if self.only in str(each) and each not in self.verdicts]

    def mistakes(self) -> list[str]:
        """What is wrong in equivalent.txt."""
        gone = [each for each in self.equivalent if each not in self.met]
        found = [each for each in self.equivalent if self._is_found(each)]
        return [f"no expression has it any more: {each}" for each in gone] + [
            f"{self.verdicts[each].found_by} finds it: {each}" for each in found
        ]

    def _note(self, verdict: Verdict) -> None:
        self.verdicts[verdict.mutant] = verdict
        print(_line(verdict), file=sys.stderr, flush=True)

    def _is_found(self, mutant: Mutant) -> bool:
        verdict = self.verdicts.get(mutant)
        return verdict is not None and verdict.found_by is not None


@click.command()
@click.argument("paths", nargs=-1)
@click.option("--minutes", default=60.0, help="Judge no further mutant after that time.")
@click.option("--only", default="", help="Look at the mutants whose name has this text.")
@click.option(
    "--list", "is_list", is_flag=True, help="Print the mutants that the contract suite meets, and judge none."
)
@click.option("--json", "is_json", is_flag=True, help="Print one object.")
@click.option("--sample", default=0, help="Judge so many mutants of found.txt, each by the test that found it.")
def main(paths: tuple[str, ...], minutes: float, only: str, is_list: bool, is_json: bool, sample: int) -> None:
    """Spoil each expression that ships, and run the tests that meet it: contracts first, then those of the rooms.

    The simulator judges those that no test finds. With PATHS, only the tests below them count.
    """
    found_before = read_found()
    if sample:
        sys.exit(_judge_sample(found_before, sample))
    search = Search(only, time.monotonic() + 60 * minutes, found_before, read_equivalent())
    if is_list:
        search.ends_s = 0.0
    _pytest(paths or CONTRACTS, search.go_on)
    if is_list:
        print("\n".join(str(each) for each in sorted(search.met) if only in str(each)))
        return
    mistakes = [] if paths else search.mistakes()
    for room in () if paths else ROOMS:
        if search.lost():
            _pytest([room], search.go_on)
    if search.lost() and not paths:
        search.simulate()
    found = search.found()
    if not paths and not search.not_judged():
        found_before = {mutant: test for mutant, test in found_before.items() if only not in str(mutant)}
    write_found({**found, **found_before} if paths else {**found_before, **found})
    _report(search, mistakes, is_json=is_json)
    judged = len(found) + len(search.lost())
    sys.exit(bool(mistakes) or len(found) < FOUND_SHARE_MIN * judged)


def choose_sample(found: Mapping[Mutant, str], count: int) -> list[list[Mutant]]:
    """`count` runs of mutants of the same length. The first of each that still exists is to be found."""
    mutants = sorted(found)
    starts = [place * len(mutants) // count for place in range(count)]
    return [mutants[start:end] for start, end in zip(starts, [*starts[1:], len(mutants)], strict=True)]


def _judge_sample(found: Mapping[Mutant, str], count: int) -> str | int:
    """An error's text, or 0. A mutant or a test that has gone passes its place on to the next mutant."""
    choices = choose_sample(found, count)
    files = sorted({found[mutant].partition("::")[0] for each in choices for mutant in each[:3]})
    lost: list[str] = []
    gone: list[str] = []

    def judge_sample(judge: Judge) -> None:
        for choice in choices:
            for mutant in choice[:3]:
                verdict = judge.judge(mutant, [found[mutant]]) if found[mutant] in judge.items else None
                if verdict is not None and verdict.spoiled:
                    print(_line(verdict))
                    lost.extend([str(mutant)] if verdict.found_by is None else [])
                    break
            else:
                gone.append(str(choice[0]))

    _pytest(files, judge_sample)
    if lost:
        return "\n".join(("no test finds any more:", *lost))
    return "found.txt is old: run `python -m tests.mutants`" if len(gone) > count // 4 else 0


def _pytest(paths: Sequence[str], work: Callable[[Judge], None]) -> None:
    judge = Judge(work)
    code = pytest.main([*_OPTIONS, *paths], plugins=[judge])
    if code:
        sys.exit(f"pytest ends with {code!r}")
    if judge.invalid:
        sys.exit("\n".join(judge.invalid))


def _report(search: Search, mistakes: Iterable[str], *, is_json: bool) -> None:
    lost, not_judged, found = sorted(search.lost()), sorted(search.not_judged()), search.found()
    if is_json:
        facts = {
            "found": [
                {"mutant": str(mutant), "by": test, "took_s": round(search.verdicts[mutant].took_s, 2)}
                for mutant, test in sorted(found.items())
            ],
            "not_found": [*map(str, lost)],
            "not_judged": [*map(str, not_judged)],
            "equivalent": [*map(str, search.equivalent)],
            "mistakes": [*mistakes],
        }
        print(json.dumps(facts, indent=1))
        return
    for title, lines in (("not found", lost), ("not judged", not_judged), ("equivalent.txt", mistakes)):
        for each in lines:
            print(f"{title}: {each}")
    print(
        f"{len(found)} found, {len(lost)} not found, {len(search.equivalent)} equivalent, {len(not_judged)} not judged"
    )


def _failure(seed: int, workload: str) -> str | None:
    return run(seed, workload).failure


def _line(verdict: Verdict) -> str:
    by = f"by {verdict.found_by} ({verdict.why})" if verdict.found_by else f"by none of {verdict.tests} tests"
    return f"{'found' if verdict.found_by else 'NOT FOUND'} in {verdict.took_s:.1f} s {by}: {verdict.mutant}"


if __name__ == "__main__":
    main()
