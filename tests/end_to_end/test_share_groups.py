"""Share groups on the deployed stack: every route under its own grants, the calls it costs, and the wake-up."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from penstock import Admin
from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, decode, encode
from tests.end_to_end.local_stack import NOW_MS, Stack
from tests.end_to_end.raw_requests import append, read_all, storage_calls
from tests.end_to_end.wake_up_reader import wake_up_reader
from tests.support.deadlines import until

pytestmark = pytest.mark.stack


class Workers:
    """A share group of one topic, and requests to it."""

    def __init__(self, transport: HttpTransport, topic: str) -> None:
        self._transport = transport
        self.topic = topic
        self.group = f"workers.{topic}"
        self.path = f"/v1/share-groups/{self.group}"

    def send(self, method: str, path: str = "", body: Mapping[str, Any] | None = None) -> Response:
        content = b"" if body is None else json.dumps(body).encode()
        return self._transport.call(method, self.path + path, {}, {}, content)

    def ok(self, method: str, path: str = "", body: Mapping[str, Any] | None = None) -> Any:
        answer = self.send(method, path, body)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    def create(self, **config: Any) -> Any:
        return self.ok("PUT", body={"topics": [self.topic], "config": config})

    def acquire(self, **wish: Any) -> Any:
        return self.ok("POST", "/records", wish)

    def acknowledge(self, records: Any, kind: str = "accept", **facts: Any) -> list[str]:
        """Acknowledges the records by their locks. The results in order."""
        locks = dict.fromkeys((record["topic"], record["partition"], record["lock_id"]) for record in records)
        entries = [
            {"topic": topic, "partition": partition, "lock_id": lock_id, "type": kind, **facts}
            for topic, partition, lock_id in locks
        ]
        found = self.ok("POST", "/acknowledge", {"acknowledge": entries})["acknowledged"]
        return [each["result"] for each in found]


@pytest.fixture
def workers(transport: HttpTransport, topic: str) -> Workers:
    return Workers(transport, topic)


def test_every_route_of_a_share_group_under_its_own_grants(workers: Workers, transport: HttpTransport) -> None:
    made = workers.create(lock_ms=5_000)
    for number in range(3):
        append(transport, workers.topic, f"v{number}".encode())
    records = workers.acquire(consumer_id="w1")["records"]
    assert [record["value"] for record in records] == ["v0", "v1", "v2"]
    assert workers.acknowledge(records[:1]) == ["ok"]
    assert workers.acknowledge(records[:1]) == ["done"]
    described = workers.ok("GET")
    assert described["share_group_id"] == made["share_group_id"]
    assert [each["lag"] for each in described["partitions"]] == [0, 0, 0]
    listed = json.loads(transport.call("GET", "/v1/share-groups", {}, {}, b"").body)["share_groups"]
    assert made["group"] in [each["group"] for each in listed]
    reset = workers.ok("POST", "/reset", {"topic": workers.topic, "to": "earliest"})["partitions"]
    assert [each["new_offset"] for each in reset] == [0, 0, 0]
    answer = workers.send("POST", "/acquire", {"max_records": 2})
    header, data = frame.decode(answer.body)
    partitions: Any = header["partitions"]
    assert [each["ranges"] for each in partitions] == [[[0, 2]]]
    assert [record.value for record in decode(data)] == [b"v0", b"v1"]
    assert workers.send("DELETE").status == 204
    assert workers.send("POST", "/records", {}).status == 404


def test_calls_of_a_busy_round_on_the_stack(workers: Workers, transport: HttpTransport) -> None:
    workers.create(start="latest")
    held: Any = []
    calls: list[dict[str, int]] = []
    for number in range(4):
        append(transport, workers.topic, b"x")
        entries = [{"topic": workers.topic, "partition": 0, "lock_id": each, "type": "accept"} for each in held]
        # A nonce that stays at the partition that it acknowledges (share/acquire/partitions_in_turn.py).
        body = {"nonce": f"calls-{number:03}", "acknowledge": entries}
        answer = workers.send("POST", "/records", body)
        assert answer.status == 200, answer.body
        held = [record["lock_id"] for record in json.loads(answer.body)["records"]]
        assert len(held) == 1
        calls.append(storage_calls(answer))
    assert calls[-1] == {"dynamodb.GetItem": 2, "dynamodb.UpdateItem": 1, "s3.GetObject": 1}, calls


def test_release_wakes_a_waiting_consumer(workers: Workers, transport: HttpTransport, stack: Stack) -> None:
    made = workers.create()
    append(transport, workers.topic, b"x")
    held = workers.acquire()["records"]
    place = json.loads(transport.call("GET", "/v1/wake-ups", {}, {}, b"").body)

    async def wait() -> tuple[str, Any]:
        async with wake_up_reader(stack, place) as reader:
            await reader.subscribe(f"/wake/{made['share_group_id']}/share")
            idle = await asyncio.to_thread(workers.acquire, arm=True)
            assert [each["armed"] for each in idle["watch"]] == [True, True, True]
            assert idle["records"] == []
            assert await asyncio.to_thread(workers.acknowledge, held, "release", delay_ms=0) == ["ok"]
            return await reader.event()

    _, event = asyncio.run(wait())
    assert (event["share_group_id"], event["partition"]) == (made["share_group_id"], 0)
    again = workers.acquire()["records"]
    assert [record["delivery_count"] for record in again] == [2]


def test_lock_that_nobody_acknowledges_comes_again(workers: Workers, transport: HttpTransport) -> None:
    workers.create(lock_ms=1_000, retry_backoff_ms_min=1, retry_backoff_ms_max=1)
    append(transport, workers.topic, b"x")
    [lost] = workers.acquire()["records"]
    found: list[Any] = []

    def comes_again() -> bool:
        found.extend(workers.acquire()["records"])
        return bool(found)

    until(comes_again)
    assert [record["delivery_count"] for record in found] == [2]
    assert workers.acknowledge([lost]) == ["LOCK_LOST"]
    assert workers.acknowledge(found) == ["ok"]


def test_rejected_record_goes_to_the_dead_letter_topic_and_comes_back(
    workers: Workers, transport: HttpTransport, admin: Admin
) -> None:
    dead = f"{workers.topic[:190]}.dead"
    admin.create_topic(dead, partitions=1)
    workers.create(dead_letter_topic=dead)
    for value in (b"good", b"bad"):
        append(transport, workers.topic, value)
    good, bad = workers.acquire()["records"]
    entry = {"topic": workers.topic, "partition": 0, "lock_id": bad["lock_id"]}
    answer = workers.ok(
        "POST",
        "/acknowledge",
        {
            "acknowledge": [
                {**entry, "offsets": [[good["offset"], good["offset"] + 1]], "type": "accept"},
                {**entry, "offsets": [[bad["offset"], bad["offset"] + 1]], "type": "reject", "reason": "bad"},
            ]
        },
    )
    assert [each["result"] for each in answer["acknowledged"]] == ["ok", "ok"]
    path = f"/v1/topics/{dead}/partitions/0/records"
    [letter] = json.loads(transport.call("GET", path, {}, {}, b"").body)["records"]
    headers = dict(letter["headers"])
    assert letter["value"] == "bad"
    assert headers["penstock.dead-letter.topic"] == workers.topic
    assert (headers["penstock.dead-letter.offset"], headers["penstock.dead-letter.reason"]) == ("1", "bad")
    assert [each["lag"] for each in workers.ok("GET")["partitions"]] == [0, 0, 0]
    back = [json.loads(transport.call("POST", f"/v1/topics/{dead}/redrive", {}, {}, b"{}").body) for _ in range(2)]
    assert [(each["moved"], each["remaining"], each["skipped"], each["cursor"]) for each in back] == [
        (1, 0, 0, None),
        (0, 0, 0, None),
    ]
    assert [record["value"] for record in workers.acquire()["records"]] == ["bad"]


def test_accepted_record_and_its_output_are_one_transaction(
    workers: Workers, transport: HttpTransport, admin: Admin
) -> None:
    bills = f"{workers.topic[:190]}.bills"
    admin.create_topic(bills, partitions=1)
    workers.create()
    append(transport, workers.topic, b"in")
    [record] = workers.acquire()["records"]
    begun = json.dumps({"transactional_id": workers.topic[:100]}).encode()
    producer = json.loads(transport.call("POST", "/v1/producers", {}, {}, begun).body)

    def commit(count: int) -> Response:
        data = encode([NewRecord(NOW_MS, None, b"out")])
        header = {
            "transactional_id": workers.topic[:100],
            "epoch": producer["epoch"],
            "transaction": producer["transaction"] + count,
            "batches": [{"topic": bills, "partition": 0, "length": len(data)}],
            "acknowledgements": [
                {"group": workers.group, "topic": workers.topic, "partition": 0, "lock_id": record["lock_id"]}
            ],
        }
        return transport.call("POST", "/v1/transactions", {}, {}, frame.encode(header, [data]))

    assert commit(0).status == 200
    refused = commit(1)
    assert (refused.status, json.loads(refused.body)["error"]["code"]) == (409, "LOCK_LOST")
    assert read_all(transport, bills) == [(0, b"out")]
    assert workers.acknowledge([record]) == ["done"]


def test_keys_stay_in_order_while_other_keys_go_ahead(workers: Workers, transport: HttpTransport) -> None:
    workers.create(ordering="key")
    records = [{"key": key, "value": f"{key}{number}", "partition": 0} for number in range(2) for key in ("a", "b")]
    body = json.dumps({"records": records}).encode()
    assert transport.call("POST", f"/v1/topics/{workers.topic}/records", {}, {}, body).status == 200
    first = workers.acquire(max_records=1)["records"]
    second = workers.acquire()["records"]
    assert [[record["value"] for record in each] for each in (first, second)] == [["a0"], ["b0"]]
    assert workers.acquire()["records"] == []
    assert workers.acknowledge(second) == ["ok"]
    assert [record["value"] for record in workers.acquire()["records"]] == ["b1"]
    assert workers.acknowledge(first) == ["ok"]
    assert [record["value"] for record in workers.acquire()["records"]] == ["a1"]
