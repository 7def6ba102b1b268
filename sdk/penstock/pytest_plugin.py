"""The fixture `penstock_service`: a service in memory for each test, closed after it with the clients that it made.

Name the module once, in the `conftest.py` at the top of your tests:

    pytest_plugins = ["penstock.pytest_plugin"]

pytest does not load it by itself: a plugin that comes with the package would be imported in each test run of each
project that only sends a record somewhere.
"""

from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock

__all__ = ["penstock_service"]


@pytest.fixture
def penstock_service() -> Iterator[MemoryPenstock]:
    """A service in memory, empty at first. `advance` moves its clock."""
    with MemoryPenstock() as service:
        yield service
