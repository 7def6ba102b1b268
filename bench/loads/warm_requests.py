"""The events of warm requests, as API Gateway sends them, and the stage on which each of them finds what it wants."""

import base64
import json
import os
from pathlib import Path
from typing import Any

from penstock_core.limits import BATCH_BYTES_MAX, KIB, MIB
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from tests.golden.stage import Stage, empty_stage

SIZES = {"100 B": 100, "1 KB": 1_000, "64 KiB": 64 * KIB, "1 MiB": MIB, "4 MiB": BATCH_BYTES_MAX - KIB}
MEMBER = "m" * 22
_OVERHEAD_BYTES = 256  # of a batch and a frame around a record, so that the request has the size
_SHARED, _GROUP = "jobs", "workers"


def write_warm_requests(folder: Path) -> dict[str, Any]:
    """Writes an event for each request to `FUNCTION-REQUEST.json`. Gives what the stage has stored."""
    with empty_stage() as stage:
        for name, size in SIZES.items():
            _of_records(stage, folder, name, size)
        _of_members(stage, folder)
        _of_workers(stage, folder)
        _of_transactions(stage, folder)
        return stage.stored()


def _of_records(stage: Stage, folder: Path, name: str, size: int) -> None:
    topic = f"size-{size}"
    stage.service.create(topic, max_batch_bytes=BATCH_BYTES_MAX)
    data = _batch(stage, [os.urandom(max(100, size - _OVERHEAD_BYTES))])
    stage.service.produce((topic, 0, data))
    named = [{"topic": topic, "partition": 0, "length": len(data)}]
    wanted = [{"topic": topic, "partition": 0, "offset": 0, "max_bytes": 4 * MIB}]
    _write(folder, "produce", name, "/v1/produce", frame.encode({"batches": named, "acks": "quorum"}, [data]))
    _write(folder, "fetch", name, "/v1/fetch", {"partitions": wanted, "max_bytes": 4 * MIB})


def _of_members(stage: Stage, folder: Path) -> None:
    """The heartbeat of a member that has its part, and its commit."""
    path = "/v1/groups/{group}/heartbeat"
    beat: dict[str, Any] = {"member_id": MEMBER, "sequence": 1, "epoch": 0, "subscription": {"topics": ["size-1000"]}}
    joined = stage.service.call("POST", path.format(group="billing"), beat).json
    beat = {"member_id": MEMBER, "sequence": 2, "epoch": joined["epoch"], "session": joined["session"]}
    _write(folder, "groups", "heartbeat", path, beat, group="billing")
    offsets = [{"topic": "size-1000", "partition": 0, "offset": 1}]
    _write(folder, "groups", "commit", "/v1/groups/{group}/offsets", {"offsets": offsets}, group="billing")


def _of_workers(stage: Stage, folder: Path) -> None:
    """An acquire of ten records, and an acquire of as many that finishes the ten of before."""
    stage.service.create(_SHARED)
    for _ in range(20):
        stage.service.produce((_SHARED, 0, _batch(stage, [os.urandom(1_000)])))
    stage.service.call("PUT", f"/v1/share-groups/{_GROUP}", {"topics": [_SHARED], "config": {"start": "earliest"}})
    path = "/v1/share-groups/{group}/acquire"
    acquired = stage.service.call("POST", path.format(group=_GROUP), {"max_records": 10})
    header, _ = frame.decode(acquired.body)
    partitions: Any = header["partitions"]
    accept = [{"topic": _SHARED, "partition": 0, "lock_id": each["lock_id"], "type": "accept"} for each in partitions]
    _write(folder, "share", "acquire 10", path, {"max_records": 10}, group=_GROUP)
    _write(folder, "share", "accept and acquire 10", path, {"max_records": 10, "acknowledge": accept}, group=_GROUP)


def _of_transactions(stage: Stage, folder: Path) -> None:
    """A transaction of one batch and one offset."""
    begun = stage.service.call("POST", "/v1/producers", {"transactional_id": "ledger"}).json
    data = _batch(stage, [os.urandom(1_000)])
    header = {
        "transactional_id": "ledger",
        "epoch": begun["epoch"],
        "transaction": begun["transaction"],
        "batches": [{"topic": "size-1000", "partition": 0, "length": len(data)}],
        "offsets": [{"group": "billing", "topic": "size-1000", "partition": 0, "offset": 1}],
    }
    _write(folder, "transactions", "batch and offset", "/v1/transactions", frame.encode(header, [data]))


def _batch(stage: Stage, values: list[bytes]) -> bytes:
    return encode([NewRecord(stage.clock.now_ms(), None, value) for value in values], Compression.NONE)


def _write(folder: Path, function: str, name: str, path: str, body: object, **of_path: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    event = {
        "version": "2.0",
        "routeKey": f"POST {path}",
        "rawPath": path.format(**of_path),
        "pathParameters": of_path,
        "headers": {"content-type": "application/octet-stream" if isinstance(body, bytes) else "application/json"},
        "requestContext": {
            "authorizer": {"iam": {"userArn": "arn:aws:iam::1:user/client"}},
            "http": {"method": "POST", "path": path.format(**of_path)},
            "stage": "$default",
        },
        "body": base64.b64encode(content).decode(),
        "isBase64Encoded": True,
    }
    (folder / f"{function}-{name}.json").write_text(json.dumps(event))
