import pytest

from tests.fuzz.broken_batches import BatchFuzzer
from tests.fuzz.decoders import compare_decoders


@pytest.mark.parametrize(
    "count", [pytest.param(1_000, id="few"), pytest.param(100_000, id="many", marks=pytest.mark.minutes)]
)
def test_the_sdk_and_spark_read_the_same_records_and_refuse_the_same_batches(count: int) -> None:
    report = compare_decoders(count, seed=12)
    assert report.differing == []
    assert 0.1 * count < report.refused < 0.9 * count  # the inputs are neither all broken nor all sound


def test_the_same_seed_makes_the_same_batches() -> None:
    assert [BatchFuzzer(3).batches() for _ in range(20)] == [BatchFuzzer(3).batches() for _ in range(20)]


def test_a_decoder_that_takes_longer_integers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: the fast decoder cuts a long integer instead of leaving it to the codec."""

    def cut(data: bytes, position: int) -> tuple[int, int]:
        return data[position] >> 1, position + 1

    monkeypatch.setattr("penstock_spark.decode.headers._varint", cut)
    assert compare_decoders(1_000, seed=12).differing
