"""A few thousand policies; `python -m tests.fuzz filters` takes more of them."""

import pytest

from tests.fuzz.filters import fuzz_filters


@pytest.mark.parametrize("seed", range(1))
def test_policies_are_refused_or_match_as_they_read(seed: int) -> None:
    report = fuzz_filters(1_500, seed)
    assert report.broken == []
    assert report.taken > 100
