"""The task `scrub`: each run reads a part of all copies, and heals missing and bad ones."""

import os
from dataclasses import asdict
from typing import Any

from penstock_service.instance.instance import Instance
from penstock_service.repair.scrub import scrub


def run(instance: Instance) -> dict[str, Any]:
    """Scrubs within the time of `PENSTOCK_SCRUB_BUDGET_MS` and the bytes of `PENSTOCK_SCRUB_BYTES`."""
    done = scrub(
        instance,
        budget_ms=int(os.environ["PENSTOCK_SCRUB_BUDGET_MS"]),
        budget_bytes=int(os.environ["PENSTOCK_SCRUB_BYTES"]),
    )
    return asdict(done)
