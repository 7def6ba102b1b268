"""DynamoDB's item locks and throughput, in front of the emulator's DynamoDB.

The emulator serves one call after the other, so its items cannot change between the check of a lock and the write. A
transaction waits half of its hold before it is applied and half after. The sizes of items are real: they come from
requests, answers, and reads of the written items as the root user, past all rules.

Token buckets for the units of partition keys and tables. The time is an argument.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from localstack.like_aws.aws_errors import (
    CONFLICT_MESSAGE,
    ON_DEMAND_MESSAGE,
    PROVISIONED_MESSAGE,
    throttling,
    transaction_cancelled,
    transaction_conflict,
)
from localstack.like_aws.dynamodb_call import (
    READS,
    WRITES,
    ItemKey,
    Table,
    actions_of,
    item_bytes,
    item_keys,
    operation_of,
    read_units,
    table_names,
    write_units,
)
from localstack.like_aws.exchange import Answer, App, Request, ask, root_signature
from localstack.like_aws.rules import ItemLocks, Rules, Throughput

_TRANSACTIONS = ("TransactWriteItems", "TransactGetItems")
_LOCK_POLL_S = 0.001
_BUCKETS_MAX = 10_000


@dataclass(slots=True)
class _Bucket:
    per_s: float
    tokens: float
    at_s: float

    def refill(self, now_s: float) -> None:
        self.tokens = min(self.per_s, self.tokens + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s


@dataclass(slots=True)
class TokenBuckets:
    """One bucket a name, which holds one second of its rate.

    A call is admitted while its bucket holds anything, for DynamoDB knows the size of an item only when it has it. Then
    the call is charged, which may leave a debt.
    """

    _buckets: dict[object, _Bucket] = field(default_factory=dict)

    def is_empty(self, name: object, per_s: float, now_s: float) -> bool:
        """True if the bucket `name`, of `per_s` units a second, has nothing left."""
        return self._bucket(name, per_s, now_s).tokens <= 0.0

    def charge(self, name: object, per_s: float, units: float, now_s: float) -> None:
        """Takes `units` from the bucket `name`."""
        self._bucket(name, per_s, now_s).tokens -= units

    def _bucket(self, name: object, per_s: float, now_s: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= _BUCKETS_MAX:
                self._forget_full(now_s)
            bucket = self._buckets[name] = _Bucket(per_s, per_s, now_s)
        bucket.refill(now_s)
        return bucket

    def _forget_full(self, now_s: float) -> None:
        for bucket in self._buckets.values():
            bucket.refill(now_s)
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket.tokens < bucket.per_s}


@dataclass(slots=True)
class DynamoDbRules:
    """The state of the rules: locked items, buckets, and the sizes of items as they were last written or read."""

    app: App
    counts: Counter[str]
    chance: Random
    _tables: dict[str, Table] = field(default_factory=dict)
    _locked: set[ItemKey] = field(default_factory=set)
    _sizes: dict[ItemKey, int] = field(default_factory=dict)
    _buckets: TokenBuckets = field(default_factory=TokenBuckets)

    async def serve(self, request: Request, rules: Rules) -> Answer:
        """The answer to a call of DynamoDB, under `item_locks` and `throughput` if they are on."""
        operation = operation_of(request)
        data = json.loads(request.body) if operation in WRITES | READS else {}
        call = await self._call(operation, data)
        if call is None:
            return await ask(self.app, request)
        if rules.throughput.is_on:
            refusal = self._throttled(call, rules.throughput)
            if refusal is not None:
                self.counts["throughput: calls throttled"] += 1
                return refusal
        if rules.item_locks.is_on:
            answer = await self._serve_locked(call, request, rules.item_locks)
        else:
            answer = await ask(self.app, request)
        if rules.throughput.is_on and answer.status < 500:
            await self._charge(call, answer, rules.throughput)
        return answer

    async def _call(self, operation: str, data: dict[str, Any]) -> "_Call | None":
        """The call as its items. None for one without items, or one that the emulator refuses for what it says."""
        if operation not in WRITES | READS:
            return None
        try:
            for name in table_names(operation, data) - set(self._tables):
                self._tables[name] = await self._described(name)
            return _Call(operation, data, tuple(item_keys(operation, data, self._tables)))
        except (KeyError, TypeError, AttributeError, StopIteration):
            return None

    async def _described(self, table: str) -> Table:
        """The table's keys and billing. Raises KeyError if there is no such table."""
        found = (await self._as_root("DescribeTable", {"TableName": table}))["Table"]
        keys = sorted(found["KeySchema"], key=lambda each: str(each["KeyType"]))  # HASH before RANGE
        return Table(
            name=table,
            arn=found["TableArn"],
            keys=tuple(each["AttributeName"] for each in keys),
            is_on_demand=found.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST",
        )

    async def _as_root(self, operation: str, data: Mapping[str, Any]) -> dict[str, Any]:
        headers = [
            (b"host", b"127.0.0.1"),
            (b"x-amz-target", f"DynamoDB_20120810.{operation}".encode()),
            (b"content-type", b"application/x-amz-json-1.0"),
            (b"authorization", root_signature("dynamodb")),
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "headers": headers,
        }
        request = Request(scope={**scope, "headers": headers}, body=json.dumps(data).encode())
        # A task of its own has a context of its own: the emulator keeps who calls in context variables.
        answer = await asyncio.get_running_loop().create_task(ask(self.app, request))
        return dict(json.loads(answer.body))

    # Locks

    async def _serve_locked(self, call: "_Call", request: Request, locks: ItemLocks) -> Answer:
        if call.operation == "BatchWriteItem":  # its model has no conflict, so it waits
            while self._locked.intersection(call.keys):
                await asyncio.sleep(_LOCK_POLL_S)
        if call.operation in WRITES | {"TransactGetItems"} and self._locked.intersection(call.keys):
            self.counts["item_locks: calls refused"] += 1
            if call.operation not in _TRANSACTIONS:
                return transaction_conflict()
            conflict = {"Code": "TransactionConflict", "Message": CONFLICT_MESSAGE}
            return transaction_cancelled([conflict if key in self._locked else {"Code": "None"} for key in call.keys])
        if call.operation != "TransactWriteItems":
            return await ask(self.app, request)
        half_s = self.chance.uniform(locks.hold_ms_min, locks.hold_ms_max) / 2_000
        self._locked.update(call.keys)
        try:
            await asyncio.sleep(half_s)
            answer = await ask(self.app, request)
            await asyncio.sleep(half_s)
        finally:
            self._locked.difference_update(call.keys)
        self.counts["item_locks: transactions held"] += 1
        return answer

    # Throughput

    def _throttled(self, call: "_Call", limits: Throughput) -> Answer | None:
        """The refusal of a call of which a key or a table has used up its units."""
        now_s = asyncio.get_running_loop().time()
        kind = "Write" if call.operation in WRITES else "Read"
        tables = [self._tables[name] for name in sorted(table_names(call.operation, call.data))]
        full = {
            each.name for each in tables if self._buckets.is_empty((each.name, kind), _table_rate(limits, kind), now_s)
        }
        hot = [
            key
            for key in call.keys
            if self._buckets.is_empty((key.table, kind, key.partition), _key_rate(limits, kind), now_s)
        ]
        full.update(key.table for key in hot)
        if not full:
            return None
        refused = [each for each in tables if each.name in full]
        reasons = [{"reason": f"Table{kind}KeyRangeThroughputExceeded", "resource": each.arn} for each in refused]
        if call.operation not in _TRANSACTIONS:
            return throttling(reasons, is_on_demand=refused[0].is_on_demand)
        return transaction_cancelled([self._reason(key, full, hot) for key in call.keys])

    def _reason(self, key: ItemKey, full: set[str], hot: Sequence[ItemKey]) -> dict[str, str]:
        is_refused = key in hot or (key.table in full and not any(each.table == key.table for each in hot))
        if not is_refused:
            return {"Code": "None"}
        if self._tables[key.table].is_on_demand:
            return {"Code": "ThrottlingError", "Message": ON_DEMAND_MESSAGE}
        return {"Code": "ProvisionedThroughputExceeded", "Message": PROVISIONED_MESSAGE}

    async def _charge(self, call: "_Call", answer: Answer, limits: Throughput) -> None:
        found = json.loads(answer.body) if answer.body else {}
        if answer.status != 200 and not str(found.get("__type", "")).endswith(
            ("CheckFailedException", "CanceledException")
        ):
            return
        kind = "Write" if call.operation in WRITES else "Read"
        units = await self._written(call, found, answer) if kind == "Write" else self._read(call, found)
        now_s = asyncio.get_running_loop().time()
        for key, count in units:
            self._buckets.charge((key.table, kind), _table_rate(limits, kind), count, now_s)
            self._buckets.charge((key.table, kind, key.partition), _key_rate(limits, kind), count, now_s)
            self.counts[f"throughput: {kind.lower()} units"] += int(count * 2)

    async def _written(self, call: "_Call", found: Mapping[str, Any], answer: Answer) -> list[tuple[ItemKey, float]]:
        """The units of each item written: of the larger of old and new, twice in a transaction."""
        factor = 2.0 if call.operation in _TRANSACTIONS else 1.0
        units = []
        for key, new_item in zip(call.keys, call.new_items(found), strict=True):
            old = self._sizes.get(key, 0)
            if answer.status == 200:
                item = await self._stored(key) if new_item is None else new_item
                self._sizes[key] = item_bytes(item)
            units.append((key, factor * write_units(max(old, self._sizes.get(key, 0)))))
        return units

    async def _stored(self, key: ItemKey) -> dict[str, Any]:
        """The item as it is now, {} without one."""
        names = self._tables[key.table].keys
        wanted = {
            "TableName": key.table,
            "Key": dict(zip(names, json.loads(key.whole), strict=True)),
            "ConsistentRead": True,
        }
        item: dict[str, Any] = (await self._as_root("GetItem", wanted)).get("Item", {})
        return item

    def _read(self, call: "_Call", found: Mapping[str, Any]) -> list[tuple[ItemKey, float]]:
        """The units of each item read. The items of a query or scan count together."""
        match call.operation:
            case "GetItem" | "TransactGetItems":
                items = [each.get("Item", {}) for each in found.get("Responses", [found])]
                factor = 2.0 if call.operation == "TransactGetItems" else 1.0
                is_consistent = bool(factor == 2.0 or call.data.get("ConsistentRead"))
                return [
                    (key, factor * read_units(item_bytes(item), is_consistent=is_consistent))
                    for key, item in zip(call.keys, items, strict=False)
                ]
            case "BatchGetItem":
                sizes = {
                    self._tables[name].key_of(item): item_bytes(item)
                    for name, items in found.get("Responses", {}).items()
                    for item in items
                }
                consistent = {name for name, each in call.data["RequestItems"].items() if each.get("ConsistentRead")}
                return [
                    (key, read_units(sizes.get(key, 0), is_consistent=key.table in consistent)) for key in call.keys
                ]
            case _:
                size = sum(item_bytes(item) for item in found.get("Items", []))
                units = read_units(size, is_consistent=bool(call.data.get("ConsistentRead")))
                key = call.keys[0] if call.keys else ItemKey(call.data["TableName"], "", "")
                return [(key, units)]


@dataclass(frozen=True, slots=True)
class _Call:
    operation: str
    data: Mapping[str, Any]
    keys: tuple[ItemKey, ...]

    def new_items(self, found: Mapping[str, Any]) -> list[dict[str, Any] | None]:
        """The item that each write leaves, {} for none. None if neither request nor answer tells."""
        match self.operation:
            case "PutItem":
                return [self.data["Item"]]
            case "DeleteItem":
                return [{}]
            case "UpdateItem":
                return [found.get("Attributes") if self.data.get("ReturnValues") == "ALL_NEW" else None]
            case "BatchWriteItem":
                requests = [next(iter(each.values())) for many in self.data["RequestItems"].values() for each in many]
                return [each.get("Item", {}) for each in requests]
            case _:
                return [each.get("Item") for each in actions_of(self.data)]


def _table_rate(limits: Throughput, kind: str) -> float:
    return limits.write_units_per_table if kind == "Write" else limits.read_units_per_table


def _key_rate(limits: Throughput, kind: str) -> float:
    return limits.write_units_per_key if kind == "Write" else limits.read_units_per_key
