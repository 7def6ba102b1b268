import pytest

from penstock.errors import ConflictError, UnknownPartitionError
from penstock_import.copying.starts import StartSettings, first_positions
from penstock_import.source.records import PartitionBounds

_HELD = {0: PartitionBounds(5, 20), 1: PartitionBounds(0, 0)}


def test_first_copy_begins_at_the_oldest_records_and_where_the_user_says() -> None:
    assert first_positions(StartSettings(), "orders", _HELD, {}, {}) == {0: 5, 1: 0}
    assert first_positions(StartSettings(offsets={0: 9}), "orders", _HELD, {}, {}) == {0: 9, 1: 0}
    assert first_positions(StartSettings(offsets={0: 2}), "orders", _HELD, {}, {}) == {0: 5, 1: 0}


def test_later_copy_begins_at_its_notes() -> None:
    assert first_positions(StartSettings(), "orders", _HELD, {0: 7}, {0: 100}) == {0: 7, 1: 0}


@pytest.mark.parametrize(
    ("settings", "known", "ends", "message"),
    [
        (StartSettings(from_beginning=True), {0: 7}, {}, "go on without --from"),
        (StartSettings(), {}, {0: 3}, "holds 3 records, .* --append"),
        (StartSettings(), {0: 21}, {}, "ends at 20, below 21"),
    ],
)
def test_start_is_refused_when_it_would_lose_or_repeat_records(
    settings: StartSettings, known: dict[int, int], ends: dict[int, int], message: str
) -> None:
    with pytest.raises(ConflictError, match=message):
        first_positions(settings, "orders", _HELD, known, ends)


def test_start_is_refused_when_the_source_has_no_such_partition() -> None:
    with pytest.raises(UnknownPartitionError, match="--from 2=…: the source has the partitions 0 to 1"):
        first_positions(StartSettings(offsets={2: 0}), "orders", _HELD, {}, {})
