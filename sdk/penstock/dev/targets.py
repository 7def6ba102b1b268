"""Targets of `penstock dev`: functions of its process, endpoints of this machine, a file in place of SQS and buses.

The service's own adapters run. Each has a client that stands in for AWS's. So a message in the file is what SQS or
EventBridge would have got.
"""

import base64
import contextlib
import json
import logging
import os
import threading
from collections import Counter, deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from penstock.dev.functions import DevFunctions
from penstock.system import wall_clock_ms
from penstock_core.limits import DEV_DELIVERIES_BYTES_MAX, DEV_DELIVERIES_KEPT
from penstock_core.push.targets.public_address import parse_networks
from penstock_service.adapters.https_target import HttpsEndpoints
from penstock_service.adapters.system import SequentialExecutor
from penstock_service.adapters.targets.aws_targets import TargetsByKind
from penstock_service.adapters.targets.bus import EventBuses
from penstock_service.adapters.targets.calls import EntryCalls
from penstock_service.adapters.targets.function import LambdaFunctions
from penstock_service.adapters.targets.queue import SqsQueues
from penstock_service.adapters.targets.stage import KeysOf
from penstock_service.ports.runtime import Clock

DELIVERIES_FILE = Path(".penstock") / "deliveries.jsonl"
_THIS_MACHINE = "127.0.0.0/8,::1/128"
_ROLE_ARN = "arn:aws:iam::000000000000:role/penstock-dev"
_REFUSED_BODY = "\0"  # the adapter sends it to try the queue
_REFUSED_SOURCE = "aws."  # and this one to try the bus

logger = logging.getLogger("penstock.dev")


def dev_targets(clock: Clock, functions: DevFunctions, deliveries: "Deliveries", stage_keys: KeysOf) -> TargetsByKind:
    """Targets whose ARNs and URLs may be of any account. Other servers are called with `stage_keys`."""
    calls = EntryCalls(clock, SequentialExecutor())
    queue, bus = QueueClient(deliveries), BusClient(deliveries)
    return TargetsByKind(
        LambdaFunctions(functions.client, _ROLE_ARN),
        SqsQueues(lambda: queue, calls, _ROLE_ARN),
        EventBuses(lambda: bus, calls, _ROLE_ARN),
        HttpsEndpoints(clock, allowed_private=parse_networks(_THIS_MACHINE)),
        clock,
        stage_keys=stage_keys,
    )


class Deliveries:
    """The last messages to queues and buses, in memory and in a file of JSON lines, the oldest first.

    It keeps `DEV_DELIVERIES_KEPT` of each target, and `DEV_DELIVERIES_BYTES_MAX` of all. The file holds up to as many
    lines more, until it is written anew. A file of an earlier server goes. Only its owner may read it.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._kept: deque[tuple[str, str]] = deque()  # the target, and the line
        self._counts: Counter[str] = Counter()
        self._bytes = 0
        self._dropped = 0  # lines of the file that are no longer kept
        self._dropped_bytes = 0
        if file is not None:
            with contextlib.suppress(OSError):
                file.unlink()

    def lines(self) -> list[dict[str, Any]]:
        """The messages that are kept, as the lines have them."""
        with self._lock:
            return [json.loads(line) for _, line in self._kept]

    def note(self, target: str, messages: list[dict[str, Any]]) -> None:
        """Keep the messages of one call. A file that cannot be written is logged, and the delivery goes on."""
        time = datetime.fromtimestamp(wall_clock_ms() / 1_000, UTC).isoformat(timespec="milliseconds")
        new = [json.dumps({"time": time, "target": target, "message": each}) + "\n" for each in messages]
        logger.info("%s got %d messages", target, len(messages))
        with self._lock:
            for line in new:
                self._kept.append((target, line))
                self._counts[target] += 1
                self._bytes += len(line)
            self._drop(target)
            try:
                self._write(new)
            except OSError as error:
                logger.warning("%s cannot be written: %s", self._file, error.strerror)

    def _drop(self, target: str) -> None:
        while self._counts[target] > DEV_DELIVERIES_KEPT:
            self._forget(next(at for at, (name, _) in enumerate(self._kept) if name == target))
        while self._bytes > DEV_DELIVERIES_BYTES_MAX and self._kept:
            self._forget(0)

    def _forget(self, at: int) -> None:
        name, line = self._kept[at]
        del self._kept[at]
        self._counts[name] -= 1
        if not self._counts[name]:
            del self._counts[name]
        self._bytes -= len(line)
        self._dropped += 1
        self._dropped_bytes += len(line)

    def _write(self, new: list[str]) -> None:
        """Append, or write anew in place, so that `tail -F` goes on."""
        if self._file is None:
            return
        is_full = self._dropped > DEV_DELIVERIES_KEPT or self._dropped_bytes > DEV_DELIVERIES_BYTES_MAX
        if is_full:
            new = [line for _, line in self._kept]
            self._dropped = self._dropped_bytes = 0
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_full else os.O_APPEND)
        with os.fdopen(os.open(self._file, flags, 0o600), "w") as file:
            file.write("".join(new))


class QueueClient:
    """SQS's client with the one method that the adapter calls."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        """Keep the messages. Raises InvalidMessageContents for the message by which the adapter tries a queue."""
        entries = request["Entries"]
        if any(entry["MessageBody"] == _REFUSED_BODY for entry in entries):
            error = {"Code": "InvalidMessageContents", "Message": "the body has a character that SQS refuses"}
            raise ClientError({"Error": error}, "SendMessageBatch")
        self._deliveries.note(request["QueueUrl"], [_readable(entry) for entry in entries])
        return {}


class BusClient:
    """EventBridge's client with the one method that the adapter calls."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    def put_events(self, **request: Any) -> dict[str, Any]:
        """Keep the events. It refuses the event by which the adapter tries a bus."""
        entries = request["Entries"]
        if entries[0]["Source"].startswith(_REFUSED_SOURCE):
            return {"Entries": [{"ErrorCode": "NotAuthorizedForSourceException"}]}
        self._deliveries.note(entries[0]["EventBusName"], entries)
        return {"Entries": [{} for _ in entries]}


def _readable(entry: dict[str, Any]) -> dict[str, Any]:
    """The message without the id that is only of the call. Binary values are base64, as AWS's commands show them."""
    attributes = {
        name: {
            field: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for field, value in attribute.items()
        }
        for name, attribute in entry["MessageAttributes"].items()
    }
    return {"MessageBody": entry["MessageBody"], "MessageAttributes": attributes}
