"""tests/long_tests.txt names tests that there are."""

from localstack.places import CHECKOUT
from tests.conftest import LONG_TESTS


def test_long_tests_are_tests_that_there_are() -> None:
    for line in LONG_TESTS.read_text().splitlines():
        path, _, name = line.partition("::")
        assert f"def {name.partition('[')[0]}" in (CHECKOUT / path).read_text(), line
