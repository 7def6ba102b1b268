import json
from dataclasses import replace

from penstock_core.audit.audit_entry import (
    AuditEntry,
    AuditResult,
    Caller,
    audit_key,
    audit_value,
    bounded_state,
    new_audit_id,
)
from penstock_core.limits import AUDIT_STATE_BYTES_MAX

ENTRY = AuditEntry(
    audit_id=new_audit_id(1_234, b"\x01" * 10),
    time_ms=1_234,
    caller=Caller(principal="arn:aws:iam::111122223333:role/ops", address="203.0.113.7", request_id="r1"),
    action="alter_topic",
    kind="topic",
    name="orders",
    before={"partitions": 1},
    after={"partitions": 2},
    result=AuditResult.DONE,
)


def test_record_has_who_what_and_both_states() -> None:
    assert audit_key(ENTRY) == b"topic/orders"
    assert json.loads(audit_value(ENTRY)) == {
        "audit_id": "000000000001234-01010101010101010101",
        "time_ms": 1_234,
        "principal": "arn:aws:iam::111122223333:role/ops",
        "address": "203.0.113.7",
        "request_id": "r1",
        "action": "alter_topic",
        "resource": {"kind": "topic", "name": "orders"},
        "before": {"partitions": 1},
        "after": {"partitions": 2},
        "result": "done",
    }


def test_ids_sort_by_time() -> None:
    assert new_audit_id(9, b"\xff" * 10) < new_audit_id(10, b"\x00" * 10)


def test_large_state_leaves_its_size() -> None:
    small = {"text": "x" * (AUDIT_STATE_BYTES_MAX - 12)}
    assert bounded_state(small) == small
    assert bounded_state({"text": "x" * AUDIT_STATE_BYTES_MAX}) == {"left_out_bytes": AUDIT_STATE_BYTES_MAX + 12}


def test_name_that_is_no_text_makes_a_record_all_the_same() -> None:
    assert b"\\ud800" in audit_value(replace(ENTRY, name="\ud800"))
    assert audit_key(replace(ENTRY, name="\ud800")) == b"topic/?"
