"""Empty tables in memory."""

import pytest

from tests.service.adapters.tables.calls import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()
