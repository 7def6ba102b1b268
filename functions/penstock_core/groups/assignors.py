"""Assignors give each partition an owner: range, round robin, sticky.

Pure and deterministic, over indexes instead of names. Each assignor gives each partition of a subscribed topic exactly
one owner, a subscriber of that topic. With equal subscriptions, `round_robin` and `sticky` leave any two members at
most one partition apart. `range` does so within each topic. Kafka's assignors of these names do the same.
"""

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

NOBODY = -1

Owners = list[list[int]]
_Place = tuple[int, int]  # topic, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignableTopic:
    """`members` are ascending indexes of the subscribers.

    `owners` has the former owner of each partition, or NOBODY.
    """

    members: tuple[int, ...]
    owners: tuple[int, ...]

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.owners)


def assign(assignor: str, topics: Sequence[AssignableTopic], member_count: int) -> Owners:
    """The owner of each partition of each topic: a member's index, or NOBODY for a topic without subscribers.

    Raises ValueError for an unknown assignor.
    """
    match assignor:
        case "range":
            return [_ranges(topic) for topic in topics]
        case "round_robin":
            return _round_robin(topics)
        case "sticky":
            return _Sticky(topics, member_count).owners
    raise ValueError(f"assignor {assignor!r} does not exist")


def _ranges(topic: AssignableTopic) -> list[int]:
    if not topic.members:
        return [NOBODY] * topic.partitions
    each, more = divmod(topic.partitions, len(topic.members))
    return [member for place, member in enumerate(topic.members) for _ in range(each + (place < more))]


def _round_robin(topics: Sequence[AssignableTopic]) -> Owners:
    owners: Owners = []
    turn = 0  # the member whose turn it is, or the next one that subscribes
    for topic in topics:
        chosen = [NOBODY] * topic.partitions
        for partition in range(topic.partitions if topic.members else 0):
            place = bisect_left(topic.members, turn)
            chosen[partition] = topic.members[place if place < len(topic.members) else 0]
            turn = chosen[partition] + 1
        owners.append(chosen)
    return owners


class _Sticky:
    """Members keep what they have and may have; then free partitions go to the members with least.

    Then single partitions move from members with most to members with least until no such move helps. With equal
    subscriptions that moves as few partitions as a balance needs: a partition moves only from a member above its share
    while another member is below. Topics with the same subscribers form one pool. Within a pool all partitions are
    alike.
    """

    def __init__(self, topics: Sequence[AssignableTopic], member_count: int) -> None:
        self.owners: Owners = [[NOBODY] * topic.partitions for topic in topics]
        self._load = [0] * member_count
        free: dict[tuple[int, ...], list[_Place]] = {}
        held: dict[tuple[int, ...], dict[int, list[_Place]]] = {}
        for number, topic in enumerate(topics):
            if not topic.members:
                continue
            subscribers = frozenset(topic.members)
            pool_free = free.setdefault(topic.members, [])
            pool_held = held.setdefault(topic.members, {})
            for partition, owner in enumerate(topic.owners):
                if owner in subscribers:
                    self._give((number, partition), owner, pool_held)
                else:
                    pool_free.append((number, partition))
        pools = sorted(free, key=lambda members: (len(members), members))  # the pools with the least choice first
        for members in pools:
            self._fill(members, free[members], held[members])
        is_level = False
        while not is_level:  # a move in one pool may make another worth while; each lessens the sum of squared loads
            is_level = not sum(self._level(members, held[members]) for members in pools)

    def _give(self, place: _Place, member: int, pool_held: dict[int, list[_Place]]) -> None:
        self.owners[place[0]][place[1]] = member
        self._load[member] += 1
        pool_held.setdefault(member, []).append(place)

    def _fill(self, members: Sequence[int], places: Sequence[_Place], pool_held: dict[int, list[_Place]]) -> None:
        least = [(self._load[member], member) for member in members]
        heapq.heapify(least)
        for place in places:
            load, member = least[0]
            self._give(place, member, pool_held)
            heapq.heapreplace(least, (load + 1, member))

    def _level(self, members: Sequence[int], pool_held: dict[int, list[_Place]]) -> bool:
        """True if a partition moved.

        A member first gives the partition that it got last, since it did not own that one before.
        """
        least = [(self._load[member], member) for member in members]
        most = [(-self._load[member], member) for member, places in pool_held.items() if places]
        heapq.heapify(least)
        heapq.heapify(most)
        has_moved = False
        while most:
            negative, giver = most[0]
            load, taker = least[0]
            if -negative != self._load[giver] or not pool_held[giver]:
                heapq.heappop(most)  # the load has changed since; the heap has the new one too
            elif load != self._load[taker]:
                heapq.heappop(least)
            elif self._load[giver] - load <= 1:
                break
            else:
                self._load[giver] -= 1
                self._give(pool_held[giver].pop(), taker, pool_held)
                has_moved = True
                for member in (giver, taker):
                    heapq.heappush(least, (self._load[member], member))
                    heapq.heappush(most, (-self._load[member], member))
        return has_moved
