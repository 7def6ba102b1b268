"""What a consumer watches for: the partitions that it wants to hear of, and those of which it does hear.

The fetch buffer says what it wants, and asks what is covered. The connection (connection.py) subscribes, and reports.
Both do it under the consumer's lock.

| channel                        | carries                                                             |
|--------------------------------|---------------------------------------------------------------------|
| `/<namespace>/<topic id>/<p>`  | wake-ups of one partition                                           |
| `/<namespace>/<topic id>/all`  | messages about many partitions of the topic                         |
| `/<namespace>/<topic id>/*`    | both, of all partitions: for a consumer that reads more than a few  |
| `/<namespace>/<group id>/share`| what an acknowledgement makes available in a share group            |

A partition is covered while each channel that may carry its wake-ups is subscribed to. Each subscription has a number
of its own. So a reader that armed a partition under one subscription knows that it must arm again under the next.
"""

from collections.abc import Collection, Iterable, Mapping

from penstock_core.limits import SDK_WAKE_UP_CHANNELS_MAX, SDK_WAKE_UP_PARTITIONS_MAX

Wanted = Mapping[str, Collection[int]]  # topic id -> partitions
Leaf = tuple[str, str]  # topic id, and the last segment of the channel


class Watch:
    """The wanted partitions and the subscriptions. `version` grows with each change of what is wanted.

    `hold_until_ms`: until then a quiet partition that is not covered waits for its subscription. After that it is read
    by long polls. `is_active` once anything was wanted. `is_absent` if the stage has no wake-ups at all.
    """

    def __init__(self) -> None:
        self.is_active = False
        self.is_absent = False
        self.is_closed = False
        self.version = 0
        self.hold_until_ms = 0
        self._wanted: dict[str, frozenset[int]] = {}
        self._channels: tuple[Leaf, ...] = ()
        self._leaves: frozenset[Leaf] = frozenset()
        self._numbers: dict[Leaf, int] = {}
        self._last_number = 0

    # The reader.

    def want(self, partitions: Iterable[tuple[str, int]], hold_until_ms: int, channels: Collection[Leaf] = ()) -> None:
        """Watch exactly these. The first time, quiet partitions wait until `hold_until_ms` for a subscription.

        `channels` are wanted on top of those of the partitions.
        """
        wanted: dict[str, set[int]] = {}
        for topic_id, partition in partitions:
            wanted.setdefault(topic_id, set()).add(partition)
        frozen = {topic_id: frozenset(numbers) for topic_id, numbers in wanted.items()}
        if frozen == self._wanted and tuple(channels) == self._channels:
            return
        if not self.is_active:
            self.is_active = True
            self.hold_until_ms = hold_until_ms
        self._wanted, self._channels = frozen, tuple(channels)
        self._leaves = frozenset([*_leaves(frozen, SDK_WAKE_UP_CHANNELS_MAX - len(channels)), *channels])
        self.version += 1

    def coverage(self, topic_id: str | None, partition: int) -> int:
        """A number that changes with each subscription that covers the partition; 0 if none does."""
        if topic_id is None:
            return 0
        of_topic = self._numbers.get((topic_id, "*"), 0)
        if of_topic:
            return of_topic
        single, shared = (self._numbers.get((topic_id, leaf), 0) for leaf in (str(partition), "all"))
        return max(single, shared) if single and shared else 0

    def channel_coverage(self, channel: Leaf) -> int:
        """A number that changes with each subscription to one of the `channels` that were wanted; 0 without one."""
        return self._numbers.get(channel, 0)

    def is_polling(self, now_ms: int) -> bool:
        """Partitions that are not covered are read by long polls."""
        return self.is_active and now_ms >= self.hold_until_ms

    def close(self) -> None:
        """Watch nothing any more."""
        self.is_closed = True
        self.version += 1

    # The connection.

    @property
    def leaves(self) -> frozenset[Leaf]:
        """The channels to be subscribed to."""
        return self._leaves

    @property
    def is_covering(self) -> bool:
        """Some channel is subscribed to."""
        return bool(self._numbers)

    def subscribed(self, leaf: Leaf) -> None:
        """Messages of this channel come from now on."""
        self._last_number += 1
        self._numbers[leaf] = self._last_number

    def unsubscribed(self, leaf: Leaf) -> None:
        """No message of this channel counts any more."""
        self._numbers.pop(leaf, None)

    def lost(self) -> None:
        """The connection is gone, with all subscriptions."""
        self._numbers.clear()


def _leaves(wanted: Mapping[str, frozenset[int]], most: int) -> list[Leaf]:
    """The channels for these partitions, `most` at the most: one connection may subscribe to no more.

    A channel for each partition, where they are few: the other partitions' wake-ups cost money. Else one per topic.
    Topics beyond the bound are not covered.
    """
    exact: list[Leaf] = []
    for topic_id, numbers in sorted(wanted.items()):
        if len(numbers) > SDK_WAKE_UP_PARTITIONS_MAX:
            exact.append((topic_id, "*"))
        else:
            exact += [(topic_id, str(number)) for number in sorted(numbers)] + [(topic_id, "all")]
    if len(exact) <= most:
        return exact
    return [(topic_id, "*") for topic_id in sorted(wanted)][:most]
