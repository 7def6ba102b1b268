import pytest

from penstock_core.errors import PenstockError
from penstock_core.limits import MIB
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.records.record_batch import parse_header
from tests.support.poison import bomb, undecodable_batch


def spend(budget: DecodeBudget, batch: bytes) -> int:
    return len(list(budget.decode(batch, parse_header(batch))))


def test_a_budget_is_spent_by_what_batches_hold_without_compression() -> None:
    budget = DecodeBudget(5 * MIB)
    for is_spent_before in (False, False, True):
        assert budget.is_spent is is_spent_before
        assert spend(budget, bomb(3 * MIB)) == 1


def test_a_batch_that_does_not_decompress_counts_as_what_it_may_have_taken() -> None:
    budget = DecodeBudget(64 * MIB)
    with pytest.raises(PenstockError, match="expands beyond"):
        spend(budget, bomb(65 * MIB))
    assert budget.is_spent


def test_a_small_batch_that_cannot_be_decoded_counts_little() -> None:
    budget = DecodeBudget(64 * MIB)
    for _ in range(1_000):
        with pytest.raises(PenstockError):
            spend(budget, undecodable_batch())
    assert not budget.is_spent


def test_a_reader_that_stops_early_has_spent_the_batch() -> None:
    budget = DecodeBudget(1)
    records = budget.decode(bomb(10), parse_header(bomb(10)))
    next(records)
    del records
    assert budget.is_spent
