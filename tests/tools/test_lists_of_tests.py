"""tests/long_tests.txt and slow_tests.txt name tests that there are."""

from localstack.places import CHECKOUT
from tests.conftest import LISTS


def test_lists_name_tests_that_there_are() -> None:
    for line in {line for lines in LISTS.values() for line in lines}:
        path, _, name = line.partition("::")
        assert (f"def {name.partition('[')[0]}" if name else "def test_") in (CHECKOUT / path).read_text(), line
