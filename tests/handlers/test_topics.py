"""What the routes of topics answer."""

from penstock_core.limits import UNLIMITED
from tests.handlers.service import Service


def test_topic_tells_the_retention_before_a_raise_as_long_as_it_is_noted(service: Service) -> None:
    service.create(retention_ms=60_000)
    assert "earlier_retention" not in service.call("GET", "/v1/topics/orders").json
    answer = service.call("PATCH", "/v1/topics/orders", {"config": {"retention_ms": UNLIMITED}}).json
    raised_ms = service.instance.clock.now_ms()
    assert answer["earlier_retention"]["retention_ms"] == 60_000
    assert raised_ms - 60_000 < answer["earlier_retention"]["before_ms"] <= raised_ms
    assert service.call("GET", "/v1/topics/orders").json["earlier_retention"] == answer["earlier_retention"]
