"""A run that fails is shrunk to a short one that fails in the same way."""

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.simulation.__main__ import main
from tests.simulation.engine.reduction import NOTHING, Reduction, parse_reduction
from tests.simulation.mutants.mutant import Mutant, mutant_named
from tests.simulation.run import Result, run
from tests.simulation.shrink import kind_of, shrink

_SHARE_MAX = 1 / 3  # of the steps of the run that failed


def _failed(mutant: Mutant, workloads: str) -> Result:
    return next(found for seed in range(40) if (found := run(seed, workloads)).failure is not None)


@pytest.fixture(params=["delete leaves heads", "armed by a waiter alone"])
def mutant(request: pytest.FixtureRequest) -> Iterator[Mutant]:
    found = mutant_named(request.param)
    with found.patched():
        yield found


def test_shrink_gives_a_third_of_the_trace_when_a_mutant_fails(mutant: Mutant) -> None:
    failed = _failed(mutant, f"traffic,{mutant.workload},commits")
    shrunk = shrink(failed).result
    assert shrunk.steps <= failed.steps * _SHARE_MAX
    assert kind_of(shrunk.failure or "") == kind_of(failed.failure or "")
    again = run(shrunk.seed, ",".join(shrunk.workloads), reduction=parse_reduction(str(shrunk.reduction)))
    assert (again.failure, again.digest()) == (shrunk.failure, shrunk.digest())


def test_shrink_takes_no_more_runs_than_allowed(mutant: Mutant) -> None:
    failed = _failed(mutant, mutant.workload)
    assert shrink(failed, runs_max=0).result is failed
    assert shrink(failed, runs_max=3).runs == 3


def test_promises_hold_when_a_run_is_reduced() -> None:
    whole = run(0)
    for reduction in (
        Reduction(faults_max=3),
        Reduction(no_faults=frozenset({"late effect", "lost answer"})),
        Reduction(ends_ms=whole.ended_ms // 3),
    ):
        assert run(0, reduction=reduction).failure is None, reduction


def test_reduction_leaves_out_faults_when_told() -> None:
    whole = run(1, "traffic")
    assert whole.struck
    assert not run(1, "traffic", reduction=Reduction(faults_max=0)).struck
    assert run(1, "traffic", reduction=Reduction(ends_ms=50.0)).steps < whole.steps


def test_reduction_reads_back_its_text() -> None:
    reduction = Reduction(
        faults_max=3, no_faults=frozenset({"slow", "late effect"}), ends_ms=12.5, no_clients=frozenset({10, 2})
    )
    assert parse_reduction(str(reduction)) == reduction
    assert parse_reduction("") == NOTHING
    for text in ("faults", "faults_max=x", "other=1", "no_clients=1,x"):
        with pytest.raises(ValueError):
            parse_reduction(text)


def test_kind_of_a_failure_leaves_out_names_and_numbers() -> None:
    assert kind_of("offset 3 of ab1#0 is lost: {'a': 1}") == kind_of("offset 14 of cd2#1 is lost: {}")
    assert kind_of("wr1 sleeps") != kind_of("wr1 ends")


def test_command_shows_a_shorter_run_when_a_seed_fails(mutant: Mutant) -> None:
    failed = _failed(mutant, mutant.workload)
    arguments = ["--seed", str(failed.seed), "--workload", mutant.workload]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 1
    assert "A shorter run that fails like this" in shown.stdout
    replayed = re.findall(
        r"--seed (\d+) --workload (\S+) --profile \S+(?: --reduction \"(.*)\")? --trace", shown.stdout
    )
    seed, workload, reduction = replayed[-1]
    again = run(int(seed), workload, reduction=parse_reduction(reduction))
    assert again.failure is not None
    assert again.steps < failed.steps
    assert "A shorter run" not in CliRunner().invoke(main, [*arguments, "--no-shrink"]).stdout


def test_command_refuses_when_a_reduction_is_none() -> None:
    assert CliRunner().invoke(main, ["--seed", "1", "--reduction", "no"]).exit_code == 2
