"""Transactions through the API: frames in, JSON out, and what is wrong with them named."""

import json
from typing import Any

import pytest

from penstock_core.ids import TransactionalId
from penstock_core.records import frame
from penstock_handlers.router import dispatch
from tests.handlers.service import Answer, Service
from tests.support.service import batch


@pytest.fixture
def orders(service: Service) -> Service:
    service.create("orders", partitions=2)
    return service


def begin(service: Service, transactional_id: str = "ledger") -> dict[str, Any]:
    answer = service.call("POST", "/v1/producers", {"transactional_id": transactional_id})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def next_number(service: Service) -> int:
    state = service.instance.stores.transactions.get(TransactionalId("ledger"))
    return 0 if state is None else state.number + 1


def transact(service: Service, *batches: tuple[str, int, bytes], **header: Any) -> Answer:
    """The next transaction of `ledger`, unless the header says otherwise."""
    fields = {"transactional_id": "ledger", "epoch": 0, "transaction": next_number(service)} | header
    if batches:
        fields["batches"] = [
            {"topic": topic, "partition": partition, "length": len(data)} for topic, partition, data in batches
        ]
    return service.call("POST", "/v1/transactions", frame.encode(fields, [data for _, _, data in batches]))


def test_new_instance_gets_the_next_epoch(orders: Service) -> None:
    first, second = begin(orders), begin(orders)
    assert (first["epoch"], second["epoch"], second["transaction"]) == (0, 1, first["transaction"])
    assert first["producer_id"] == second["producer_id"]
    assert begin(orders, "other")["producer_id"] != first["producer_id"]


def test_commit_answers_where_the_records_are(orders: Service) -> None:
    begin(orders)
    assert transact(orders, ("orders", 0, batch("a")), stage=0).json == {}
    offsets = [{"group": "readers", "topic": "orders", "partition": 1, "offset": 0}]
    answer = transact(orders, ("orders", 0, batch("b", "c")), ("orders", 1, batch("d")), stages=1, offsets=offsets)
    assert answer.json == {
        "results": [
            {"topic": "orders", "partition": 0, "base_offset": 0, "next_offset": 3},
            {"topic": "orders", "partition": 1, "base_offset": 0, "next_offset": 1},
        ]
    }
    committed = orders.call("GET", "/v1/groups/readers/offsets").json["offsets"]
    assert [(each["partition"], each["offset"]) for each in committed] == [(1, 0)]


def test_transaction_accepts_shared_records(orders: Service) -> None:
    begin(orders)
    orders.send({"value": "in", "partition": 0})
    assert orders.call("PUT", "/v1/share-groups/workers", {"topics": ["orders"]}).status == 200
    [record] = orders.call("POST", "/v1/share-groups/workers/records", {}).json["records"]
    accepted = {"group": "workers", "topic": "orders", "partition": 0, "lock_id": record["lock_id"]}
    assert transact(orders, ("orders", 1, batch("out")), acknowledgements=[accepted]).status == 200
    answer = transact(orders, ("orders", 1, batch("more")), acknowledgements=[accepted])
    assert (answer.status, answer.error["code"]) == (409, "LOCK_LOST")
    assert [each["value"] for each in orders.read(partition=1)["records"]] == ["out"]
    for wrong in ({**accepted, "type": "release"}, {**accepted, "lock_id": 5}, {"group": "workers"}):
        answer = transact(orders, acknowledgements=[wrong])
        assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("header", "status", "code", "told"),
    [
        ({"epoch": 1}, 409, "PRODUCER_FENCED", "epoch 0 has begun since"),
        ({"transaction": 2**62}, 409, "OUT_OF_ORDER_SEQUENCE", " must come first"),
        ({"transactional_id": "nobody"}, 409, "PRODUCER_FENCED", "nothing is known of it"),
        ({"transactional_id": "a b"}, 400, "INVALID_NAME", "'a b'"),
        ({"acks": "leader"}, 400, "INVALID_REQUEST", "acks='leader'"),
        ({"stages": 65}, 400, "INVALID_REQUEST", "stages=65"),
        ({"stage": 64}, 413, "TRANSACTION_TOO_LARGE", "stage 64"),
        ({"stage": 0, "offsets": []}, 400, "INVALID_REQUEST", "'offsets' goes with the commit"),
        ({"epoch": -1}, 400, "INVALID_REQUEST", "epoch=-1"),
        ({"what": 1}, 400, "INVALID_REQUEST", "'what'"),
        ({"offsets": [{"group": "g"}]}, 400, "INVALID_REQUEST", "'topic'"),
        ({"offsets": [{"group": "g", "topic": "orders", "partition": 0, "offset": 0, "member_id": "m"}]},
         400, "INVALID_REQUEST", "lease_epoch"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_transaction_is_refused_and_leaves_nothing(
    orders: Service, header: dict[str, Any], status: int, code: str, told: str
) -> None:
    begin(orders)
    answer = transact(orders, ("orders", 0, batch("a")), **header)
    assert (answer.status, answer.error["code"]) == (status, code), answer.body
    assert told in json.dumps(answer.error["message"])
    path = "/v1/topics/orders/partitions/0/records"
    assert orders.call("GET", path, b"", offset="0").json["records"] == []


@pytest.mark.parametrize("body", [b"[]", {"transactional_id": 5}, {}, {"transactional_id": "x", "epoch": 1}])
def test_wrong_beginning_is_refused(orders: Service, body: object) -> None:
    answer = orders.call("POST", "/v1/producers", body)
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")


NONCE = "0123456789abcdef" * 2


def test_begin_with_a_nonce_and_the_last_epoch_is_recognised(orders: Service) -> None:
    first = orders.call("POST", "/v1/producers", {"transactional_id": "ledger", "nonce": NONCE}).json
    assert first["last_nonce"] == ""
    assert orders.call("POST", "/v1/producers", {"transactional_id": "ledger", "nonce": NONCE}).json == first
    assert transact(orders, ("orders", 0, batch("a")), nonce="f" * 32).status == 200
    begun = {"transactional_id": "ledger", "producer_id": first["producer_id"], "epoch": first["epoch"]}
    second = orders.call("POST", "/v1/producers", begun).json
    assert (second["epoch"], second["transaction"]) == (1, first["transaction"] + 1)
    assert second["last_nonce"] == "f" * 32
    fenced = orders.call("POST", "/v1/producers", begun)
    assert (fenced.status, fenced.error["code"], fenced.error["last_nonce"]) == (409, "PRODUCER_FENCED", "f" * 32)


@pytest.mark.parametrize("nonce", ["", "0" * 31, "0" * 33, "G" * 32, "F" * 32, 7, "\u0660" * 32])
def test_nonce_that_is_none_is_refused(orders: Service, nonce: object) -> None:
    answer = orders.call("POST", "/v1/producers", {"transactional_id": "ledger", "nonce": nonce})
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")
    assert "nonce" in answer.error["message"]
    assert len(answer.error["message"]) < 300


OPERATOR = "arn:aws:iam::111122223333:user/operator"
ROLE = "arn:aws:sts::111122223333:assumed-role/ledger/"


def call_as(service: Service, principal_arn: str, path: str, fields: object) -> tuple[int, dict[str, Any]]:
    body = json.dumps(fields).encode() if fields else b""
    status, _, content = dispatch("POST", path, {}, {}, body, service.instance, principal_arn)
    return status, json.loads(content)


def test_id_belongs_to_the_role_whatever_its_session(orders: Service) -> None:
    wish = {"transactional_id": "ledger"}
    assert call_as(orders, f"{ROLE}i-0abc", "/v1/producers", wish)[0] == 200
    assert call_as(orders, f"{ROLE}i-0def", "/v1/producers", wish)[1]["epoch"] == 1
    for stranger in (ROLE.replace("ledger", "other"), "arn:aws:iam::111122223333:user/ledger"):
        status, answer = call_as(orders, stranger, "/v1/producers", wish)
        assert (status, answer["error"]["code"]) == (403, "ACCESS_DENIED")
        assert "'ledger'" in answer["error"]["message"]
    assert call_as(orders, OPERATOR, "/v1/producers/ledger/release", None) == (200, {})
    assert call_as(orders, ROLE.replace("ledger", "other"), "/v1/producers", wish)[1]["epoch"] == 2
    assert call_as(orders, f"{ROLE}i-0abc", "/v1/producers", wish)[0] == 403


def test_release_of_an_id_that_never_began_is_refused(orders: Service) -> None:
    assert call_as(orders, OPERATOR, "/v1/producers/nobody/release", None)[0] == 404
    assert call_as(orders, OPERATOR, "/v1/producers/a%20b/release", None)[0] == 400
    assert call_as(orders, OPERATOR, "/v1/producers/ledger/release", {"force": True})[0] == 400
