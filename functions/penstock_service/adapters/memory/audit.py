"""AuditStore in memory."""

import threading
from collections.abc import Sequence

from penstock_core.audit.audit_entry import AuditEntry, AuditId


class MemoryAuditStore:
    """AuditStore: the port documents its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[AuditId, AuditEntry] = {}

    def put(self, entry: AuditEntry) -> None:
        with self._lock:
            self._entries[entry.audit_id] = entry

    def entries(self, limit: int) -> Sequence[AuditEntry]:
        with self._lock:
            return [self._entries[each] for each in sorted(self._entries)[:limit]]

    def forget(self, audit_id: AuditId) -> None:
        with self._lock:
            self._entries.pop(audit_id, None)
