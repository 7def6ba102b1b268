"""The row that calls each function for a noun that it serves: IAM's conditions on items meet no emulator.

A function whose role is too narrow answers 503 here, and `denied calls in the logs` names the call.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.doctor.recorder import Exchange
from penstock.http.http_message import JSON_TYPE
from penstock.producer.producer import Producer
from penstock.prove.proof import Emulator, Proof, ProofRow, ruled
from penstock.prove.proven_stage import ProvenStage, error_of

_RECORDS = 5
_ROUND = Counter({"dynamodb.GetItem": 2, "dynamodb.UpdateItem": 1, "s3.GetObject": 1})


class _Calls:
    """Calls one after the other, and which of them failed."""

    def __init__(self, stage: ProvenStage) -> None:
        self._stage = stage
        self.count = 0
        self.failed: list[str] = []

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str) -> dict[str, Any]:
        """The document of the answer, empty if it is none."""
        return self.exchange(method, path, body, **query)[1]

    def exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str
    ) -> tuple[Exchange, dict[str, Any]]:
        data = b"" if body is None else json.dumps(body).encode()
        made = self._stage.transport.exchange(method, path, query, {"Content-Type": JSON_TYPE}, data)
        self.count += 1
        if not 200 <= made.response.status < 300:
            self.failed.append(f"{method} {path}: {made.response.status} {error_of(made)}")
            return made, {}
        return made, json.loads(made.response.body or b"{}")


def nouns(stage: ProvenStage) -> Proof:
    """Records in JSON, a group, a share group and what operators list; a transaction on a stage of the run's own."""
    topic = stage.new_topic()
    calls = _Calls(stage)
    for number in range(_RECORDS):
        calls.send("POST", f"/v1/topics/{topic}/records", {"records": [{"value": str(number)}]})
    read = calls.send("GET", f"/v1/topics/{topic}/partitions/0/records", offset="0")
    _use_group(stage, calls, topic)
    rounds = [Counter(each.storage_calls) - _ROUND for each in _use_share_group(stage, calls, topic)]
    for noun in ("topics", "groups", "share-groups", "subscriptions", "quotas", "zones", "acls"):
        calls.send("GET", f"/v1/{noun}")
    if stage.is_own:  # elsewhere the transactional id would stay for 90 days
        with Producer(transport=stage.transport, transactional_id=topic) as producer, producer.transaction() as both:
            both.send(topic, b"2")
    more = min(rounds, key=Counter.total)  # one acquire in 16 looks elsewhere first, which takes a write more
    values = [each.get("value") for each in read.get("records", ())]
    fact = f"{calls.count - len(calls.failed)} of {calls.count} calls were answered well, {len(values)} records read"
    fact += f"; {'; '.join(calls.failed[:3])}" if calls.failed else ""
    fact += f"; a round of the share group makes {dict(more)} too much" if more else ""
    is_so = not calls.failed and values == [*map(str, range(_RECORDS))] and not more
    return ruled(is_so, fact, calls=calls.count, failed=len(calls.failed), round_calls_too_many=more.total())


def _use_group(stage: ProvenStage, calls: _Calls, name: str) -> None:
    stage.leftovers.note("group", name)
    offset = {"topic": name, "partition": 0, "offset": 1}
    calls.send("POST", f"/v1/groups/{name}/offsets", {"offsets": [offset]})
    calls.send("GET", f"/v1/groups/{name}/offsets")
    calls.send("GET", f"/v1/groups/{name}")
    stage.leftovers.undo("group", name)


def _use_share_group(stage: ProvenStage, calls: _Calls, name: str) -> list[Exchange]:
    """Takes each record with an acquire that accepts the one before it. Returns those acquires."""
    stage.leftovers.note("share_group", name)
    calls.send("PUT", f"/v1/share-groups/{name}", {"topics": [name], "config": {"start": "earliest"}})
    found = calls.send("POST", f"/v1/share-groups/{name}/records", {"max_records": 1})
    rounds = []
    for _ in range(_RECORDS - 1):
        body = {"max_records": 1, "acknowledge": [_accepted(each) for each in found.get("records", ())]}
        made, found = calls.exchange("POST", f"/v1/share-groups/{name}/records", body)
        rounds.append(made)
    calls.send("GET", f"/v1/share-groups/{name}")
    stage.leftovers.undo("share_group", name)
    return rounds


def _accepted(record: Mapping[str, Any]) -> dict[str, Any]:
    """The acknowledgement that a record is done."""
    offsets = [[record["offset"], record["offset"] + 1]]
    return {**{name: record[name] for name in ("topic", "partition", "lock_id")}, "offsets": offsets, "type": "accept"}


def noun_rows() -> list[ProofRow]:
    """The row."""
    return [
        ProofRow(
            name="calls of each noun",
            expects="each is answered well; a round of a share group makes 2 reads, 1 write and 1 GET of S3 at most",
            ask=nouns,
            usd_max=0.005,
            seconds_max=30,
            emulator=Emulator.RUNS,
        )
    ]
