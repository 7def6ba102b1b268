"""The service keeps its promises under seeded schedules and faults; the simulator keeps its own."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from operator import attrgetter

import pytest
from click.testing import CliRunner

from tests.simulation.__main__ import explain, main
from tests.simulation.engine.faults import Fault
from tests.simulation.engine.scheduler import format_entry
from tests.simulation.mutants.mutant import SEEDS_MAX, Mutant, mutant_named, mutants
from tests.simulation.mutants.spoiled import Edit, spoiled
from tests.simulation.run import Result, read_regressions, run
from tests.simulation.workloads import ALONE, WORKLOADS

SEEDS = 100  # `make test-all` runs 10,000, as a program
SHARES = 4  # of the seeds, each for one process; a share is large enough to meet every fault and workload
FEW_SEEDS = 6
FEWER_ZONES_SEEDS = (2, pytest.param(100, marks=pytest.mark.minutes))


def expect_no_failure(result: Result) -> None:
    if result.failure is not None:
        pytest.fail(explain(result), pytrace=False)


@pytest.mark.parametrize(("seed", "workload"), read_regressions())
def test_promises_hold_for_seeds_that_once_failed(seed: int, workload: str) -> None:
    expect_no_failure(run(seed, workload))


def test_promises_hold_for_mixed_workloads_in_a_few_runs() -> None:
    for seed in range(FEW_SEEDS):
        expect_no_failure(run(seed))


@pytest.mark.minutes
@pytest.mark.parametrize("share", range(SHARES))
def test_promises_hold_for_mixed_workloads_whatever_fails(share: int) -> None:
    counts: Counter[str] = Counter()
    workloads: set[str] = set()
    for seed in range(share, SEEDS, SHARES):
        result = run(seed)
        expect_no_failure(result)
        counts += result.faults
        counts["acknowledged"] += result.acknowledged
        counts["lost"] += result.lost
        workloads.update(result.workloads)
    # The runs were worth something: every kind of fault struck, every workload ran, and much was acknowledged.
    assert {fault.value for fault in Fault} <= counts.keys()
    assert workloads == set(WORKLOADS) - ALONE
    assert counts["acknowledged"] > 50 * SEEDS / SHARES
    assert counts["lost"] == 0


@pytest.mark.parametrize("seeds", FEWER_ZONES_SEEDS)
@pytest.mark.parametrize("profile", ["express2", "standard1"])
def test_promises_hold_for_mixed_workloads_when_there_are_fewer_zones(profile: str, seeds: int) -> None:
    acknowledged = 0
    for seed in range(seeds):
        result = run(seed, profile=profile)
        expect_no_failure(result)
        acknowledged += result.acknowledged
    assert acknowledged > 40 * seeds


def test_same_seed_gives_same_trace_when_run_twice() -> None:
    first, second = run(0), run(0)
    assert first.steps > 50
    assert list(map(format_entry, first.trace)) == list(map(format_entry, second.trace))
    assert replace(first, trace=[]) == replace(second, trace=[])


def test_same_seed_gives_same_trace_when_another_process_hashes_otherwise() -> None:
    program = "from tests.simulation.run import run; print(run(0).digest())"
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert len(digests[0].strip()) == 64


@pytest.mark.parametrize("mutant", [each for each in mutants() if each.first_seed is not None], ids=attrgetter("name"))
def test_simulator_finds_the_defect_when_one_is_put_in(mutant: Mutant) -> None:
    first = mutant.first_seed or 0
    _expect_found(mutant.find(range(first, first + SEEDS_MAX)))


@pytest.mark.minutes
@pytest.mark.parametrize("mutant", mutants(), ids=attrgetter("name"))
def test_simulator_finds_the_defect_when_no_seed_is_known_to_show_it(mutant: Mutant) -> None:
    _expect_found(mutant.find(range(SEEDS_MAX)))


@pytest.mark.parametrize("mutant", [each for each in mutants() if each.kind is not None], ids=attrgetter("name"))
def test_history_checker_finds_the_defect_when_the_judges_look_away(mutant: Mutant) -> None:
    _expect_found(mutant.find_anomaly(range(mutant.checked_seed, mutant.checked_seed + SEEDS_MAX)))


def test_mutant_is_refused_when_no_function_has_its_text() -> None:
    for edit in (Edit("append", "no such text", ""), Edit("no_such_function", "return", "")):
        with pytest.raises(LookupError), spoiled((edit,)):
            pass


def test_command_tells_how_to_replay_when_a_seed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    once_failed = [(6, "recreation"), (46, "traffic")]
    assert once_failed[0] in read_regressions()
    monkeypatch.setattr("tests.simulation.__main__.read_regressions", lambda: once_failed)
    with mutant_named("delete leaves heads").patched():
        found = CliRunner().invoke(main, ["--seeds", "0..3", "--workload", "recreation", "--json"])
    assert found.exit_code == 1
    summary = json.loads(found.stdout)
    assert summary["seeds"] == 3 + len(once_failed)
    assert summary["failures"][-1]["workloads"] == ["recreation"]
    first = summary["failures"][0]  # perhaps one of the seeds that once failed
    workloads = ",".join(first["workloads"])
    wanted = f"python -m tests.simulation --seed {first['seed']} --workload {workloads} --profile express3 --trace"
    assert wanted in found.stderr


def test_command_shows_the_whole_trace_when_asked() -> None:
    found = CliRunner().invoke(main, ["--seed", "1", "--workload", "traffic", "--trace"])
    assert found.exit_code == 0
    trace = [format_entry(entry) for entry in run(1, "traffic").trace]
    assert found.stdout.splitlines()[: len(trace)] == trace


@pytest.mark.parametrize("arguments", [[], ["--seeds", "5"], ["--seeds", "5..5"], ["--seed", "1", "--workload", "no"]])
def test_command_refuses_when_asked_for_nothing_it_knows(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == 2


def _expect_found(found: tuple[int, str] | None) -> None:
    assert found is not None
    # A mutant that patches a name or a signature that has changed since would fail every run, and show nothing.
    errors = ("AttributeError", "TypeError", "NameError", "ImportError", "RecursionError")
    assert not any(error in found[1] for error in errors), found[1]
