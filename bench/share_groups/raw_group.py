"""The calls of a producer and a share consumer as single requests, without what the SDK does beside them."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.http.http_message import BATCHES_TYPE
from penstock.http.transport import Transport
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, decode, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiredRecords:
    """The lock ids that an acquire brought, and the number of records under them, which were decoded."""

    lock_ids: Sequence[str]
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawGroup:
    """Partition 0 of a topic, and a share group that reads it."""

    transport: Transport
    topic: str
    group: str

    @property
    def acquire_path(self) -> str:
        """The path of an acquire."""
        return f"/v1/share-groups/{self.group}/acquire"

    @property
    def acknowledge_path(self) -> str:
        """The path of an acknowledgement."""
        return f"/v1/share-groups/{self.group}/acknowledge"

    def produce(self, values: Sequence[bytes]) -> None:
        """Append the values as one batch."""
        now_ms = time.time_ns() // 1_000_000
        batch = encode([NewRecord(now_ms, None, value) for value in values])
        header = {"batches": [{"topic": self.topic, "partition": 0, "length": len(batch)}]}
        answer = json.loads(self._call("/v1/produce", frame.encode(header, [batch])))
        if "error" in answer["results"][0]:
            raise RuntimeError(f"produce answered {answer}")

    def acquire(self, records_max: int) -> AcquiredRecords:
        """Lock up to so many records, and decode them."""
        body = {"nonce": secrets.token_hex(8), "max_records": records_max}
        header, batches = frame.decode(self._call(self.acquire_path, _json(body)))
        partitions: Any = header["partitions"]
        wanted = {offset for each in partitions for start, end in each["ranges"] for offset in range(start, end)}
        found = sum(record.offset in wanted for record in decode(batches))
        return AcquiredRecords(lock_ids=[each["lock_id"] for each in partitions], records=found)

    def accept(self, lock_ids: Sequence[str]) -> None:
        """Accept all records under these locks."""
        entries = [{"topic": self.topic, "partition": 0, "lock_id": each, "type": "accept"} for each in lock_ids]
        answer = json.loads(self._call(self.acknowledge_path, _json({"acknowledge": entries})))
        if any(each["result"] != "ok" for each in answer["acknowledged"]):
            raise RuntimeError(f"acknowledge answered {answer}")

    def _call(self, path: str, body: bytes) -> bytes:
        answer = self.transport.call("POST", path, {}, {"Accept": BATCHES_TYPE}, body)
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {bytes(answer.body[:500])!r}")
        return bytes(answer.body)


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body).encode()
