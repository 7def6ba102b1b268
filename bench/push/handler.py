"""The code of a target function. It notes each invocation in a ledger, and does what its control file says.

The emulator runs functions on this machine, so the ledger is a file. A line is written by one call, so that the lines
of several processes do not mix.
"""

import base64
import json
import os
import time
from typing import Any


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Handle the records of one partition, or fail as the control file says."""
    began_ms = time.time() * 1_000
    with open(os.environ["CONTROL"], encoding="utf-8") as file:
        control = json.load(file)
    records = [record for each in event["records"].values() for record in each]
    fact: dict[str, Any] = {
        "pid": os.getpid(),
        "request_id": getattr(context, "aws_request_id", ""),
        "began_ms": began_ms,
        "records": [
            [record["partition"], record["offset"], base64.b64decode(record["value"]).decode(), record["timestamp"]]
            for record in records
        ],
    }
    _write({**fact, "state": "began"})
    time.sleep(control.get("work_ms", 0) / 1_000)
    if control.get("is_down"):
        raise RuntimeError("the target is down")
    poison = set(control.get("poison", ()))
    if any(value in poison for _, _, value, _ in fact["records"]):
        raise ValueError("a record that this function cannot handle")
    _write({**fact, "state": "handled"})
    return {"batchItemFailures": []}


def _write(fact: dict[str, Any]) -> None:
    line = json.dumps(fact).encode() + b"\n"
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
