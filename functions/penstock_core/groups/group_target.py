"""The target assignment of one group epoch says which member is to own which partition. Immutable once it is stored.

```
version u8 = 2
members u16, each: name length u8, name, fingerprint of its subscription 8 B        sorted by name
topics  u32, each: topic id 10 B, name length u16, name, late_from u16, partitions u16, then for each an owner u16
                                                                                                  sorted by topic id
```
Version 1, which lacks `late_from`, is read too.

Big-endian. An owner is the index of a member, 65,535 for nobody. 1,000 members with ids of 36 letters and 10,000
partitions in 100 topics make about 70 KB. A target that is longer than an item may be is stored in chunks.
"""

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import byteorder

from penstock_core.formats import BYTE_FORMATS
from penstock_core.groups.assignors import NOBODY, AssignableTopic, assign
from penstock_core.groups.group import FINGERPRINT_BYTES, Member
from penstock_core.groups.topic_patterns import TopicReach
from penstock_core.ids import TOPIC_ID_BYTES, MemberName, Partition, PartitionKey, TopicId, TopicName
from penstock_core.limits import TARGET_CHUNK_BYTES
from penstock_core.log.topic import Topic

[_VERSION] = BYTE_FORMATS["target"].writes
_NOBODY = 0xFFFF
_ALL_PARTITIONS: Mapping[TopicId, TopicReach] = {}
_NONE_LATE = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopic:
    """A topic as it was when the target was made.

    `owners` has a member's index, or NOBODY, for each partition. The partitions from `late_from` on came after the
    group had begun to read the topic. All are late if the topic came after its subscription. A member reads them from
    their beginning, so that the group misses none of their records.
    """

    topic_id: TopicId
    name: TopicName
    owners: tuple[int, ...]
    late_from: int = _NONE_LATE

    def partition_keys(self) -> list[PartitionKey]:
        """The keys of all partitions, in their order."""
        return [PartitionKey(self.topic_id, Partition(number)) for number in range(len(self.owners))]


@dataclass(frozen=True, kw_only=True)
class TargetAssignment:
    """The members by name, each with its subscription's fingerprint, and the topics by id.

    Both are in ascending order.
    """

    members: tuple[tuple[MemberName, bytes], ...] = ()
    topics: tuple[TargetTopic, ...] = ()

    def includes(self, member: Member) -> bool:
        """True if the target was made for the member with its present subscription."""
        return self._fingerprints.get(member.name) == member.subscription.fingerprint()

    def part_of(self, name: MemberName) -> Mapping[PartitionKey, TopicName]:
        """The partitions that the member is to own, each with its topic's name."""
        return self._parts.get(name, {})

    def owner_of(self, key: PartitionKey) -> MemberName | None:
        """The member that is to own the partition."""
        return self._owners.get(key)

    def late_from(self, topic_id: TopicId) -> int | None:
        """The first partition of the topic that came after the group had begun to read; None if it is not in here."""
        return self._late_from.get(topic_id)

    def ends(self) -> Mapping[TopicId, int]:
        """The number of partitions of each topic that the target has given away."""
        return {topic.topic_id: len(topic.owners) for topic in self.topics}

    def is_late(self, key: PartitionKey) -> bool:
        """True if the partition came after the group had begun to read."""
        late_from = self.late_from(key.topic_id)
        return late_from is not None and key.partition >= late_from

    def fits(
        self,
        members: Iterable[Member],
        topics: Iterable[Topic],
        reaches: Mapping[TopicId, TopicReach] = _ALL_PARTITIONS,
    ) -> bool:
        """True if the target was made for exactly these members, topics and reaches.

        The members must have the same subscriptions, and the topics the same numbers of partitions.
        """
        now = {member.name: member.subscription.fingerprint() for member in members}
        sizes = {topic.topic_id: _end(topic, reaches) for topic in topics}
        return now == self._fingerprints and sizes == {topic.topic_id: len(topic.owners) for topic in self.topics}

    @cached_property
    def _fingerprints(self) -> Mapping[MemberName, bytes]:
        return dict(self.members)

    @cached_property
    def _owners(self) -> Mapping[PartitionKey, MemberName]:
        return {key: name for name, part in self._parts.items() for key in part}

    @cached_property
    def _late_from(self) -> Mapping[TopicId, int]:
        return {topic.topic_id: topic.late_from for topic in self.topics}

    @cached_property
    def _parts(self) -> Mapping[MemberName, Mapping[PartitionKey, TopicName]]:
        parts: dict[MemberName, dict[PartitionKey, TopicName]] = {name: {} for name, _ in self.members}
        by_index = [*parts.values()]
        for topic in self.topics:
            for number, owner in enumerate(topic.owners):
                if owner != NOBODY:
                    by_index[owner][PartitionKey(topic.topic_id, Partition(number))] = topic.name
        return parts


EMPTY_TARGET = TargetAssignment()


def make_target(
    assignor: str,
    members: Iterable[Member],
    topics: Iterable[Topic],
    previous: TargetAssignment,
    reaches: Mapping[TopicId, TopicReach] = _ALL_PARTITIONS,
) -> TargetAssignment:
    """The target for these members and topics. The sticky assignor changes as little of `previous` as it can.

    Pass the topics that some member subscribes to. `reaches` tells how far the group reads topics with generations. It
    takes about 0.05 s for 1,000 members and 10,000 partitions.
    """
    by_name = sorted(members, key=lambda member: member.name)
    by_id = sorted(topics, key=lambda topic: topic.topic_id)
    indexes = {member.name: index for index, member in enumerate(by_name)}
    now = [indexes.get(name, NOBODY) for name, _ in previous.members]
    before = {
        topic.topic_id: [now[owner] if owner != NOBODY else NOBODY for owner in topic.owners]
        for topic in previous.topics
    }
    subscribers = _subscribers(by_name, by_id)
    former = [_resized(before.get(topic.topic_id, ()), _end(topic, reaches)) for topic in by_id]
    starts = [reaches[topic.topic_id].start if topic.topic_id in reaches else 0 for topic in by_id]

    def assigned(owners: Iterable[Sequence[int]]) -> list[list[int]]:
        pairs = zip(by_id, owners, strict=True)
        pool = [AssignableTopic(members=subscribers[topic.topic_id], owners=tuple(each)) for topic, each in pairs]
        return assign(assignor, pool, len(by_name))

    # Partitions of older generations have nothing to read. So each member gets its share of the others.
    older = assigned(each[:start] for each, start in zip(former, starts, strict=True))
    newest = assigned(each[start:] for each, start in zip(former, starts, strict=True))
    owners = [[*old, *new] for old, new in zip(older, newest, strict=True)]
    return TargetAssignment(
        members=tuple((member.name, member.subscription.fingerprint()) for member in by_name),
        topics=tuple(
            TargetTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                owners=tuple(chosen),
                late_from=_first_late(topic, by_name, previous, reaches.get(topic.topic_id)),
            )
            for topic, chosen in zip(by_id, owners, strict=True)
        ),
    )


def _end(topic: Topic, reaches: Mapping[TopicId, TopicReach]) -> int:
    """The partition at which the group stops reading the topic."""
    reach = reaches.get(topic.topic_id)
    return topic.partitions if reach is None else reach.end


def _first_late(topic: Topic, members: Iterable[Member], previous: TargetAssignment, reach: TopicReach | None) -> int:
    """The first partition that came after the group had begun to read the topic, or would have, had it been there.

    A group that joins anew is known by its commits alone: its last member took the topic out of the target.
    """
    known = previous.late_from(topic.topic_id)
    if known is not None:
        return known
    if any(member.subscription.selects(topic.name) for member in members if previous.includes(member)):
        return 0
    return topic.partitions if reach is None or reach.late_from is None else reach.late_from


def encode_target(target: TargetAssignment) -> list[bytes]:
    """The chunks, in order, of `TARGET_CHUNK_BYTES` at most. There is at least one."""
    parts = [struct.pack(">BH", _VERSION, len(target.members))]
    for name, fingerprint in target.members:
        encoded = name.encode()
        parts.append(struct.pack(">B", len(encoded)) + encoded + fingerprint)
    parts.append(struct.pack(">I", len(target.topics)))
    for topic in target.topics:
        encoded = topic.name.encode()
        parts.append(bytes.fromhex(topic.topic_id) + struct.pack(">H", len(encoded)) + encoded)
        owners = array("H", [_NOBODY if owner == NOBODY else owner for owner in topic.owners])
        parts.append(struct.pack(">HH", topic.late_from, len(owners)) + _big_endian(owners).tobytes())
    data = b"".join(parts)
    return [data[start : start + TARGET_CHUNK_BYTES] for start in range(0, len(data), TARGET_CHUNK_BYTES)]


def decode_target(chunks: Sequence[bytes]) -> TargetAssignment:
    """The inverse of `encode_target`. Raises ValueError for bytes that it cannot have made."""
    data = b"".join(chunks)
    try:
        target, end = _decode(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a target of {len(data)} bytes is torn: {error}") from error
    if end != len(data):
        raise ValueError(f"a target of {len(data)} bytes ends at {end}")
    return target


def _decode(data: bytes) -> tuple[TargetAssignment, int]:
    version, count = struct.unpack_from(">BH", data)
    if version not in BYTE_FORMATS["target"].reads:
        raise ValueError(f"a target of version {version}: this code reads 1 and {_VERSION}")
    position = 3
    members: list[tuple[MemberName, bytes]] = []
    for _ in range(count):
        end = position + 1 + data[position]
        members.append((MemberName(data[position + 1 : end].decode()), data[end : end + FINGERPRINT_BYTES]))
        position = end + FINGERPRINT_BYTES
    [topic_count] = struct.unpack_from(">I", data, position)
    position += 4
    topics: list[TargetTopic] = []
    for _ in range(topic_count):
        topic_id = data[position : position + TOPIC_ID_BYTES].hex()
        [length] = struct.unpack_from(">H", data, position + TOPIC_ID_BYTES)
        position += TOPIC_ID_BYTES + 2
        name = data[position : position + length].decode()
        position += length
        late_from = _NONE_LATE
        if version != 1:
            [late_from] = struct.unpack_from(">H", data, position)
            position += 2
        [partitions] = struct.unpack_from(">H", data, position)
        position += 2
        owners = array("H")
        owners.frombytes(data[position : position + 2 * partitions])
        if len(owners) != partitions:
            raise ValueError(f"a target of {len(data)} bytes is torn in topic {name}")
        position += 2 * partitions
        numbers = tuple(NOBODY if owner == _NOBODY else owner for owner in _big_endian(owners))
        if any(number >= count for number in numbers):
            raise ValueError(f"a target names an owner beyond its {count} members, in topic {name}")
        topics.append(
            TargetTopic(topic_id=TopicId(topic_id), name=TopicName(name), owners=numbers, late_from=late_from)
        )
    return TargetAssignment(members=tuple(members), topics=tuple(topics)), position


def _subscribers(members: Sequence[Member], topics: Sequence[Topic]) -> Mapping[TopicId, tuple[int, ...]]:
    """The subscribers of each topic. Members with equal subscriptions are asked once."""
    alike: dict[bytes, list[int]] = {}
    for index, member in enumerate(members):
        alike.setdefault(member.subscription.fingerprint(), []).append(index)
    found: dict[TopicId, tuple[int, ...]] = {}
    for topic in topics:
        selecting = [each for each in alike.values() if members[each[0]].subscription.selects(topic.name)]
        found[topic.topic_id] = tuple(sorted(index for each in selecting for index in each))
    return found


def _resized(owners: Sequence[int], partitions: int) -> tuple[int, ...]:
    """The owners of a topic of so many partitions. Added partitions have none; a topic never loses partitions."""
    return (*owners, *[NOBODY] * (partitions - len(owners)))[:partitions]


def _big_endian(numbers: "array[int]") -> "array[int]":
    if byteorder == "little":
        numbers.byteswap()
    return numbers
