"""DynamoDB's tables in memory, with the interface of boto3's low-level client.

Each call is atomic, and as strict as DynamoDB. It raises what drivers raise (adapters/dynamodb/driver_errors.py), with
DynamoDB's codes. For a parameter that it does not know it raises TypeError: it never guesses. Answers hold stored maps,
which the caller must not change.

A `Strain` makes it like a busy DynamoDB: transactions hold their items for a time, calls are throttled, and reads that
do not ask for consistency are stale. `InterposedTables` puts a function around each call, which may delay it, repeat
it, or lose its answer.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Operations_Amazon_DynamoDB.html
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from penstock_core.limits import BATCH_GET_KEYS_MAX, BATCH_WRITE_KEYS_MAX, TRANSACTION_ACTIONS_MAX
from penstock_core.storage.table_declarations import TABLES, TableDeclaration
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.tables import requests as reads
from penstock_service.adapters.tables.conditions import key_range
from penstock_service.adapters.tables.requests import (
    Action,
    action,
    batched_actions,
    cancel_if_any,
    reason_if,
    single_action,
    transacted_action,
)
from penstock_service.adapters.tables.statements import check_parameters, projected
from penstock_service.adapters.tables.store import (
    Item,
    Partition,
    Place,
    Stored,
    TableStore,
    is_expired,
    item_of,
    key_of,
    place_of,
    scan_place,
    size_of,
)
from penstock_service.adapters.tables.values import invalid

Answer = dict[str, Any]

BATCH_BYTES_MAX = 16 * 2**20
TRANSACTION_BYTES_MAX = 4 * 2**20
TOKEN_KEPT_MS = 600_000
_BATCH = {"RequestItems"}
_TRANSACTION = {"TransactItems", "ClientRequestToken"}
_THROTTLED = "Throughput exceeds the current capacity of your table or index."
_CONFLICT = "Transaction is ongoing for the item"
_TWICE = "Provided list of item keys contains duplicates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one item, as the table's stream tells it. `is_expiry` marks those that DynamoDB's TTL made."""

    table: str
    key: Item
    old: Item | None
    new: Item | None
    is_expiry: bool

    @property
    def record(self) -> Mapping[str, Any]:
        """The `dynamodb` part of the record in the table's stream."""
        images = {"OldImage": self.old, "NewImage": self.new}
        return {"Keys": self.key} | {name: image for name, image in images.items() if image is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strain:
    """The ways of a busy DynamoDB.

    - `hold`: a transaction calls it while it holds its items. It may wait: no lock is held then.
    - `is_throttled`: whether a call to this item is refused for now. A query has no sort key, and a scan no key at all:
      "" stands for them.
    - `stale`: chooses one of so many images of an item; 0 is the newest. The others are at most `stale_ms` old.
    """

    hold: Callable[[], None] | None = None
    is_throttled: Callable[[Place], bool] | None = None
    stale: Callable[[int], int] | None = None
    stale_ms: int = 1_000


class Tables:
    """All tables of one stage. `client.update_item(TableName=…, …)` and so on, as of boto3's client.

    `observe` is called with each change while the tables are locked, so that it sees all changes in their order.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        observe: Callable[[Change], None] | None = None,
        strain: Strain | None = None,
        declarations: Mapping[str, TableDeclaration] = TABLES,
    ) -> None:
        self._now_ms = now_ms
        self._observe = observe
        self._strain = strain or Strain()
        self._tables = {name: TableStore(declaration) for name, declaration in declarations.items()}
        self._lock = threading.RLock()
        self._held: set[Place] = set()
        self._tokens: dict[str, tuple[Any, int]] = {}  # of transactions that were applied, and until when they count

    @contextmanager
    def held(self) -> Iterator[None]:
        """A context in which no call changes an item."""
        with self._lock:
            yield

    def get_item(self, **arguments: Any) -> Answer:
        statement, names, _ = reads.bound("get_item", arguments, reads.GET)
        place = (arguments["TableName"], *place_of(arguments["Key"]))
        is_consistent = arguments.get("ConsistentRead", False)
        with self._lock:
            self._refuse_throttled(place)
            stored = self._image(self._partition(place), place[2], is_consistent)
        answer: Answer = {} if stored is None else {"Item": projected(stored[0], statement, names)}
        return answer | reads.consumed(arguments, reads.read_units(size_of(stored), is_consistent=is_consistent))

    def put_item(self, **arguments: Any) -> Answer:
        return self._write("Put", arguments)

    def update_item(self, **arguments: Any) -> Answer:
        return self._write("Update", arguments)

    def delete_item(self, **arguments: Any) -> Answer:
        return self._write("Delete", arguments)

    def batch_get_item(self, **arguments: Any) -> Answer:
        check_parameters("batch_get_item", arguments, _BATCH)
        requests = arguments["RequestItems"]
        bound = {table: reads.bound("batch_get_item", each, reads.BATCH_TABLE) for table, each in requests.items()}
        wanted = [((table, *place_of(key)), key) for table, request in requests.items() for key in request["Keys"]]
        _check_count("BatchGetItem", len(wanted), BATCH_GET_KEYS_MAX)
        _check_distinct([place for place, _ in wanted], _TWICE)
        found: dict[str, list[Item]] = {table: [] for table in requests}
        left: Answer = {}
        size = 0
        with self._lock:
            for place, key in reversed(wanted):  # answers come in no order
                table, request = place[0], requests[place[0]]
                stored = self._image(self._partition(place), place[2], request.get("ConsistentRead", False))
                size += size_of(stored)
                if size > BATCH_BYTES_MAX or self._is_throttled(place):
                    left.setdefault(table, {**request, "Keys": []})["Keys"].append(key)
                elif stored is not None:
                    found[table].append(projected(stored[0], *bound[table][:2]))
        _refuse_all(sum(len(each["Keys"]) for each in left.values()) == len(wanted))
        return {"Responses": found, "UnprocessedKeys": left}

    def batch_write_item(self, **arguments: Any) -> Answer:
        check_parameters("batch_write_item", arguments, _BATCH)
        writes = [*batched_actions(arguments["RequestItems"])]
        _check_count("BatchWriteItem", len(writes), BATCH_WRITE_KEYS_MAX)
        _check_distinct([write.place for write, _ in writes], _TWICE)
        left: dict[str, list[Any]] = {}
        with self._lock:
            for write, request in writes:
                old = self._stored(write.place)
                if write.place in self._held or self._is_throttled(write.place):
                    left.setdefault(write.place[0], []).append(request)
                else:
                    self._store(write, old, write.result(old))
        _refuse_all(sum(map(len, left.values())) == len(writes))
        return {"UnprocessedItems": left}

    def transact_write_items(self, **arguments: Any) -> Answer:
        check_parameters("transact_write_items", arguments, _TRANSACTION)
        given, token = arguments["TransactItems"], arguments.get("ClientRequestToken")
        if not 1 <= len(given) <= TRANSACTION_ACTIONS_MAX:
            raise invalid(
                "1 validation error detected: Value at 'transactItems' failed to satisfy constraint: "
                f"Member must have length less than or equal to {TRANSACTION_ACTIONS_MAX}"
            )
        actions = [transacted_action(each) for each in given]
        places = [each.place for each in actions]
        _check_distinct(places, "Transaction request cannot include multiple operations on one item")
        with self._lock:
            if token is not None and self._was_applied(token, given):
                return {}
            cancel_if_any([reason_if(place in self._held, "TransactionConflict", _CONFLICT) for place in places])
            cancel_if_any([reason_if(self._is_throttled(place), "ThrottlingError", _THROTTLED) for place in places])
            if self._strain.hold is None:
                return self._transact(actions, given, token)
            self._held.update(places)
        try:
            self._strain.hold()
            with self._lock:
                return self._transact(actions, given, token)
        finally:
            with self._lock:
                self._held.difference_update(places)

    def query(self, **arguments: Any) -> Answer:
        read = reads.bound("query", arguments, reads.QUERY)
        asked, sign, bounds = reads.asked_keys(read)
        place = (arguments["TableName"], asked, "")
        is_consistent, is_ascending = arguments.get("ConsistentRead", False), arguments.get("ScanIndexForward", True)
        with self._lock:
            self._refuse_throttled(place)
            partition = self._partition(place) or Partition()
            order = partition.read_order(is_consistent=is_consistent)
            low, high = key_range(order, sign, bounds) if sign else (0, len(order))
            if "ExclusiveStartKey" in arguments:
                start_partition, start = place_of(arguments["ExclusiveStartKey"])
                if start_partition != asked or (sign and key_range([start], sign, bounds) != (0, 1)):
                    raise invalid("The provided starting key is outside query boundaries based on provided conditions")
                if is_ascending:
                    low = max(low, bisect_right(order, start))
                else:
                    high = min(high, bisect_left(order, start))
            places = range(low, high) if is_ascending else range(high - 1, low - 1, -1)
            images = (self._image(partition, order[each], is_consistent) for each in places)
            return reads.page((each for each in images if each is not None), read, arguments)

    def scan(self, **arguments: Any) -> Answer:
        read = reads.bound("scan", arguments, reads.SCAN)
        with self._lock:
            self._refuse_throttled((arguments["TableName"], "", ""))
            return reads.page(self._scanned(arguments), read, arguments)

    def expire(self, count_max: int) -> int:
        """Removes up to `count_max` items whose TTL attribute is past, as DynamoDB does in its own time.

        Answers how many. Leaves items that a transaction holds.

        Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/howitworks-ttl.html
        """
        with self._lock:
            now_s = self._now_ms() // 1_000
            expired = (
                (name, stored)
                for name, table in self._tables.items()
                for stored in table.items()
                if is_expired(stored[0], table.declaration.ttl_attribute, now_s)
            )
            deletes = [
                (action("Delete", {"TableName": name, "Key": key_of(stored[0])}), stored) for name, stored in expired
            ]
            free = [*islice((each for each in deletes if each[0].place not in self._held), count_max)]
            for delete, stored in free:
                self._store(delete, stored, None, is_expiry=True)
            return len(free)

    def _write(self, kind: str, arguments: Mapping[str, Any]) -> Answer:
        write = single_action(kind, arguments)
        with self._lock:
            self._refuse_throttled(write.place)
            if write.place in self._held:
                raise AnsweredError("TransactionConflictException", _CONFLICT)
            old = self._stored(write.place)
            if (refusal := write.refusal(old)) is not None:
                raise refusal
            new = write.result(old)
            self._store(write, old, new)
        wanted = arguments.get("ReturnValues", "NONE")
        attributes = None if wanted == "NONE" else write.returned(wanted, old, new)
        answer: Answer = {} if attributes is None else {"Attributes": attributes}
        return answer | reads.consumed(arguments, reads.write_units(old, new))

    def _transact(self, actions: Sequence[Action], given: Any, token: str | None) -> Answer:
        """Applies all actions or none. Raises TransactionCanceledException with a reason for each action."""
        olds = [self._stored(each.place) for each in actions]
        outcomes = [each.outcome(old) for each, old in zip(actions, olds, strict=True)]
        cancel_if_any([reason for reason, _ in outcomes])
        changes = [*zip(actions, olds, (new for _, new in outcomes), strict=True)]
        if sum(max(size_of(old), size_of(new)) for _, old, new in changes) > TRANSACTION_BYTES_MAX:
            raise invalid("The aggregate size of the items in the transaction exceeds 4 MB")
        for each, old, new in changes:
            self._store(each, old, new)
        if token is not None:
            now_ms = self._now_ms()
            self._tokens = {name: known for name, known in self._tokens.items() if known[1] > now_ms}
            self._tokens[token] = given, now_ms + TOKEN_KEPT_MS
        return {}

    def _was_applied(self, token: str, given: Any) -> bool:
        """True if a transaction with this token was applied. Raises IdempotentParameterMismatchException."""
        if not 1 <= len(token) <= 36:
            raise invalid("Value at 'clientRequestToken' failed to satisfy constraint: length from 1 to 36")
        known, until_ms = self._tokens.get(token, (None, 0))
        if until_ms <= self._now_ms():
            return False
        if known != given:
            raise AnsweredError("IdempotentParameterMismatchException", "the token was used with other parameters")
        return True

    def _partition(self, place: Place) -> Partition | None:
        try:
            return self._tables[place[0]].partitions.get(place[1])
        except KeyError:
            raise AnsweredError("ResourceNotFoundException", "Requested resource not found") from None

    def _stored(self, place: Place) -> Stored | None:
        partition = self._partition(place)
        return None if partition is None else partition.items.get(place[2])

    def _image(self, partition: Partition | None, sort: str, is_consistent: bool) -> Stored | None:
        """The item as a read sees it."""
        if partition is None:
            return None
        if is_consistent or self._strain.stale is None:
            return partition.items.get(sort)
        images = partition.images(sort, self._now_ms() - self._strain.stale_ms)
        return images[self._strain.stale(len(images))]

    def _scanned(self, arguments: Mapping[str, Any]) -> Iterator[Stored]:
        self._partition((arguments["TableName"], "", ""))
        table, is_consistent = self._tables[arguments["TableName"]], arguments.get("ConsistentRead", False)
        start: tuple[tuple[int, str], str] = (-1, ""), ""
        if "ExclusiveStartKey" in arguments:
            partition, sort = place_of(arguments["ExclusiveStartKey"])
            start = (scan_place(partition), partition), sort
        order = table.scan_order()
        for each in order[bisect_left(order, start[0]) :]:
            found = table.partitions[each[1]]
            for sort in found.read_order(is_consistent=is_consistent):
                image = None if (each, sort) <= start else self._image(found, sort, is_consistent)
                if image is not None:
                    yield image

    def _store(self, write: Action, old: Stored | None, new: Stored | None, *, is_expiry: bool = False) -> None:
        if new is old:
            return
        name, partition, sort = write.place
        replaced_ms = None if self._strain.stale is None else self._now_ms()
        self._tables[name].put(partition, sort, new, replaced_ms)
        if self._observe is not None and item_of(old) != item_of(new):
            self._observe(Change(table=name, key=write.key, old=item_of(old), new=item_of(new), is_expiry=is_expiry))

    def _is_throttled(self, place: Place) -> bool:
        return self._strain.is_throttled is not None and self._strain.is_throttled(place)

    def _refuse_throttled(self, place: Place) -> None:
        _refuse_all(self._is_throttled(place))


class InterposedTables:
    """The tables as one client sees them: `interpose(operation, arguments, apply)` answers each of its calls.

    `apply` carries out the call. `interpose` may wait before and after it, call it twice or not at all, and raise what
    a driver raises in place of its answer.
    """

    def __init__(
        self, tables: Tables, interpose: Callable[[str, Mapping[str, Any], Callable[[], Answer]], Answer]
    ) -> None:
        self._tables = tables
        self._interpose = interpose

    def __getattr__(self, operation: str) -> Callable[..., Answer]:
        apply = getattr(self._tables, operation)
        return lambda **arguments: self._interpose(operation, arguments, partial(apply, **arguments))


def _check_count(operation: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise invalid(f"Too many items requested for the {operation} call")


def _check_distinct(places: Sequence[Place], message: str) -> None:
    if len({*places}) < len(places):
        raise invalid(message)


def _refuse_all(is_throttled: bool) -> None:
    if is_throttled:
        raise AnsweredError("ThrottlingException", _THROTTLED)
