"""Fixtures of the tests in this folder."""

import pytest

from penstock_service.instance.instance import Instance
from tests.service.compaction.written_topic import written
from tests.support.service import (
    SteppedClock,
)


@pytest.fixture
def topic(instance: Instance, clock: SteppedClock) -> str:
    return written(instance, clock)
