"""Produce and fetch by hand-made requests, without the SDK, which would retry after some answers."""

import json
from typing import Any

from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, Record, decode, encode
from tests.end_to_end.local_stack import NOW_MS


def append(transport: HttpTransport, topic: str, value: bytes, *, acks: str = "quorum") -> tuple[Response, Any]:
    """Sends one record to partition 0 in one request. Returns the answer, and the partition's result in it."""
    batch = encode([NewRecord(NOW_MS, None, value)])
    header = {"acks": acks, "batches": [{"topic": topic, "partition": 0, "length": len(batch)}]}
    answer = transport.call("POST", "/v1/produce", {}, {}, frame.encode(header, [batch]))
    assert answer.status == 200, answer.body
    return answer, json.loads(answer.body)["results"][0]


def read_all(transport: HttpTransport, topic: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Returns offset and value of every record of a partition from its start, by raw fetches."""
    return [(record.offset, record.value) for record in read_records(transport, topic, partition)]


def read_records(transport: HttpTransport, topic: str, partition: int = 0) -> list[Record]:
    """Returns every record of a partition from its start, by raw fetches."""
    found: list[Record] = []
    offset = 0
    while True:
        body = {"partitions": [{"topic": topic, "partition": partition, "offset": offset}]}
        answer = transport.call("POST", "/v1/fetch", {}, {}, json.dumps(body).encode())
        assert answer.status == 200, answer.body
        header, data = frame.decode(answer.body)
        partitions: Any = header["partitions"]
        [result] = partitions
        assert "error" not in result, result
        found += decode(data)
        if result["next_offset"] == result["high_watermark"]:
            return found
        offset = result["next_offset"]


def storage_calls(answer: Response) -> dict[str, int]:
    header = {name.lower(): value for name, value in answer.headers.items()}["penstock-storage-calls"]
    return {name: int(count) for name, _, count in (part.partition("=") for part in header.split(","))}
