"""The code of a target function, which notes each invocation in a file: the emulator runs functions on this machine."""

import base64
import json
import os
import time
from typing import Any


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Handle the records of one partition."""
    records = [record for each in event["records"].values() for record in each]
    values = [base64.b64decode(record["value"]).decode() for record in records]
    line = json.dumps({"began_ms": time.time() * 1_000, "values": values}).encode() + b"\n"
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)  # one call, so that the lines of several processes do not mix
    finally:
        os.close(file)
    return {"batchItemFailures": []}
