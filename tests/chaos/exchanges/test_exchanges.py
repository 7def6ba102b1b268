"""Requests of share consumers, of delays and of transactions leave in the history what they asked and were told."""

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.errors import ConnectionFailedError
from penstock.http.http_message import Response
from penstock_core.ids import LockId, Offset
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_codec import client_lock_id
from penstock_core.share.share_state import Lock
from tests.chaos.clients.values import made_from, made_of, make_value
from tests.chaos.exchanges.exchange import history_ns
from tests.chaos.exchanges.shares import acknowledges
from tests.chaos.recording import RecordingTransport
from tests.chaos.test_tormenting import Answering
from tests.history.format import Acknowledge, AckResult, Acquired, Cancel, MicroOp, Schedule, Send, Verb
from tests.history.model.operations import Operation, read_operations
from tests.history.recorder import Recorder

TASKS = ("tasks", 0)


def recorded(method: str, path: str, body: bytes, answer: Response | Exception) -> list[Operation]:
    """The operations that one request leaves."""
    stream = io.BytesIO()
    transport = RecordingTransport(Answering(answer), Recorder(stream), "p")
    try:
        transport.call(method, path, {}, {}, body)
    except ConnectionFailedError:
        assert isinstance(answer, Exception)
    return [*read_operations(stream.getvalue().splitlines())]


def ok(document: Mapping[str, Any], *batches: bytes) -> Response:
    return Response(200, {}, frame.encode(document, batches) if batches else json.dumps(document).encode())


def entry(kind: str, offsets: Any = None, **more: Any) -> dict[str, Any]:
    return {"topic": "tasks", "partition": 0, "lock_id": "n.0", "offsets": offsets, "type": kind, **more}


def told(result: str, offsets: Any = None) -> dict[str, Any]:
    return {"topic": "tasks", "partition": 0, "lock_id": "n.0", "offsets": offsets, "result": result}


def acknowledged(asked: list[dict[str, Any]], answer: Response | Exception) -> tuple[str, tuple[MicroOp, ...]]:
    body = json.dumps({"acknowledge": asked}).encode()
    [operation] = recorded("POST", "/v1/share-groups/pool/acknowledge", body, answer)
    assert (operation.group, operation.function) == ("pool", "acknowledge")
    return operation.outcome, operation.ops


def test_acquire_tells_its_locks_and_only_the_records_in_their_ranges() -> None:
    batch = encode([NewRecord(1, None, make_value(name)) for name in ("a", "b", "c")])
    lock = {"lock_id": "n.1", "delivery_count": 2, "until_ms_left": 900, "ranges": [[0, 1], [2, 3]]}
    partition = {"topic": "tasks", "partition": 0, "length": len(batch), **lock}
    answer = ok({"partitions": [partition], "acknowledged": [told("ok")]}, batch)
    body = json.dumps({"nonce": "n", "acknowledge": [entry("accept")]}).encode()
    [operation] = recorded("POST", "/v1/share-groups/pool/acquire", body, answer)
    assert (operation.group, operation.outcome) == ("pool", "ok")
    assert operation.ops == (
        Acknowledge(TASKS, "n.0", Verb.ACCEPT, None, AckResult.OK),
        Acquired(TASKS, "n.1", 2, 900, ((0, "a"), (2, "c"))),
    )


def test_acquire_of_a_partition_that_failed_tells_no_lock() -> None:
    error = {"code": "STORAGE_UNAVAILABLE", "message": "away"}
    answer = ok({"partitions": [{"topic": "tasks", "partition": 0, "error": error}], "acknowledged": []}, b"")
    [operation] = recorded("POST", "/v1/share-groups/pool/acquire", b"{}", answer)
    assert (operation.outcome, operation.ops) == ("ok", ())


def test_acknowledgement_in_parts_has_the_result_of_each_part() -> None:
    answer = ok({"acknowledged": [told("ok", [[1, 3]]), told("LOCK_LOST", [[3, 5]])]})
    assert acknowledged([entry("accept", [[1, 5]])], answer) == (
        "ok",
        (
            Acknowledge(TASKS, "n.0", Verb.ACCEPT, ((1, 3),), AckResult.OK),
            Acknowledge(TASKS, "n.0", Verb.ACCEPT, ((3, 5),), AckResult.LOST),
        ),
    )


def test_two_acknowledgements_of_a_lock_have_the_results_of_their_own_offsets() -> None:
    answer = ok({"acknowledged": [told("ok", [[1, 2]]), told("done", [[2, 3]]), told("done", [[3, 4]])]})
    asked = [entry("accept", [[1, 3]]), entry("release", [[3, 4]], uncounted=True)]
    assert acknowledged(asked, answer)[1] == (
        Acknowledge(TASKS, "n.0", Verb.ACCEPT, ((1, 2),), AckResult.OK),
        Acknowledge(TASKS, "n.0", Verb.ACCEPT, ((2, 3),), AckResult.DONE),
        Acknowledge(TASKS, "n.0", Verb.GIVE_BACK, ((3, 4),), AckResult.DONE),
    )


def test_acknowledgements_of_the_same_offsets_have_each_their_own_results() -> None:
    """A worker renews a lock, gives back a record of another one, and accepts what stood behind that: it is lost."""
    lock = Lock(Offset(0), 9, 1, RecordSet(((40, 42), (43, 44))))
    name = client_lock_id(LockId("n.0"), lock, 0)
    asked = [{**entry("renew"), "lock_id": name}, {**entry("accept", [[40, 42]]), "lock_id": name}]
    results = [("ok", [[40, 42]]), ("LOCK_LOST", [[43, 44]]), ("ok", [[41, 42]]), ("LOCK_LOST", [[40, 41]])]
    answer = ok({"acknowledged": [{**told(*each), "lock_id": name} for each in results]})
    assert acknowledged(asked, answer)[1] == (
        Acknowledge(TASKS, "n.0", Verb.RENEW, ((40, 42),), AckResult.OK, 3_000),
        Acknowledge(TASKS, "n.0", Verb.RENEW, ((43, 44),), AckResult.LOST, 3_000),
        Acknowledge(TASKS, "n.0", Verb.ACCEPT, ((41, 42),), AckResult.OK),
        Acknowledge(TASKS, "n.0", Verb.ACCEPT, ((40, 41),), AckResult.LOST),
    )


def test_result_that_nobody_asked_for_ends_the_run() -> None:
    with pytest.raises(AssertionError, match="nobody asked"):
        acknowledged([entry("accept", [[1, 2]])], ok({"acknowledged": [told("ok", [[1, 2]]), told("ok", [[1, 2]])]}))


@pytest.mark.parametrize(
    ("asked", "verb", "detail"),
    [
        (entry("renew"), Verb.RENEW, 3_000),
        (entry("renew", lock_ms=500), Verb.RENEW, 500),
        (entry("reject", reason="bad"), Verb.REJECT, "bad"),
        (entry("reject", reason=""), Verb.REJECT, None),
        (entry("release", uncounted=False), Verb.RELEASE, None),
    ],
)
def test_acknowledgement_without_an_answer_is_a_maybe_with_what_it_asked(
    asked: dict[str, Any], verb: Verb, detail: object
) -> None:
    outcome, ops = acknowledged([asked], ConnectionFailedError("reset", maybe_applied=True))
    assert (outcome, ops) == ("info", (Acknowledge(TASKS, "n.0", verb, None, None, detail),))  # type: ignore[arg-type]


def produce(*entries: Mapping[str, Any]) -> bytes:
    """A request with the record "v<n>" in each entry."""
    batches = [encode([NewRecord(0, b"k", make_value(f"v{index}"))]) for index in range(len(entries))]
    told = [
        {"topic": "later", "partition": 1, "length": len(batch), **each}
        for each, batch in zip(entries, batches, strict=True)
    ]
    return frame.encode({"acks": "all", "batches": told}, batches)


def test_delayed_records_of_a_request_are_schedules_with_their_ids() -> None:
    due_ms = 1_800_000_000_000
    body = produce({"deliver_at_ms": due_ms, "timer_id": "ab"}, {})
    delayed, plain = recorded("POST", "/v1/produce", body, ok({"results": [{"scheduled_id": "x"}, {"base_offset": 7}]}))
    assert (delayed.function, delayed.ops) == (
        "schedule",
        (Schedule(("later", 1), "v0", history_ns(due_ms), f"1-{due_ms}-ab"),),
    )
    assert (plain.function, plain.ops) == ("send", (Send(("later", 1), "v1", 7, None, "k"),))


def test_commit_is_one_operation_with_sources_delays_and_acceptances() -> None:
    effect = made_of("w", "tasks", 0, 41)
    batch = encode([NewRecord(0, None, make_value(effect))])
    delayed = encode([NewRecord(0, None, make_value("later"))])
    header = {
        "acks": "quorum",
        "batches": [
            {"topic": "effects", "partition": 0, "length": len(batch)},
            {"topic": "later", "partition": 0, "length": len(delayed), "deliver_at_ms": 5, "timer_id": "ab"},
        ],
        "acknowledgements": [
            {"group": "movers", "topic": "tasks", "partition": 0, "lock_id": "n.0", "offsets": [[41, 42]]}
        ],
    }
    answer = ok({"results": [{"topic": "effects", "partition": 0, "base_offset": 9, "next_offset": 10}]})
    [operation] = recorded("POST", "/v1/transactions", frame.encode(header, [batch, delayed]), answer)
    assert (operation.function, operation.group) == ("txn", "movers")
    assert operation.ops == (
        Acknowledge(TASKS, "n.0", Verb.ACCEPT, ((41, 42),)),
        Send(("effects", 0), effect, 9, ("tasks", 0, 41, "")),
        Schedule(("later", 0), "later", 0, "0-5-ab"),
    )


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "ok"), (409, "fail"), (500, "info")], ids=["done", "too late", "unknown"]
)
def test_cancel_is_an_operation_of_its_own(status: int, outcome: str) -> None:
    error = {"code": "TIMER_SETTLED", "message": "delivered", "maybe_applied": status == 500}
    answer = Response(status, {}, json.dumps({"error": error}).encode())
    [operation] = recorded("DELETE", "/v1/topics/later/scheduled/1-5-ab", b"", answer)
    assert (operation.outcome, operation.ops) == (outcome, (Cancel("later", "1-5-ab"),))


def test_names_tell_what_a_record_was_made_from() -> None:
    assert made_from(made_of("w.1", "tasks", 2, 7)) == ("tasks", 2, 7, "")
    assert made_from("task-7") is None


def test_lock_keeps_its_name_when_its_lock_id_changes_with_each_part() -> None:
    entry = {"topic": "t", "partition": 0, "type": "accept", "offsets": [[0, 1]], "lock_id": "nonce-01.0~AAAB~1bef"}
    later = {**entry, "offsets": [[1, 2]], "lock_id": "nonce-01.0~AQEB~1bef"}
    assert {each.lock_id for each in acknowledges([entry, later])} == {"nonce-01.0"}
