"""Transactions, gateways that die, moves, second instances, lost and late requests in any order."""

from unittest.mock import patch

import pytest

from penstock.testing import MemoryPenstock
from tests.kafka.transactions.desk import run
from tests.kafka.transactions.mutants import MUTANTS, Mutant
from tests.kafka.transactions.programs import TOPIC, run_seed

STEPS = 90


def _run(seed: int) -> None:
    with MemoryPenstock() as service:
        service.create_topic(TOPIC, partitions=2)
        run(run_seed(service, seed, STEPS))


@pytest.mark.parametrize("seed", range(4))
def test_each_item_is_there_once_and_whole(seed: int) -> None:
    _run(seed)


@pytest.mark.minutes
@pytest.mark.parametrize("seed", range(100, 300))
def test_each_item_is_there_once_and_whole_for_many_seeds(seed: int) -> None:
    _run(seed)


@pytest.mark.minutes
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_seed_finds_the_defect(mutant: Mutant) -> None:
    with patch.object(mutant.place, mutant.attribute, mutant.defect):
        for seed in range(100, 300):
            try:
                _run(seed)
            except AssertionError:
                return
    raise AssertionError(f"no seed finds: {mutant.name}")
