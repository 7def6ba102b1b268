"""Captures the calls to storage, and what AWS meters of each: DynamoDB's units, S3's requests and bytes.

moto does not compute units. So the capture reads each written item before and after the write, by a client that it does
not watch, and counts as the developer guide does ("Read and write operations in DynamoDB"):

- A write takes one unit for each KB that the larger of both items has begun. A refused write takes them too.
- A consistent read takes one unit for each 4 KB of an item, or of all items of a query together; an eventual read half.
- Transactions take twice as many.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock import prices
from penstock.prices import Price
from penstock_core.limits import KIB, PUSH_ENTRIES_MAX
from penstock_core.log.wake_up import WakeUpMessage
from penstock_core.push.lane import PushMessage
from penstock_core.storage.item import item_bytes
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.ports.push import WakeUpPlace
from penstock_service.ports.runtime import Clock

Item = Mapping[str, Any]
Key = tuple[str, str]  # a table, and the key's text

_READ_UNIT_BYTES = 4 * KIB
_SQS_UNIT_BYTES = 64 * KIB


class Lines(defaultdict[str, float]):
    """Dollars by line of a bill, 0 for a line that is not there."""

    def __init__(self) -> None:
        super().__init__(float)

    def total(self) -> float:
        """The sum of all lines."""
        return sum(self.values())

    def add(self, other: Mapping[str, float]) -> None:
        """Adds each line of another bill."""
        for name, usd in other.items():
            self[name] += usd


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPrices:
    """The prices of a bucket. An ordinary bucket charges nothing for bytes that stay in the region."""

    puts: Price
    gets: Price
    uploaded: Price | None = None
    retrieved: Price | None = None


STANDARD = BucketPrices(puts=prices.S3_PUTS, gets=prices.S3_GETS)
EXPRESS = BucketPrices(
    puts=prices.EXPRESS_PUTS,
    gets=prices.EXPRESS_GETS,
    uploaded=prices.EXPRESS_UPLOADED_BYTES,
    retrieved=prices.EXPRESS_RETRIEVED_BYTES,
)

_S3_PUTS = {
    "PutObject",
    "CopyObject",
    "ListObjectsV2",
    "CreateMultipartUpload",
    "UploadPart",
    "CompleteMultipartUpload",
}
_S3_GETS = {"GetObject", "HeadObject", "CreateSession"}
_S3_FREE = {"DeleteObject", "DeleteObjects", "AbortMultipartUpload"}


@dataclass(slots=True)
class Usage:
    """The captured usage: calls by `service.Operation`, units of DynamoDB, and S3's bytes by bucket."""

    calls: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0
    sqs_requests: int = 0
    wake_ups: int = 0
    puts: Counter[str] = field(default_factory=Counter)
    gets: Counter[str] = field(default_factory=Counter)
    uploaded: Counter[str] = field(default_factory=Counter)
    retrieved: Counter[str] = field(default_factory=Counter)

    def lines(self, prices_of: Callable[[str], BucketPrices]) -> Lines:
        """The dollars by line of the bill. `prices_of` gives the prices of a bucket."""
        lines = Lines()
        lines["dynamodb"] = prices.WRITE_UNITS.of(self.write_units) + prices.READ_UNITS.of(self.read_units)
        lines["sqs"] = prices.SQS_REQUESTS.of(self.sqs_requests)
        lines["wake-ups"] = prices.APPSYNC_OPERATIONS.of(2 * self.wake_ups)  # published, and delivered to one reader
        for bucket in {*self.puts, *self.gets}:
            bucket_prices = prices_of(bucket)
            lines["puts"] += bucket_prices.puts.of(self.puts[bucket])
            lines["gets"] += bucket_prices.gets.of(self.gets[bucket])
            for price, moved in ((bucket_prices.uploaded, self.uploaded), (bucket_prices.retrieved, self.retrieved)):
                if price is not None:
                    lines["bytes"] += price.of(moved[bucket])
        return lines


class MeteredCalls(StorageCalls):
    """StorageCalls that also meters. `unwatched` is a client of DynamoDB for its own looks at items."""

    def __init__(self, unwatched: Any) -> None:
        super().__init__()
        self._unwatched = unwatched
        self.usage = Usage()

    def watch(self, client: Any) -> None:
        """Captures every call that `client` (boto3) sends from now on."""
        super().watch(client)
        service = client.meta.service_model.service_name
        client.meta.events.register(f"before-send.{service}", self._count_call)
        client.meta.events.register(f"provide-client-params.{service}", self._remember)
        client.meta.events.register(f"after-call.{service}", self._meter)

    def take(self) -> Usage:
        """The usage since the last time."""
        taken, self.usage = self.usage, Usage()
        return taken

    def _count_call(self, event_name: str, **_: Any) -> None:
        _event, service, operation = event_name.split(".")
        self.usage.calls[f"{service}.{operation}"] += 1

    def _remember(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        before = self._sizes(_written(model.name, params)) if model.service_model.service_name == "dynamodb" else []
        body_bytes = len(params.get("Body", b""))  # botocore makes a file of it later
        context["penstock_bill"] = (params, before, body_bytes)

    def _meter(self, parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        params, before, body_bytes = context["penstock_bill"]
        service = model.service_model.service_name
        if service == "dynamodb":
            self._meter_dynamodb(model.name, params, parsed, before)
        elif service == "s3":
            self._meter_s3(model.name, params["Bucket"], body_bytes, parsed)
        elif service == "sqs":
            entries = params.get("Entries", [params])
            size = sum(len(entry.get("MessageBody", "")) for entry in entries)
            self.usage.sqs_requests += max(1, math.ceil(size / _SQS_UNIT_BYTES))
        else:
            raise LookupError(f"nothing tells what {service}.{model.name} costs: add it to metered_calls.py")

    def _meter_dynamodb(
        self, operation: str, params: dict[str, Any], parsed: dict[str, Any], before: Sequence[int]
    ) -> None:
        factor = 2 if operation.startswith("Transact") else 1
        written = _written(operation, params)
        if written:
            sizes = (max(pair) for pair in zip(before, self._sizes(written), strict=True))
            self.usage.write_units += factor * sum(max(1, math.ceil(size / KIB)) for size in sizes)
            return
        self.usage.read_units += factor * self._read_units(operation, params, parsed)

    def _read_units(self, operation: str, params: dict[str, Any], parsed: dict[str, Any]) -> float:
        if operation == "Query":  # a projection saves no units
            whole = {name: value for name, value in params.items() if name not in ("ProjectionExpression", "Select")}
            size = sum(item_bytes(item) for item in self._unwatched.query(**_named(whole))["Items"])
            return _units_read([size], is_consistent=params.get("ConsistentRead", False))
        if operation == "GetItem":
            sizes = self._sizes([(params["TableName"], params["Key"])])
            return _units_read(sizes, is_consistent=params.get("ConsistentRead", False))
        if operation == "BatchGetItem":
            return sum(
                _units_read(
                    self._sizes([(table, key) for key in wanted["Keys"]]),
                    is_consistent=wanted.get("ConsistentRead", False),
                )
                for table, wanted in params["RequestItems"].items()
            )
        if operation == "TransactGetItems":
            gets = [each["Get"] for each in params["TransactItems"]]
            return _units_read(self._sizes([(get["TableName"], get["Key"]) for get in gets]), is_consistent=True)
        if operation == "Scan":
            return _units_read([sum(item_bytes(item) for item in parsed["Items"])], is_consistent=False)
        raise LookupError(f"nothing tells what dynamodb.{operation} costs: add it to metered_calls.py")

    def _sizes(self, written: Iterable[tuple[str, Item]]) -> list[int]:
        """The bytes of each item that is stored now, 0 where there is none."""
        sizes = []
        for table, key in written:
            found = self._unwatched.get_item(TableName=table, Key=key, ConsistentRead=True)
            sizes.append(item_bytes(found.get("Item", {})))
        return sizes

    def _meter_s3(self, operation: str, bucket: str, body_bytes: int, parsed: dict[str, Any]) -> None:
        if operation in _S3_PUTS:
            self.usage.puts[bucket] += 1
            self.usage.uploaded[bucket] += body_bytes
        elif operation in _S3_GETS:
            self.usage.gets[bucket] += 1
            self.usage.retrieved[bucket] += parsed.get("ContentLength", 0)
        elif operation not in _S3_FREE:
            raise LookupError(f"nothing tells what s3.{operation} costs: add it to metered_calls.py")


class MeteredWakeUps:
    """WakeUps that meters each message: boto3 has no call for it that could be captured. `heard` are the messages."""

    def __init__(self, calls: MeteredCalls) -> None:
        self._calls = calls
        self.heard: list[WakeUpMessage] = []
        self.place: WakeUpPlace | None = WakeUpPlace(
            realtime_url="wss://wake.example/event/realtime", host="wake.example", realtime_host="wake.example"
        )

    def publish(self, message: WakeUpMessage) -> None:
        self.heard.append(message)
        self._calls.usage.calls["appsync.Publish"] += 1
        self._calls.usage.wake_ups += 1


class MeteredDeliveries(MemoryDeliveryQueue):
    """The queue of deliveries in memory, that meters each request to SQS: one for ten messages, and one to hide one."""

    def __init__(self, clock: Clock, calls: MeteredCalls) -> None:
        super().__init__(clock)
        self._calls = calls

    def send(self, messages: Sequence[PushMessage]) -> None:
        super().send(messages)
        self._meter("SendMessageBatch", math.ceil(len(messages) / PUSH_ENTRIES_MAX))

    def postpone(self, receipt: str, delay_ms: int) -> None:
        super().postpone(receipt, delay_ms)
        self._meter("ChangeMessageVisibility", 1)

    def _meter(self, operation: str, requests: int) -> None:
        self._calls.usage.calls[f"sqs.{operation}"] += requests
        self._calls.usage.sqs_requests += requests


def _written(operation: str, params: dict[str, Any]) -> list[tuple[str, Item]]:
    """The table and key of each item that a call writes, or whose condition it checks. Empty for a read."""
    if operation == "PutItem":
        return [(params["TableName"], _key(params["Item"]))]
    if operation in ("UpdateItem", "DeleteItem"):
        return [(params["TableName"], params["Key"])]
    if operation == "TransactWriteItems":
        actions = [each for action in params["TransactItems"] for each in action.values()]
        return [(each["TableName"], each.get("Key") or _key(each["Item"])) for each in actions]
    if operation == "BatchWriteItem":
        return [
            (table, each["DeleteRequest"]["Key"] if "DeleteRequest" in each else _key(each["PutRequest"]["Item"]))
            for table, requests in params["RequestItems"].items()
            for each in requests
        ]
    return []


def _key(item: Item) -> Item:
    return {name: item[name] for name in ("pk", "sk")}


def _named(params: dict[str, Any]) -> dict[str, Any]:
    """The query without the names that only its projection used: DynamoDB refuses unused ones."""
    used = json.dumps([params.get(name, "") for name in ("KeyConditionExpression", "FilterExpression")])
    names = {name: text for name, text in params.get("ExpressionAttributeNames", {}).items() if name in used}
    rest = {name: value for name, value in params.items() if name != "ExpressionAttributeNames"}
    return rest | ({"ExpressionAttributeNames": names} if names else {})


def _units_read(sizes: Iterable[int], *, is_consistent: bool) -> float:
    units = sum(max(1, math.ceil(size / _READ_UNIT_BYTES)) for size in sizes)
    return units if is_consistent else units / 2
