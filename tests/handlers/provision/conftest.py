import pytest

from penstock_handlers.edge import lambda_function
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.topics.create_topic import create_topic
from tests.handlers.provision.template import Template
from tests.support.service import SteppedClock


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def to(clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Instance:
    found = memory_instance(clock=clock)
    monkeypatch.setattr(lambda_function, "instance", lambda: found)
    monkeypatch.setattr(lambda_function.metrics.provider, "namespace", "Penstock")
    monkeypatch.setattr(lambda_function.metrics.provider, "service", "penstock")
    return found


@pytest.fixture
def topic(to: Instance) -> Template:
    return Template(to, "Topic")


@pytest.fixture
def group(to: Instance) -> Template:
    create_topic(to, "orders", 2, {})
    return Template(to, "ShareGroup")


@pytest.fixture
def schedule(to: Instance) -> Template:
    create_topic(to, "orders", 2, {})
    return Template(to, "Schedule")


@pytest.fixture
def subscription(to: Instance) -> Template:
    create_topic(to, "orders", 2, {})
    create_topic(to, "mirror", 1, {})
    return Template(to, "Subscription")
