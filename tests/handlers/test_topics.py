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


def test_offset_of_a_record_tells_where_it_lies(orders: Service) -> None:
    orders.send({"value": "a", "partition": 0}, {"value": "b", "partition": 0})
    orders.send({"value": "c", "partition": 0})
    path = "/v1/topics/orders/offsets"
    [found] = orders.call("GET", path, partition="0", offset="1").json["offsets"]
    place = found.pop("place")
    assert (found["partition"], found["offset"], found["timestamp_ms"]) == (0, 1, None)
    assert (place["start_offset"], place["end_offset"], place["kind"]) == (0, 2, "zonal")
    assert len(place["zones"]) >= 2
    assert (len(place["segment"]), place["position"], place["length"] > 0) == (32, 0, True)
    assert place["producer_id"] is None
    wrong: tuple[tuple[dict[str, str], str], ...] = (
        ({"offset": "1"}, "INVALID_REQUEST"),
        ({"partition": "0", "offset": "3"}, "OFFSET_OUT_OF_RANGE"),
        ({"partition": "99", "offset": "0"}, "UNKNOWN_PARTITION"),
        ({"partition": "0", "offset": "-1"}, "INVALID_REQUEST"),
    )
    for query, code in wrong:
        assert orders.call("GET", path, **query).json["error"]["code"] == code, query
