import pytest

from penstock_service.instance.instance import Instance
from tests.support.service import SteppedClock, patient_instance


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def instance(clock: SteppedClock) -> Instance:
    return patient_instance(clock)
