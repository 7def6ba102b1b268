"""The port of the audit trail. `penstock_service.ports` says what all methods raise."""

from collections.abc import Sequence
from typing import Protocol

from penstock_core.audit.audit_entry import AuditEntry, AuditId


class AuditStore(Protocol):
    """The notes of changes that are not in the topic `_audit` yet. Reads are consistent."""

    def put(self, entry: AuditEntry) -> None:
        """Stores the note, in place of the one with its id. One put."""

    def entries(self, limit: int) -> Sequence[AuditEntry]:
        """The `limit` oldest notes, the oldest first. One query."""

    def forget(self, audit_id: AuditId) -> None:
        """Removes the note, if it is there. One delete."""
