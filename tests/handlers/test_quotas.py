"""/v1/quotas, and what the quotas of principals and topics do to requests."""

import json
from typing import Any

import pytest

from penstock_core.acls.rule import parse_rule
from penstock_core.limits import JSON_RECORD_BYTES_MAX
from penstock_core.records import frame
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.acls.change_acls import change_acls
from tests.handlers.service import Service
from tests.support.poison import bomb
from tests.support.service import batch

SMALL = 2_000  # bytes a second, of which 800 may be spent at once


def put(service: Service, subject: str, name: str, **limits: int) -> Any:
    answer = service.call("PUT", "/v1/quotas", {"subject": subject, "name": name, "limits": limits})
    assert answer.status == 200, answer.body
    return answer.json


def spend(service: Service, topic: str = "orders") -> Any:
    """Produces batches until the service refuses one."""
    for _ in range(200):
        answer = service.produce((topic, 0, batch("x")))
        if answer.status != 200:
            return answer
    raise AssertionError("no quota refused 200 batches")


@pytest.fixture
def service(service: Service) -> Service:
    service.create("orders")
    service.create("other")
    return service


def test_quotas_are_set_listed_and_deleted(service: Service) -> None:
    assert put(service, "topic", "orders", fetch_bytes_per_s=5)["limits"] == {"fetch_bytes_per_s": 5}
    put(service, "principal", "*", produce_requests_per_s=7)
    first = service.call("GET", "/v1/quotas", limit="1").json
    assert [each["subject"] for each in first["quotas"]] == ["principal"]
    second = service.call("GET", "/v1/quotas", after=first["next_after"]).json
    assert ([each["name"] for each in second["quotas"]], second["next_after"]) == (["orders"], None)
    assert service.call("DELETE", "/v1/quotas", subject="topic", name="orders").status == 204
    again = service.call("DELETE", "/v1/quotas", subject="topic", name="orders")
    assert (again.status, again.json["error"]["code"]) == (404, "UNKNOWN_QUOTA")


def test_full_topic_refuses_records_by_both_ways_and_takes_the_largest_quota(service: Service) -> None:
    assert put(service, "topic", "or*", stored_bytes_max=10**15)["limits"] == {"stored_bytes_max": 10**15}
    assert service.produce(("orders", 0, batch("x"))).status == 200
    put(service, "topic", "orders", stored_bytes_max=0)
    error = service.produce(("orders", 0, batch("x")))
    assert (error.status, error.json["error"]["code"]) == (409, "QUOTA_EXCEEDED")
    body = {"records": [{"value": "x"}]}
    assert service.call("POST", "/v1/topics/orders/records", body).json["error"]["quota"] == "stored_bytes_max"


def test_team_shares_the_quota_of_a_pattern(service: Service) -> None:
    body = {"subject": "topic", "name": "o*", "limits": {"produce_bytes_per_s": SMALL}, "shared": True}
    service.create("others")
    assert service.call("PUT", "/v1/quotas", body).json == body
    assert service.call("GET", "/v1/quotas").json["quotas"] == [body]
    error = spend(service).json["error"]
    assert error["message"].startswith("the team of 'o*' has spent its quota produce_bytes_per_s")
    assert service.produce(("others", 0, batch("x"))).status == 429
    assert put(service, "topic", "o*", produce_bytes_per_s=SMALL)["shared"] is False
    assert service.produce(("others", 0, batch("x"))).status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"subject": "topic", "name": "t", "limits": {"fetch_bytes_per_s": 1}, "shared": True}, "give a pattern"),
        ({"subject": "group", "name": "g", "limits": {}}, "subject"),
        ({"subject": "topic", "name": "t", "limits": {}}, "give at least one limit"),
        ({"subject": "topic", "name": "t", "limits": {"fetch_bytes_per_s": 0}}, "fetch_bytes_per_s=0"),
        ({"subject": "topic", "name": "t", "limits": {"bytes": 1}}, "'bytes'"),
        ({"subject": "topic", "name": "t", "limits": {"stored_bytes_max": 10**15 + 1}}, "from 0 to 1000000000000000"),
        ({"subject": "topic", "name": "t*", "limits": {"stored_bytes_max": 1}, "shared": True}, "a topic holds"),
        ({"subject": "principal", "name": "*", "limits": {"stored_bytes_max": 1}}, "'stored_bytes_max'"),
        ({"subject": "topic", "name": "a/b", "limits": {"fetch_bytes_per_s": 1}}, "a/b"),
    ],
)
def test_wrong_quota_is_refused_with_the_value(service: Service, body: dict[str, Any], message: str) -> None:
    answer = service.call("PUT", "/v1/quotas", body)
    assert (answer.status, message in answer.json["error"]["message"]) == (400, True), answer.body


def test_produce_over_the_principals_quota_answers_429_and_stores_nothing(service: Service) -> None:
    put(service, "principal", LOCAL_PRINCIPAL, produce_bytes_per_s=SMALL)
    answer = spend(service)
    assert answer.status == 429
    assert int(answer.headers["Retry-After"]) >= 1
    error = answer.json["error"]
    assert (error["code"], error["maybe_applied"], error["quota"]) == ("THROTTLED", False, "produce_bytes_per_s")
    before = service.call("GET", "/v1/topics/orders").json["partitions"]
    assert service.produce(("orders", 0, batch("x"))).status == 429
    assert service.call("GET", "/v1/topics/orders").json["partitions"] == before


def test_json_produce_spends_the_same_quota(service: Service) -> None:
    put(service, "principal", LOCAL_PRINCIPAL, produce_bytes_per_s=SMALL)
    spend(service)
    refused = service.call("POST", "/v1/topics/orders/records", {"records": [{"value": "x"}]})
    assert (refused.status, refused.json["error"]["code"]) == (429, "THROTTLED")


def test_default_holds_for_a_principal_without_a_quota_and_own_quota_goes_before_it(service: Service) -> None:
    put(service, "principal", "*", produce_bytes_per_s=1)
    put(service, "principal", LOCAL_PRINCIPAL, produce_bytes_per_s=1_000_000)
    assert all(service.produce(("orders", 0, batch("x"))).status == 200 for _ in range(20))
    service.call("DELETE", "/v1/quotas", subject="principal", name=LOCAL_PRINCIPAL)
    assert spend(service).status == 429


def test_topic_over_its_quota_fails_alone_beside_its_neighbour(service: Service) -> None:
    put(service, "topic", "orders", produce_bytes_per_s=SMALL)
    assert spend(service).status == 429
    results = service.produce(("orders", 0, batch("x")), ("other", 0, batch("x"))).json["results"]
    assert results[0]["error"]["code"] == "THROTTLED"
    assert results[0]["error"]["retry_after_ms"] > 0
    assert "base_offset" in results[1]


def test_fetch_over_the_quota_answers_429_after_a_fetch_that_owes(service: Service) -> None:
    for _ in range(30):
        service.produce(("orders", 0, batch("x")))
    put(service, "principal", LOCAL_PRINCIPAL, fetch_bytes_per_s=100)
    wanted = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}
    assert service.call("POST", "/v1/fetch", wanted).status == 200
    refused = service.call("POST", "/v1/fetch", wanted)
    assert (refused.status, refused.json["error"]["quota"]) == (429, "fetch_bytes_per_s")
    in_json = service.call("GET", "/v1/topics/orders/partitions/0/records")
    assert in_json.status == 429


def test_requests_are_counted_too(service: Service) -> None:
    put(service, "topic", "orders", fetch_requests_per_s=10)
    wanted = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}
    statuses = [service.call("POST", "/v1/fetch", wanted).status for _ in range(8)]
    assert statuses[0] == 200
    assert statuses[-1] == 429


def test_acquire_over_the_quota_answers_429_and_locks_nothing(service: Service) -> None:
    for _ in range(30):
        service.produce(("orders", 0, batch("x")))
    service.call("PUT", "/v1/share-groups/workers", {"topics": ["orders"], "config": {"start": "earliest"}})
    put(service, "principal", LOCAL_PRINCIPAL, fetch_bytes_per_s=100)
    wish = {"consumer_id": "w", "max_records": 5}
    first = service.call("POST", "/v1/share-groups/workers/records", wish)
    assert (first.status, len(first.json["records"])) == (200, 5)
    before = service.call("GET", "/v1/share-groups/workers").json["partitions"]
    assert service.call("POST", "/v1/share-groups/workers/records", wish).status == 429
    assert service.call("GET", "/v1/share-groups/workers").json["partitions"][0]["in_flight"] == before[0]["in_flight"]


def wanted(*topics: str) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": 0, "offset": 0} for topic in topics]


def test_fetch_of_a_topic_over_its_quota_fails_alone(service: Service) -> None:
    for topic in ("orders", "other"):
        service.produce((topic, 0, batch("x")))
    put(service, "topic", "orders", fetch_bytes_per_s=10)
    service.fetch(*wanted("orders", "other"))
    results, batches = service.fetch(*wanted("orders", "other"))
    assert results[0]["error"]["code"] == "THROTTLED"
    assert [len(data) > 0 for data in batches] == [False, True]
    assert service.call("POST", "/v1/fetch", {"partitions": wanted("orders")}).status == 429


def test_refusal_by_a_topic_spends_nothing_of_the_principals_quota(service: Service) -> None:
    put(service, "topic", "orders", produce_bytes_per_s=1, fetch_requests_per_s=1)
    put(service, "principal", LOCAL_PRINCIPAL, produce_bytes_per_s=2_000, fetch_requests_per_s=20)
    service.produce(("orders", 0, batch("x")))
    service.call("POST", "/v1/fetch", {"partitions": wanted("orders")})
    for _ in range(60):
        assert service.produce(("orders", 0, batch("x"))).json["error"]["subject"] == "topic"
        refused = service.call("POST", "/v1/fetch", {"partitions": wanted("orders")})
        assert (refused.status, refused.json["error"]["subject"]) == (429, "topic")
    assert service.produce(("other", 0, batch("x"))).status == 200
    assert service.call("POST", "/v1/fetch", {"partitions": wanted("other")}).status == 200


def test_fetch_that_is_refused_for_its_rights_spends_no_quota(service: Service) -> None:
    put(service, "principal", LOCAL_PRINCIPAL, fetch_requests_per_s=1)
    change_acls(service.instance, [parse_rule(LOCAL_PRINCIPAL, "read", "topic:orders", "deny")], [])
    for _ in range(9):
        results, _batches = service.fetch(*wanted("orders"))
        assert results[0]["error"]["code"] == "NOT_AUTHORIZED"
    service.fetch(*wanted("other"))


WORKERS = "/v1/share-groups/workers"


@pytest.mark.parametrize("form", ["records", "acquire"])
def test_acknowledgement_is_taken_from_a_consumer_over_its_quota(service: Service, form: str) -> None:
    """Its lock would end, and the record come again, and spend the quota once more."""
    for _ in range(9):
        service.produce(("orders", 0, batch("x")))
    service.call("PUT", WORKERS, {"topics": ["orders"], "config": {"start": "earliest"}})
    put(service, "principal", LOCAL_PRINCIPAL, fetch_bytes_per_s=10)
    records = service.call("POST", f"{WORKERS}/records", {"max_records": 5}).json["records"]
    accepted = [
        {"topic": "orders", "partition": 0, "lock_id": lock_id, "type": "accept", "offsets": None}
        for lock_id in {each["lock_id"] for each in records}
    ]
    answer = service.call("POST", f"{WORKERS}/{form}", {"max_records": 5, "acknowledge": accepted})
    assert answer.status == 200, answer.body
    told: Any = answer.json if form == "records" else frame.decode(answer.body)[0]
    assert {each["result"] for each in told["acknowledged"]} == {"ok"}
    assert told["next_available_ms"] > 0
    [partition] = service.call("GET", WORKERS).json["partitions"]
    assert (partition["in_flight"], partition["start_offset"]) == (0, 5)


NONE = {"type": ["yes"]}  # a filter that takes none of the records
UNTAKEN: dict[str, tuple[Any, ...]] = {
    "fetch": ("POST", "/v1/fetch", {"partitions": wanted("orders"), "filter": NONE}),
    "JSON": ("GET", "/v1/topics/orders/partitions/0/records", None),
    "acquire": ("POST", f"{WORKERS}/acquire", {"max_records": 100}),
    "acquire in JSON": ("POST", f"{WORKERS}/records", {"max_records": 100}),
}


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("form", UNTAKEN)
def test_records_that_a_filter_does_not_take_spend_the_quota(service: Service, form: str, ordering: str) -> None:
    for _ in range(30):
        service.produce(("orders", 0, batch("x")))
    config = {"start": "earliest", "filter": NONE, "ordering": ordering}
    service.call("PUT", WORKERS, {"topics": ["orders"], "config": config})
    put(service, "topic", "orders", fetch_bytes_per_s=1_000)
    query = {"filter": json.dumps(NONE)} if form == "JSON" else {}
    assert service.call(*UNTAKEN[form], **query).status == 200
    refused = service.call(*UNTAKEN["fetch"])
    assert (refused.status, refused.json["error"]["quota"]) == (429, "fetch_bytes_per_s")


def test_acquire_that_ends_in_a_record_too_large_spends_the_quota(service: Service) -> None:
    service.produce(("orders", 0, bomb(JSON_RECORD_BYTES_MAX)))
    service.call("PUT", WORKERS, {"topics": ["orders"], "config": {"start": "earliest"}})
    put(service, "principal", LOCAL_PRINCIPAL, fetch_bytes_per_s=100)
    too_large = service.call("POST", f"{WORKERS}/records", {"max_records": 5})
    assert too_large.json["error"]["code"] == "RECORD_TOO_LARGE"
    refused = service.call("POST", f"{WORKERS}/records", {"max_records": 5})
    assert (refused.status, refused.json["error"]["quota"]) == (429, "fetch_bytes_per_s")


def test_share_group_goes_on_with_topics_that_are_within_their_quotas(service: Service) -> None:
    for topic in ("orders", "other"):
        service.produce((topic, 0, batch("x")))
    service.call("PUT", WORKERS, {"topics": ["orders", "other"], "config": {"start": "earliest"}})
    put(service, "topic", "orders", fetch_requests_per_s=1)
    service.call("POST", "/v1/fetch", {"partitions": wanted("orders")})
    first = service.call("POST", f"{WORKERS}/records", {"max_records": 9})
    assert {each["topic"] for each in first.json["records"]} == {"other"}
    empty = service.call("POST", f"{WORKERS}/records", {"max_records": 9}).json
    assert empty["records"] == []
    assert 0 < empty["next_available_ms"] <= 60_000, "a worker must not sleep until a wake-up that does not come"
    named = service.call("POST", f"{WORKERS}/records", {"max_records": 9, "topics": ["other"]})
    assert named.status == 200


def test_transaction_over_a_topics_quota_spends_nothing(service: Service) -> None:
    begun = service.call("POST", "/v1/producers", {"transactional_id": "ledger"}).json
    put(service, "topic", "orders", produce_bytes_per_s=1)
    put(service, "topic", "other", produce_bytes_per_s=400)
    put(service, "principal", LOCAL_PRINCIPAL, produce_bytes_per_s=2_000)
    service.produce(("orders", 0, batch("x")))
    data = batch("x")
    batches = [{"topic": topic, "partition": 0, "length": len(data)} for topic in ("other", "orders")]
    header = {"transactional_id": "ledger", "epoch": 0, "transaction": begun["transaction"], "batches": batches}
    for _ in range(30):
        refused = service.call("POST", "/v1/transactions", frame.encode(header, [data, data]))
        assert (refused.status, refused.json["error"]["subject"]) == (429, "topic")
    assert service.produce(("other", 0, batch("x"))).status == 200


CREATIONS: dict[str, tuple[str, str, Any]] = {
    "topics_max": ("POST", "/v1/topics", {"name": "new"}),
    "partitions_max": ("PATCH", "/v1/topics/orders", {"partitions": 2}),
    "groups_max": ("POST", "/v1/groups/new/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}),
    "subscriptions_max": ("PUT", "/v1/subscriptions/new", {"topics": ["orders"], "target": {"topic": "other"}}),
}
JOIN = {"member_id": "m", "sequence": 1, "epoch": 0, "subscription": {"topics": ["orders"]}}
OTHER_GROUPS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/groups/new/heartbeat", JOIN),
    ("PUT", "/v1/share-groups/new", {"topics": ["orders"]}),
    ("POST", "/v1/groups/new/reset", {"topic": "orders", "to": "earliest"}),
    ("PATCH", "/v1/groups/new", {"config": {"heartbeat_interval_ms": 6_000}}),
    (
        "PUT",
        "/v1/groups/new/document",
        {"version": None, "protocol_type": "connect", "member_count": 0, "document": ""},
    ),
]


@pytest.mark.parametrize(("limit", "creation"), [*CREATIONS.items(), *(("groups_max", each) for each in OTHER_GROUPS)])
def test_creation_above_a_count_is_refused_and_makes_nothing(
    service: Service, limit: str, creation: tuple[str, str, Any]
) -> None:
    put(service, "principal", LOCAL_PRINCIPAL, **{limit: 0})
    refused = service.call(*creation)
    assert refused.status == 409, refused.body
    error = refused.json["error"]
    assert (error["code"], error["quota"], error["maybe_applied"]) == ("QUOTA_EXCEEDED", limit, False)
    assert service.call("GET", "/v1/topics/orders").json["partitions"] == 1
    for path in ("/v1/groups/new", "/v1/share-groups/new", "/v1/subscriptions/new", "/v1/topics/new"):
        assert service.call("GET", path).status == 404
    put(service, "principal", LOCAL_PRINCIPAL, **{limit: 3})
    assert service.call(*creation).status in (200, 201)


def test_offsets_of_a_transaction_make_no_group_above_the_count(service: Service) -> None:
    put(service, "principal", LOCAL_PRINCIPAL, groups_max=0)
    begun = service.call("POST", "/v1/producers", {"transactional_id": "ledger"}).json
    offsets = [{"group": "new", "topic": "orders", "partition": 0, "offset": 0}]
    header = {"transactional_id": "ledger", "epoch": begun["epoch"], "transaction": begun["transaction"]}
    commit = frame.encode({**header, "batches": [], "offsets": offsets}, [])
    refused = service.call("POST", "/v1/transactions", commit)
    assert (refused.status, refused.json["error"]["code"]) == (409, "QUOTA_EXCEEDED")
    assert service.call("GET", "/v1/groups").json["groups"] == []
    put(service, "principal", LOCAL_PRINCIPAL, groups_max=1)
    assert service.call("POST", "/v1/transactions", commit).status == 200
    assert "new" in {each.name for each in service.instance.stores.quotas.claims(LOCAL_PRINCIPAL)}


def test_begin_of_a_producer_spends_a_request(service: Service) -> None:
    put(service, "principal", LOCAL_PRINCIPAL, produce_requests_per_s=2)
    statuses = [
        service.call("POST", "/v1/producers", {"transactional_id": f"id{number}"}).status for number in range(5)
    ]
    assert statuses[0] == 200
    assert statuses[-1] == 429


def test_deleted_resource_makes_room(service: Service) -> None:
    put(service, "principal", LOCAL_PRINCIPAL, topics_max=2)
    assert service.call("POST", "/v1/topics", {"name": "new"}).status == 409
    assert service.call("DELETE", "/v1/topics/other").status == 204
    assert service.call("POST", "/v1/topics", {"name": "new"}).status == 201


def test_service_without_quotas_charges_nothing(service: Service) -> None:
    for _ in range(5):
        service.produce(("orders", 0, batch("x")))
    assert service.instance.stores.quotas.list() == []
    assert service.instance.telemetry.take()[0]["quota_uncharged"] == 0
