"""Which partition is hot, and what helps."""

import pytest

from penstock.api.topic_heat import advice, hot_partitions, judged

KEYS = [b"%d" % number for number in range(400)]


@pytest.mark.parametrize(
    ("records", "hot"),
    [
        ({0: 1_000, 1: 100, 2: 100}, [0]),
        ({0: 199, 1: 100, 2: 100}, []),
        ({0: 200, 1: 100, 2: 100}, [0]),
        ({0: 99, 1: 0}, []),
        ({0: 100, 1: 0}, [0]),
        ({0: 5_000}, []),
        ({0: 0, 1: 0}, []),
        ({0: 600, 1: 700, 2: 10, 3: 10}, [1, 0]),
    ],
)
def test_partition_is_hot_when_it_gets_twice_what_the_others_get(records: dict[int, int], hot: list[int]) -> None:
    assert hot_partitions(records) == hot


def test_advice_goes_by_the_keys_of_the_hottest_partition() -> None:
    assert "Nothing to do" in advice("t", 4, [])
    assert "One key makes 75%" in advice("t", 4, [judged(2, 500, [b"a"] * 3 + [b"b"])])
    assert "have no key" in advice("t", 4, [judged(2, 500, [None, None, None, b"b"])])
    assert advice("t", 4, [judged(2, 500, KEYS)]).endswith("penstock topics alter t --partitions 8")
