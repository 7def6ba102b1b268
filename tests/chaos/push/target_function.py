"""The Lambda function that is a target. Its package has this module, and what `targets` packs with it."""

import base64
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

from tests.chaos.push.recording_target import CONTROL, GivenRecord, RecordingTarget
from tests.history.recorder import Recorder

FOLDER, SUBSCRIPTION, IS_ORDERED = "CHAOS_FOLDER", "CHAOS_SUBSCRIPTION", "CHAOS_IS_ORDERED"


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Handle the records of the event, which has the shape of AWS's mappings for Kafka. Name what has failed."""
    records = [_given(record) for each in event["records"].values() for record in each]
    refused = _target().handle(records)
    names = [{"partition": f"{topic}-{number}", "offset": offset} for (topic, number), offset in refused]
    return {"batchItemFailures": [{"itemIdentifier": name} for name in names]}


@cache
def _target() -> RecordingTarget:
    """One for each process: its history is a file of its own."""
    folder, subscription = Path(os.environ[FOLDER]), os.environ[SUBSCRIPTION]
    process = f"{subscription}.{os.getpid()}.{time.monotonic_ns()}"
    return RecordingTarget(
        recorder=Recorder.open(folder / f"{process}.history.jsonl"),
        process=process,
        subscription=subscription,
        is_ordered=os.environ[IS_ORDERED] == "yes",
        control=folder / CONTROL,
    )


def _given(record: dict[str, Any]) -> GivenRecord:
    value = None if record["value"] is None else base64.b64decode(record["value"])
    return GivenRecord(place=((record["topic"], record["partition"]), record["offset"]), value=value)
