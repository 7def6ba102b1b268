"""What the routes of topics answer.

The lines of metrics that a function prints: of topics once a minute, and of consumers in each run of `measure`.

Lists in pages: every answer is one that Lambda can return, and the pages join to the whole.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import COMMIT_METADATA_BYTES_MAX, GROUP_PAGE_MAX, JSON_RESPONSE_BYTES_MAX, UNLIMITED
from penstock_core.metrics.lag_memory import OTHER, Consumer, ConsumerKind, TopicTraffic
from penstock_handlers.edge import lambda_function
from penstock_handlers.edge.http import bytes_in_envelope
from penstock_handlers.edge.lambda_function import observed
from penstock_handlers.edge.meters.traffic_meter import TrafficMeter, publish
from penstock_handlers.upkeep import run_measure, wish_of_environment
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.metrics.rank_topics import rank_topics
from tests.handlers.service import CONTEXT, Service
from tests.support.service import Intercepted, SteppedClock, filled_topic, new_topic, patient_instance, with_stores


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


MINUTE_MS = 60_000
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def instance(clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "penstock-dev")
    found = patient_instance(clock)
    found.traffic.is_on = True
    return found


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """The lines that were printed since the last call."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]


def test_line_has_the_stage_the_topic_and_a_unit_for_each_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "penstock-dev")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Penstock")
    publish("topic", "orders", {"records_received": 3, "bytes_received": 400}, 1_234)
    assert json.loads(capsys.readouterr().out) == {
        "_aws": {
            "Timestamp": 1_234,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Penstock",
                    "Dimensions": [["service", "topic"]],
                    "Metrics": [
                        {"Name": "records_received", "Unit": "Count"},
                        {"Name": "bytes_received", "Unit": "Bytes"},
                    ],
                }
            ],
        },
        "service": "penstock-dev",
        "topic": "orders",
        "records_received": 3,
        "bytes_received": 400,
    }


def test_line_without_values_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    publish("topic", "orders", {}, 1_234)
    assert capsys.readouterr().out == ""


def test_traffic_is_published_with_the_first_request_and_then_once_a_minute(
    instance: Instance, clock: SteppedClock, lines: Lines
) -> None:
    new_topic(instance)
    rank_topics(instance, 10)
    meter, one = TrafficMeter(), TopicTraffic(records_received=1)
    for wait_ms, published in ((0, [1]), (30_000, []), (29_999, []), (1, [3]), (MINUTE_MS, [1])):
        clock.time_ms += wait_ms
        instance.traffic.add("orders", one)
        meter.end(instance)
        assert [each["records_received"] for each in lines()] == published


def test_topics_without_a_place_share_one_line(instance: Instance, lines: Lines) -> None:
    new_topic(instance, "orders")
    rank_topics(instance, 1)
    for topic in ("orders", "clicks", "views"):
        instance.traffic.add(topic, TopicTraffic(bytes_sent=10))
    TrafficMeter().end(instance)
    assert {each["topic"]: each["bytes_sent"] for each in lines()} == {"orders": 10, OTHER: 20}


def test_last_choice_holds_when_it_cannot_be_read(instance: Instance, clock: SteppedClock, lines: Lines) -> None:
    new_topic(instance)
    rank_topics(instance, 10)
    meter = TrafficMeter()
    instance.traffic.add("orders", TopicTraffic(bytes_sent=10))
    meter.end(instance)
    lines()

    def fail(*_arguments: object) -> object:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")

    broken = with_stores(instance, cursors=Intercepted(instance.stores.cursors, get=fail))
    clock.time_ms += MINUTE_MS
    instance.traffic.add("orders", TopicTraffic(bytes_sent=20))
    meter.end(broken)
    assert [(each["topic"], each["bytes_sent"]) for each in lines()] == [("orders", 20)]


def test_function_publishes_the_traffic_of_its_requests(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setattr(lambda_function, "instance", lambda: instance)
    monkeypatch.setattr(lambda_function, "traffic_meter", TrafficMeter())
    monkeypatch.setattr(lambda_function.metrics.provider, "namespace", "Penstock")
    monkeypatch.setattr(lambda_function.metrics.provider, "service", "penstock")

    def serve(_event: object, to: Instance, _stopwatch: object) -> None:
        to.traffic.add("orders", TopicTraffic(requests_throttled=1, requests_failed=1))

    observed(serve)({}, CONTEXT)
    assert [(each["topic"], each["requests_throttled"]) for each in lines() if "topic" in each] == [(OTHER, 1)]


def test_measure_publishes_lag_and_age_of_a_group(
    instance: Instance, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setenv("PENSTOCK_METRICS", "all")
    monkeypatch.setenv("PENSTOCK_METRIC_SERIES", "10,20")
    filled_topic(instance, records=5)
    commit_offsets(instance, "billing", [CommitEntry(topic="orders", partition=0, offset=2)])
    clock.sleep_ms(90_000)
    assert run_measure(instance) == {
        "consumers_measured": 1,
        "consumers_published": 1,
        "topics_ranked": 1,
        "measurements_failed": 0,
        "measurement_unfinished": 0,
    }
    [line] = lines()
    assert (line["group"], line["records_waiting"], line["oldest_waited"]) == ("billing", 3, 90_000)
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["service", "group"]]


def test_wish_names_the_consumers_with_alarms() -> None:
    wish = wish_of_environment(
        {
            "PENSTOCK_METRICS": "all",
            "PENSTOCK_METRIC_SERIES": "5,7",
            "PENSTOCK_METRICS_ALWAYS": "group/billing,subscription/packing",
        }
    )
    assert (wish.topics_max, wish.consumers_max, wish.topics_only) == (5, 7, False)
    assert wish.always == [Consumer(ConsumerKind.GROUP, "billing"), Consumer(ConsumerKind.SUBSCRIPTION, "packing")]


PARTITIONS = 500
OFFSETS = "/v1/groups/billing/offsets"
GROUP = "/v1/groups/billing"


@pytest.fixture(params=['"', "\x01", "a"], ids=["quotes", "control characters", "letters"])
def billing(request: pytest.FixtureRequest, service: Service) -> Service:
    """A group whose offsets have as much metadata as a commit may have."""
    service.create("orders", PARTITIONS)
    for number in range(PARTITIONS):
        offset = {"topic": "orders", "partition": number, "offset": 0}
        offset["metadata"] = request.param * COMMIT_METADATA_BYTES_MAX
        assert service.call("POST", OFFSETS, {"offsets": [offset]}).json == {
            "results": [{"topic": "orders", "partition": number}]
        }
    return service


def _pages(service: Service, path: str, **query: str) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        answer = service.call("GET", path, **query, after=after)
        assert answer.status == 200, answer.body[:200]
        assert bytes_in_envelope(answer.body.decode()) < JSON_RESPONSE_BYTES_MAX + 1_000
        pages.append(answer.json)
        after = answer.json["next_after"]
    return pages


@pytest.mark.parametrize("query", [{}, {"topic": "orders"}, {"limit": "7"}])
def test_offsets_come_in_pages_that_lambda_can_return(billing: Service, query: dict[str, str]) -> None:
    found = [each for page in _pages(billing, OFFSETS, **query) for each in page["offsets"]]
    assert sorted(each["partition"] for each in found) == [*range(PARTITIONS)]
    assert {len(each["metadata"]) for each in found} == {COMMIT_METADATA_BYTES_MAX}


def test_description_comes_in_pages_that_lambda_can_return(billing: Service) -> None:
    found = _pages(billing, GROUP)
    assert sorted(each["partition"] for page in found for each in page["partitions"]) == [*range(PARTITIONS)]
    assert {page["group"] for page in found} == {"billing"}


def test_members_come_in_pages_before_partitions(service: Service) -> None:
    service.create("orders", 3)
    names = [f"{number:02}" + "\x01" * 80 for number in range(90)]
    for number in range(90):
        body = {
            "member_id": f"m{number:02}",
            "sequence": 1,
            "epoch": 0,
            "subscription": {"topics": ["orders", *names]},
        }
        assert service.call("POST", f"{GROUP}/heartbeat", body).status == 200
    found = _pages(service, GROUP)
    assert len(found) > 1
    assert [each["member_id"] for page in found for each in page["members"]] == [f"m{n:02}" for n in range(90)]
    assert {page["member_count"] for page in found} == {90}
    assert sorted(each["partition"] for page in found for each in page["partitions"]) == [0, 1, 2]
    assert not any(page["partitions"] for page in found[:-1])


@pytest.mark.parametrize("path", [OFFSETS, GROUP])
@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": str(GROUP_PAGE_MAX + 1)}, {"after": "x" * 250}, {"offset": "1"}]
)
def test_page_is_refused(service: Service, path: str, query: dict[str, str]) -> None:
    refused = service.call("GET", path, **query)
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/groups"])
def test_list_refuses_a_place_that_no_key_can_have(service: Service, path: str) -> None:
    refused = service.call("GET", path, after="x" * 250)
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")
