"""The scheduled function `scrub`: reads a part of all copies with each run, and heals what is missing or bad."""

import os
from dataclasses import asdict
from typing import Any

from handlers.scheduled import scheduled_entry_point
from penstock_broker.broker import Broker
from penstock_broker.scrub import scrub


def run(broker: Broker) -> dict[str, Any]:
    """Reads `PENSTOCK_BUDGET_MS` and `PENSTOCK_SCRUB_BYTES`, what a run may take."""
    done = scrub(
        broker,
        budget_ms=int(os.environ["PENSTOCK_BUDGET_MS"]),
        budget_bytes=int(os.environ["PENSTOCK_SCRUB_BYTES"]),
    )
    for name in ("refs", "segments", "bytes", "copied", "healed", "marked", "failures"):
        broker.events.count(f"scrub_{name}", getattr(done, name))
    return asdict(done)


handler = scheduled_entry_point(run)
