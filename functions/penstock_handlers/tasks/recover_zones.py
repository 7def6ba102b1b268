"""The task `recover_zones`, each minute: readmits zones that answer again, and catches them up until in sync."""

from typing import Any

from penstock_service.instance.instance import Instance
from penstock_service.repair.recover_zones import recover_zones

BUDGET_MS = 40_000  # runs start a minute apart. Two that meet are safe: each change compares versions


def run(instance: Instance) -> dict[str, Any]:
    """Recovers zones for `BUDGET_MS` at most.

    `mb_per_s` is the copied bytes over the duration of the whole run. An alarm watches `zones_behind`.
    """
    recovered = recover_zones(instance, BUDGET_MS)
    done = recovered.progress
    return {
        "readmitted": list(recovered.readmitted),
        "in_sync": list(recovered.in_sync),
        "zones_behind": len(recovered.behind),
        "has_ended_pass": recovered.has_ended_pass,
        "refs": done.refs,
        "segments": done.segments,
        "bytes": done.bytes,
        "failures": done.failures,
        "lost": done.lost,
        "duration_ms": round(recovered.duration_ms, 1),
        "mb_per_s": round(done.bytes / 1_000 / max(recovered.duration_ms, 1), 2),
    }
