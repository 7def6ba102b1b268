"""The items of a table in partitions, each partition in the order of its sort keys.

An item is stored with its size. Stored items never change: a write stores another item in their place.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from penstock_core.storage.item import item_bytes
from penstock_core.storage.table_declarations import PARTITION_KEY, SORT_KEY, TableDeclaration
from penstock_service.adapters.tables.values import invalid, normal

Item = Mapping[str, Any]
Stored = tuple[Item, int]  # an item, and its size in bytes
Place = tuple[str, str, str]  # table, partition key, sort key

KEY_BYTES_MAX = {PARTITION_KEY: 2_048, SORT_KEY: 1_024}
TTL_AGE_S_MAX = 5 * 365 * 86_400  # DynamoDB leaves items that expired longer ago
_OLD_IMAGES_MAX = 4  # of an item, for reads that may be stale
_KEY_TOO_LONG = {
    PARTITION_KEY: "Size of hashkey has exceeded the maximum size limit of2048 bytes",
    SORT_KEY: "Aggregated size of all range keys has exceeded the size limit of 1024 bytes",
}


@dataclass(slots=True)
class Partition:
    """The items of one partition key, by sort key.

    `old` has the images that items had before, each with the time in ms at which it was replaced; only if asked for.
    """

    items: dict[str, Stored] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    old: dict[str, deque[tuple[Stored | None, int]]] = field(default_factory=dict)

    def put(self, sort: str, new: Stored | None) -> None:
        """Stores the item, or removes it."""
        if new is not None:
            if sort not in self.items:
                insort(self.order, sort)
            self.items[sort] = new
        elif self.items.pop(sort, None) is not None:
            del self.order[bisect_left(self.order, sort)]

    def images(self, sort: str, since_ms: int) -> Sequence[Stored | None]:
        """The item, and what it was before since then, the newest first."""
        old = (image for image, until_ms in reversed(self.old.get(sort, ())) if until_ms >= since_ms)
        return [self.items.get(sort), *old]

    def read_order(self, *, is_consistent: bool) -> list[str]:
        """The sort keys that a read looks at, in their order."""
        return self.order if is_consistent or not self.old else sorted({*self.order, *self.old})


class TableStore:
    """One table."""

    def __init__(self, declaration: TableDeclaration) -> None:
        self.declaration = declaration
        self.partitions: dict[str, Partition] = {}
        self._scan_order: list[tuple[int, str]] | None = None

    def put(self, partition: str, sort: str, new: Stored | None, replaced_ms: int | None) -> None:
        """Stores the item in place of the one with these keys, or removes that one.

        With a time, reads that may be stale still find the old image.
        """
        found = self.partitions.get(partition)
        if found is None:
            found = self.partitions[partition] = Partition()
            self._scan_order = None
        if replaced_ms is not None:
            images = found.old.setdefault(sort, deque(maxlen=_OLD_IMAGES_MAX))
            images.append((found.items.get(sort), replaced_ms))
        found.put(sort, new)
        if not found.items and not found.old:
            del self.partitions[partition]
            self._scan_order = None

    def scan_order(self) -> Sequence[tuple[int, str]]:
        """All partition keys, in the order of a hash of theirs, as a scan meets them."""
        if self._scan_order is None:
            self._scan_order = sorted((scan_place(partition), partition) for partition in self.partitions)
        return self._scan_order

    def items(self) -> Iterator[Stored]:
        """All items."""
        for partition in self.partitions.values():
            yield from partition.items.values()


def scan_place(partition: str) -> int:
    """The place at which a scan meets the partition."""
    return crc32(partition.encode())


def item_of(stored: Stored | None) -> Item | None:
    """The item."""
    return None if stored is None else stored[0]


def size_of(stored: Stored | None) -> int:
    """The size of the item, 0 if there is none."""
    return 0 if stored is None else stored[1]


def key_of(item: Item) -> Item:
    """The key attributes of an item."""
    return {PARTITION_KEY: item[PARTITION_KEY], SORT_KEY: item[SORT_KEY]}


def is_expired(item: Item, attribute: str | None, now_s: int) -> bool:
    """True if the TTL attribute is a number of seconds that is past."""
    value = item.get(attribute or "", {})
    return "N" in value and now_s - TTL_AGE_S_MAX <= float(value["N"]) < now_s


def measured_item(item: Any) -> Stored:
    """A whole item in its normal form, and its size. Raises ValidationException."""
    for key in (PARTITION_KEY, SORT_KEY):
        if key not in item:
            raise invalid(f"One or more parameter values were invalid: Missing the key {key} in the item")
        if "S" not in item[key]:
            raise invalid(
                f"One or more parameter values were invalid: Type mismatch for key {key} expected: S actual: "
                f"{next(iter(item[key]), '')}"
            )
        check_key(key, item[key]["S"])
    found = {name: normal(value) for name, value in item.items()}
    return found, item_bytes(found)


def place_of(key: Any) -> tuple[str, str]:
    """The partition key and the sort key of a Key. Raises ValidationException."""
    try:
        partition, sort = key[PARTITION_KEY]["S"], key[SORT_KEY]["S"]
    except (KeyError, TypeError):
        raise invalid("The provided key element does not match the schema") from None
    if len(key) != 2:
        raise invalid("The provided key element does not match the schema")
    check_key(PARTITION_KEY, partition)
    check_key(SORT_KEY, sort)
    return partition, sort


def check_key(key: str, text: str) -> None:
    """Raises ValidationException for a text that is no value of this key."""
    if not text:
        raise invalid(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an "
            f"empty string value. Key: {key}"
        )
    most = KEY_BYTES_MAX[key]
    if len(text) * 4 > most and len(text.encode()) > most:
        raise invalid(f"One or more parameter values were invalid: {_KEY_TOO_LONG[key]}")
