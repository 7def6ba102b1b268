"""Spread the records of a hot key over several partitions (docs/protocol/partitions).

The salt chooses the partition and nothing else. The record keeps its key, so each reader gets the original one.
"""

from collections.abc import Callable, Mapping

from penstock.arguments import check
from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode
from penstock_core.limits import TOPIC_PARTITIONS_MAX

SaltedKeys = Mapping[bytes | str, int] | Callable[[str, bytes], int]


class Salting:
    """How many partitions each key is spread over: by key, or by a function of topic and key."""

    __slots__ = ("_by_key", "_spread")

    def __init__(self, salted_keys: SaltedKeys) -> None:
        """Raises InvalidError for keys or numbers of a wrong type or size."""
        self._spread: Callable[[str, bytes], int] | None = None
        self._by_key: dict[bytes, int] = {}
        if callable(salted_keys):
            self._spread = salted_keys
            return
        check(isinstance(salted_keys, Mapping), f"salted_keys={salted_keys!r:.100}: give {{b'key': 8}} or a function")
        for key, count in salted_keys.items():
            check(isinstance(key, bytes | str), f"salted_keys has the key {key!r:.100}: give bytes or str")
            self._by_key[key.encode() if isinstance(key, str) else key] = _checked(key, count)

    def step(self, topic: str, key: bytes, partitions: int, choose: Callable[[int], int]) -> int:
        """How many partitions behind the key's own one a record goes, 0 if the key is not salted.

        `choose(n)` picks one of n. Raises InvalidError if the function gives no whole number of partitions.
        """
        count = self._by_key.get(key, 1) if self._spread is None else _checked(key, self._spread(topic, key))
        count = min(count, partitions)
        return choose(count) if count > 1 else 0

    def refuse_compacted(self, topic: str, key: bytes) -> None:
        """Raises InvalidError if the key is salted: a tombstone would delete it in one of its partitions only."""
        is_salted = key in self._by_key if self._spread is None else self._spread(topic, key) > 1
        if is_salted:
            raise InvalidError(
                ErrorCode.INVALID_REQUEST,
                f"salted_keys has {key!r:.100}, and topic {topic!r} is compacted: each partition would keep a record "
                "of the key. Leave the key out, or use a topic without compaction",
            )


def _checked(key: object, count: object) -> int:
    is_number = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= TOPIC_PARTITIONS_MAX
    check(is_number, f"salted_keys gives {count!r:.100} for {key!r:.100}: give 1 to {TOPIC_PARTITIONS_MAX} partitions")
    assert isinstance(count, int)
    return count
