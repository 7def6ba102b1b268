"""The contract of AuditStore, held by the adapters in memory, in SQLite and on DynamoDB."""

from dataclasses import replace

from penstock_core.audit.audit_entry import AuditId
from tests.contract.conftest import Ports
from tests.core.audit.test_audit_entry import ENTRY


def test_notes_are_kept_in_order_until_they_are_forgotten(ports: Ports) -> None:
    assert list(ports.audit.entries(10)) == []
    notes = [replace(ENTRY, audit_id=AuditId(f"{number:015}-00")) for number in (2, 1, 3)]
    for note in notes:
        ports.audit.put(note)
    second, first, third = notes
    assert list(ports.audit.entries(10)) == [first, second, third]
    assert list(ports.audit.entries(2)) == [first, second]
    ports.audit.put(replace(first, after={"partitions": 7}))
    assert ports.audit.entries(1)[0].after == {"partitions": 7}
    for _ in range(2):
        ports.audit.forget(first.audit_id)
    assert list(ports.audit.entries(10)) == [second, third]


def test_note_is_no_topic(ports: Ports) -> None:
    ports.audit.put(ENTRY)
    assert list(ports.topics.list()) == []
    assert list(ports.topics.deleted()) == []
