"""The keeper, each minute: lets zones back that answer again, and catches them up until they are in sync."""

from typing import Any

from handlers.scheduled import scheduled_entry_point
from penstock_broker.broker import Broker
from penstock_broker.keep_zones import keep_zones

_BUDGET_MS = 40_000  # within the minute between two runs, so that they do not meet


def run(broker: Broker) -> dict[str, Any]:
    """What the run did; `mb_per_s` is what it copied, by its whole time. An alarm watches `zones_behind`."""
    kept = keep_zones(broker, _BUDGET_MS)
    done = kept.progress
    return {
        "let_back": list(kept.let_back),
        "in_sync": list(kept.in_sync),
        "zones_behind": len(kept.behind),
        "has_ended_pass": kept.has_ended_pass,
        "refs": done.refs,
        "segments": done.segments,
        "bytes": done.bytes,
        "failures": done.failures,
        "lost": done.lost,
        "duration_ms": round(kept.duration_ms, 1),
        "mb_per_s": round(done.bytes / 1_000 / max(kept.duration_ms, 1), 2),
    }


handler = scheduled_entry_point(run)
