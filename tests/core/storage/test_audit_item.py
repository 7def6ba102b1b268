from dataclasses import replace

import pytest

from penstock_core.audit.audit_entry import AuditEntry, AuditResult
from penstock_core.storage.audit_item import audit_item, audit_item_key, parse_audit_item
from tests.core.audit.test_audit_entry import ENTRY


@pytest.mark.parametrize(
    "entry", [ENTRY, replace(ENTRY, before=None, after=None, result=AuditResult.BEGUN), replace(ENTRY, name="")]
)
def test_entry_is_parsed_from_its_item(entry: AuditEntry) -> None:
    assert parse_audit_item(audit_item(entry)) == entry


def test_key_is_of_the_list_of_notes_and_sorts_by_time() -> None:
    assert audit_item_key(ENTRY.audit_id) == {"pk": {"S": "#audit"}, "sk": {"S": ENTRY.audit_id}}
