"""A plugin of pytest: it runs the collected tests once and records which mutants each meets, then judges mutants.

Each mutant has a process of its own, a fork of this one. So it costs no import, and nothing is left of it. The tests
that meet the mutant run there until one fails.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.driver import Arguments, Mutant, faults, installed, recording

_ENDLESS = "it does not end"
_CALLS_MAX = 5_000  # of one trial under a mutant: some make a loop that has no end
_CPU_S_MAX = 30  # of one trial, if the loop makes no calls
_WAIT_S_MAX = 120.0  # for an answer of a process whose test waits
_TESTS_S_MAX = 60.0  # of all tests of one room for a mutant
_MEMORY_BYTES_MAX = 4 * 2**30
_CONTRACTS = "tests/contract/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The test that found a mutant; None if none did. `tests` ran, and `spoiled` of their calls had the mutant."""

    mutant: Mutant
    found_by: str | None
    why: str
    tests: int
    spoiled: int
    took_s: float


@dataclass(slots=True)
class Judge:
    """Calls `work` in the place of pytest's own loop over the tests."""

    work: Callable[["Judge"], None]
    items: Mapping[str, pytest.Item] = field(default_factory=dict)
    met: dict[Mutant, dict[str, None]] = field(default_factory=dict)  # the tests that met each mutant
    took_s: dict[str, float] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)  # what is wrong with the generator

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of the contract suite, keeps the tests on the tables in memory."""
        items[:] = [each for each in items if _runs_on_tables(each)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Takes the place of pytest's own loop."""
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def record(self) -> None:
        """Runs all tests. A test that fails meets nothing."""
        items = [*self.items.values()]
        for item, following in zip(items, [*items[1:], None], strict=True):
            found: dict[Mutant, None] = {}
            begun = time.monotonic()
            with recording(partial(self._note, found)):
                failure = _failure(item, following)
            self.took_s[item.nodeid] = time.monotonic() - begun
            if failure is not None:
                print(f"{item.nodeid} fails without a mutant: {failure}", file=sys.stderr)
                continue
            for mutant in found:
                self.met.setdefault(mutant, {})[item.nodeid] = None

    def _note(self, found: dict[Mutant, None], mutant: Mutant, arguments: Arguments) -> None:
        if mutant not in found and mutant not in self.met:
            self.invalid.extend(faults(mutant, arguments))
        found[mutant] = None

    def order(self, tests: Iterable[str], *, first: str | None = None) -> list[str]:
        """The tests in the order in which they are to try: `first`, then quick ones, for `_TESTS_S_MAX` in all."""
        took = 0.0
        chosen: list[str] = []
        for test in sorted(tests, key=lambda each: (each != first, self.took_s[each])):
            took += self.took_s[test]
            if chosen and took > _TESTS_S_MAX:
                break
            chosen.append(test)
        return chosen

    def judge(self, mutant: Mutant, tests: Sequence[str]) -> Verdict:
        """Runs the tests under the mutant until one fails."""
        items = [self.items[each] for each in tests]
        pairs = zip(items, [*items[1:], None], strict=True)
        return try_mutant(mutant, {item.nodeid: partial(_failure, item, following) for item, following in pairs})


def try_mutant(mutant: Mutant, trials: Mapping[str, Callable[[], str | None]]) -> Verdict:
    """Makes the trials in a fork of this process, until one fails or ends the process. A trial tells how it fails."""
    begun = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _try(mutant, trials, write)
    os.close(write)
    said = _lines(read, child)
    os.close(read)
    os.waitpid(child, 0)
    names = [each["begin"] for each in said if "begin" in each]
    end = next((each for each in said if "end" in each), None)
    return Verdict(
        mutant=mutant,
        found_by=names[-1] if end is None else end["end"],
        why=_ENDLESS if end is None else end["why"],
        tests=len(names),
        spoiled=1 if end is None else end["spoiled"],
        took_s=time.monotonic() - begun,
    )


def _try(mutant: Mutant, trials: Mapping[str, Callable[[], str | None]], pipe: int) -> None:
    spoiled = before = 0

    def met() -> None:
        nonlocal spoiled
        spoiled += 1
        if spoiled > before + _CALLS_MAX:
            end(name, _ENDLESS)

    def say(**facts: object) -> None:
        os.write(pipe, json.dumps(facts).encode() + b"\n")

    def end(found_by: str | None, why: str) -> None:
        say(end=found_by, why=why, spoiled=spoiled)
        os._exit(0)

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    with installed(mutant, met):
        for name, trial in trials.items():
            before = spoiled
            say(begin=name)
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu_s = int(used.ru_utime + used.ru_stime) + _CPU_S_MAX
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
            failure = trial()
            if failure is not None:
                end(name, failure)
    end(None, "")


def _failure(item: pytest.Item, following: pytest.Item | None) -> str | None:
    """How the test fails; None if it passes."""
    for report in runtestprotocol(item, log=False, nextitem=following):
        if report.failed:
            return (report.longreprtext.strip().splitlines() or ["?"])[-1][:200]
    return None


def _lines(pipe: int, child: int) -> list[Mapping[str, Any]]:
    """What a process says until its end. Ends it if it is silent for too long."""
    said = b""
    while True:
        if not select.select([pipe], [], [], _WAIT_S_MAX)[0]:
            os.kill(child, signal.SIGKILL)
        got = os.read(pipe, 65_536)
        if not got:
            return [json.loads(each) for each in said.splitlines()]
        said += got


def _runs_on_tables(item: pytest.Item) -> bool:
    if not item.nodeid.startswith(_CONTRACTS):
        return True
    kinds = getattr(item, "callspec", None)
    return kinds is not None and kinds.params.get("ports") == "tables"
