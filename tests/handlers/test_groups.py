"""The group protocol over HTTP: fields in and out, errors, partial results."""

from typing import Any

import pytest

from penstock_core.records import frame
from penstock_service.adapters.memory.messages import MemoryWakeUps
from tests.handlers.service import Answer, Service, checked_error
from tests.support.service import with_stores

BEAT = "/v1/groups/billing/heartbeat"
OFFSETS = "/v1/groups/billing/offsets"


class Member:
    """Sends heartbeats with rising sequences."""

    def __init__(self, service: Service, member_id: str, **constant: object) -> None:
        self.service, self.member_id, self.constant = service, member_id, constant
        self.sequence = self.session = self.epoch = 0

    def beat(self, **fields: object) -> Any:
        answer = self.send(**fields)
        assert answer.status == 200, answer.body
        self.session, self.epoch = answer.json["session"], answer.json["epoch"]
        return answer.json

    def send(self, **fields: object) -> Any:
        self.sequence += 1
        known = {"epoch": self.epoch, "session": self.session}
        body = {"member_id": self.member_id, "sequence": self.sequence, **known, **self.constant, **fields}
        return self.service.call("POST", BEAT, body)

    def join(self) -> Any:
        return self.beat(subscription={"topics": ["orders"]})


def frame_header(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return frame.decode(answer.body)[0]["partitions"]


@pytest.fixture
def topic_id(service: Service) -> str:
    service.create("orders", 4)
    found: str = service.call("GET", "/v1/topics/orders").json["topic_id"]
    return found


def test_member_joins_reads_commits_hands_over_and_leaves(service: Service, topic_id: str) -> None:
    first, second = Member(service, "m-1", client_id="host"), Member(service, "m-2")
    told = first.join()
    epoch, epochs = told["epoch"], [lease["lease_epoch"] for lease in told["granted"]]
    assert {name: told[name] for name in told if name != "granted"} == {
        "epoch": epoch,
        "session": 1,
        "heartbeat_after_ms": 400,
        "is_young": True,
        "session_timeout_ms": 45_000,
        "is_complete": True,
        "revoked": {},
        "waiting": 0,
    }
    assert told["granted"] == [
        {
            "topic": "orders",
            "topic_id": topic_id,
            "partition": n,
            "lease_epoch": each,
            "offset": None,
            "metadata": "",
            "is_late": False,
        }
        for n, each in enumerate(epochs)
    ]
    assert second.join()["waiting"] == 2
    assert first.beat() == {**told, "granted": [], "is_complete": False, "heartbeat_after_ms": 0}
    told = first.beat(owned={topic_id: [0, 1, 2, 3]})
    assert (told["epoch"], told["is_complete"]) == (epoch + 1, False)
    [(revoked_id, revoked)] = told["revoked"].items()
    assert (revoked_id, len(revoked)) == (topic_id, 2)
    offsets = [
        {"topic": "orders", "partition": n, "offset": 5, "lease_epoch": epochs[n], "metadata": "x"} for n in revoked
    ]
    answer = service.call("POST", OFFSETS, {"member_id": "m-1", "offsets": offsets})
    assert answer.json == {"results": [{"topic": "orders", "partition": n} for n in revoked]}
    kept = sorted({0, 1, 2, 3} - set(revoked))
    assert first.beat(owned={topic_id: kept})["is_complete"]
    told = second.beat(owned={})
    assert [(each["partition"], each["lease_epoch"], each["offset"], each["metadata"]) for each in told["granted"]] == [
        (n, epochs[n] + 1, 5, "x") for n in sorted(revoked)
    ]
    assert first.beat(leave=True)["is_complete"]
    assert len(second.beat(owned={topic_id: revoked})["granted"]) == 2


def test_commit_tells_each_partition_why_it_did_not_count(service: Service, topic_id: str) -> None:
    epochs = [lease["lease_epoch"] for lease in Member(service, "m-1").join()["granted"]]
    offsets = [
        {"topic": "orders", "partition": 0, "offset": 5, "lease_epoch": epochs[0]},
        {"topic": "orders", "partition": 1, "offset": 5, "lease_epoch": epochs[1] + 1},
        {"topic": "orders", "partition": 9, "offset": 5, "lease_epoch": epochs[0]},
        {"topic": "orders", "partition": 2, "offset": 5},
    ]

    def commit(**fields: object) -> list[str | None]:
        answer = service.call("POST", OFFSETS, {"offsets": offsets, **fields})
        assert answer.status == 200
        errors = [result.get("error") for result in answer.json["results"]]
        return [error and checked_error(error)["code"] for error in errors]

    assert commit(member_id="m-1") == [None, "LEASE_FENCED", "UNKNOWN_PARTITION", "INVALID_REQUEST"]
    offsets = [{"topic": "orders", "partition": 0, "offset": 4, "lease_epoch": epochs[0]}]
    answer = service.call("POST", OFFSETS, {"member_id": "m-1", "offsets": offsets})
    assert answer.json["results"][0]["error"]["committed_offset"] == 5
    error = answer.json["results"][0]["error"]
    offsets[0]["back_from"] = {"offset": error["committed_offset"], "committed_at_ms": error["committed_at_ms"]}
    assert commit(member_id="m-1") == [None]
    offsets = [{"topic": "orders", "partition": 0, "offset": 0}]
    assert commit() == ["LEASE_HELD"]


def test_static_member_that_restarts_fences_its_older_process(service: Service, topic_id: str) -> None:
    old = Member(service, "p-1", instance_id="eu")
    before = old.join()
    new = Member(service, "p-2", instance_id="eu")
    told = new.join()
    assert told["epoch"] == before["epoch"]
    epochs = [lease["lease_epoch"] for lease in told["granted"]]
    assert epochs == [lease["lease_epoch"] + 1 for lease in before["granted"]]
    answer = old.send()
    assert (answer.status, answer.error["code"]) == (409, "MEMBER_FENCED")
    offsets = [{"topic": "orders", "partition": 0, "offset": 4, "lease_epoch": epochs[0]}]
    body = {"member_id": "p-2", "instance_id": "eu", "offsets": offsets}
    assert service.call("POST", OFFSETS, body).json == {"results": [{"topic": "orders", "partition": 0}]}


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"epoch": 0}, 400, "INVALID_REQUEST"),
        ({"epoch": "0"}, 400, "INVALID_REQUEST"),
        ({"epoch": 3}, 400, "INVALID_REQUEST"),
        ({"epoch": 3, "session": -1}, 400, "INVALID_REQUEST"),
        ({"epoch": 0, "subscription": {}, "unknown": 1}, 400, "INVALID_REQUEST"),
        ({"epoch": 0, "subscription": {"topic": ["orders"]}}, 400, "INVALID_REQUEST"),
        ({"epoch": 0, "subscription": {"patterns": ["^x"]}}, 400, "INVALID_NAME"),
        ({"epoch": 0, "subscription": {}, "sequence": 0}, 400, "INVALID_REQUEST"),
        ({"epoch": 0, "subscription": {}, "config": {"assignor": "x"}}, 400, "INVALID_CONFIG"),
        ({"epoch": 0, "subscription": {}, "client_id": "x" * 101}, 400, "INVALID_REQUEST"),
        ({"epoch": 0, "subscription": {}, "owned": {"t": [-1]}}, 400, "INVALID_REQUEST"),
        ({"epoch": 0, "subscription": {}, "member_id": "a b"}, 400, "INVALID_NAME"),
        ({"epoch": 0, "subscription": {}, "leave": True}, 400, "INVALID_REQUEST"),
        ({"epoch": 3, "session": 1}, 404, "UNKNOWN_MEMBER"),
        ({"epoch": 3, "leave": True}, 404, "UNKNOWN_MEMBER"),
    ],
)
def test_heartbeat_is_refused(service: Service, fields: dict[str, object], status: int, code: str) -> None:
    answer = Member(service, "m-1").send(**fields)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert service.call("GET", OFFSETS).json == {"offsets": [], "next_after": None}


def test_late_heartbeat_is_told_so(service: Service, topic_id: str) -> None:
    member = Member(service, "m-1")
    member.join()
    member.beat()
    answer = member.send(sequence=1)
    assert (answer.status, answer.error["code"]) == (409, "STALE_HEARTBEAT")


def test_operator_sees_the_group_resets_it_and_deletes_it(service: Service, topic_id: str) -> None:
    service.send(*[{"value": str(n), "partition": 0, "timestamp_ms": 1_000 + n} for n in range(5)])
    member = Member(service, "m-1", client_id="host")
    lease_epoch = member.join()["granted"][0]["lease_epoch"]
    offsets = [{"topic": "orders", "partition": 0, "offset": 4, "lease_epoch": lease_epoch, "metadata": "x"}]
    service.call("POST", OFFSETS, {"member_id": "m-1", "offsets": offsets})
    found = service.call("GET", "/v1/groups/billing").json
    assert service.call("GET", "/v1/groups").json["groups"][0].items() <= found.items()
    [shown] = found["members"]
    assert (
        shown.items() >= {"member_id": "m-1", "client_id": "host", "topics": ["orders"], "epoch": member.epoch}.items()
    )
    first = found["partitions"][0]
    assert {name: first[name] for name in ("partition", "assigned_to", "owner", "lease_epoch", "offset", "lag")} == {
        "partition": 0,
        "assigned_to": "m-1",
        "owner": "m-1",
        "lease_epoch": lease_epoch,
        "offset": 4,
        "lag": 1,
    }
    reset = {"topic": "orders", "partitions": [0, 9], "timestamp_ms": 1_002}
    answer = service.call("POST", "/v1/groups/billing/reset", reset)
    assert (answer.status, answer.error["code"]) == (409, "GROUP_NOT_EMPTY")
    for how in ({"dry_run": True}, {"force": True}):
        good, bad = service.call("POST", "/v1/groups/billing/reset", {**reset, **how}).json["partitions"]
        assert good == {"partition": 0, "old_offset": 4, "new_offset": 2}
        assert (bad["partition"], checked_error(bad["error"])["code"]) == (9, "UNKNOWN_PARTITION")
    assert member.send().error["code"] == "UNKNOWN_MEMBER"
    assert (
        service.call("PATCH", "/v1/groups/billing", {"config": {"assignor": "range"}}).json["config"]["assignor"]
        == "range"
    )
    assert service.call("DELETE", "/v1/groups/billing").status == 204
    answer = service.call("GET", "/v1/groups/billing")
    assert (answer.status, answer.error["code"]) == (404, "UNKNOWN_GROUP")


def test_heartbeat_answers_which_watched_partitions_are_armed(service: Service, topic_id: str) -> None:
    service.instance = with_stores(service.instance, wake_ups=MemoryWakeUps())
    member = Member(service, "m-1")
    member.join()
    partitions = [{"topic": "orders", "partition": number, "offset": 0} for number in (2, 0)]
    fetched = frame_header(service.call("POST", "/v1/fetch", {"partitions": partitions, "arm": True}))
    assert [(each["armed"], each["topic_partitions"]) for each in fetched] == [(True, 4)] * 2
    watched = [{"topic_id": topic_id, "partition": number, "offset": 0} for number in range(3)]
    assert member.beat(watched=watched)["armed"] == {topic_id: [0, 2]}
    assert member.beat(watched=[{**watched[0], "offset": 1}])["armed"] == {}
    assert "armed" not in member.beat()


@pytest.mark.parametrize(
    "fields",
    [
        {"watched": [{"topic_id": "0f3c", "partition": 0, "offset": 0}] * 2},
        {"watched": [{"topic_id": "0f3c", "partition": number, "offset": 0} for number in range(101)]},
        {"watched": [{"topic_id": "0f3c", "partition": 0}]},
        {"watched": [{"topic_id": "0f3c", "partition": 0, "offset": 0}], "leave": True},
    ],
)
def test_watched_partitions_are_refused(service: Service, topic_id: str, fields: dict[str, object]) -> None:
    member = Member(service, "m-1")
    member.join()
    assert member.send(**fields).error["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "body",
    [
        {"topic": "orders"},
        {"topic": "orders", "to": "earliest", "shift_by": 1},
        {"topic": "orders", "to": "middle"},
        {"topic": "orders", "offsets": {"00": 1}},
        {"topic": "orders", "offsets": {"0": -1}},
        {"to": "earliest"},
    ],
)
def test_reset_is_refused(service: Service, topic_id: str, body: dict[str, object]) -> None:
    answer = service.call("POST", "/v1/groups/billing/reset", body)
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")
