"""The task `audit`, each five minutes: moves the notes of changes into the topic `_audit`."""

import os
from typing import Any

from penstock_service.audit.settle_audit import settle_audit
from penstock_service.instance.instance import Instance

BUDGET_MS = 40_000  # less than the time to the next run


def run(instance: Instance) -> dict[str, Any]:
    """Moves notes for `BUDGET_MS`. Reads `PENSTOCK_AUDIT_RETENTION_MS`, which the topic gets."""
    done = settle_audit(instance, int(os.environ["PENSTOCK_AUDIT_RETENTION_MS"]), budget_ms=BUDGET_MS)
    return {
        "changes_settled": done.settled,
        "changes_begun": done.begun,
        "audit_unfinished": int(not done.is_finished),
    }
