"""GroupStore and MembershipStore in memory, as faithful as those on DynamoDB."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from penstock_core.groups.group import GroupState, Member, SessionTouch
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken, MayGoBack, refusal
from penstock_core.groups.sessions import concurrent_update, touched
from penstock_core.ids import GroupName, MemberName, PartitionKey, TopicId
from penstock_core.quotas.claim import GroupClaim


class MemoryGroupStore:
    """GroupStore: the port documents its methods."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._leases: dict[GroupName, dict[PartitionKey, Lease]] = {}

    def held(self) -> AbstractContextManager[object]:
        """A context in which no other thread changes this store."""
        return self._lock

    def commit(
        self,
        group: GroupName,
        committed: CommittedOffset,
        token: LeaseToken | None,
        may_go_back: MayGoBack,
        may_create: bool,
    ) -> None:
        key = committed.partition
        with self._lock:
            stored = self._leases.get(group, {}).get(key)
            error = refusal(stored, key, committed.offset, token, may_go_back=may_go_back, may_create=may_create)
            if error is not None:
                raise error
            self._put(group, _with_commit(stored or Lease(topic=committed.topic, partition=key), committed))

    def leases(self, group: GroupName) -> Sequence[Lease]:
        with self._lock:
            return [*self._leases.get(group, {}).values()]

    def lease_page(
        self, group: GroupName, topic_id: TopicId | None, after: str, limit: int
    ) -> tuple[Sequence[Lease], bool]:
        leases = {str(lease.partition): lease for lease in self.leases(group)}
        behind = sorted(
            key for key, lease in leases.items() if key > after and topic_id in (None, lease.partition.topic_id)
        )
        return [leases[key] for key in behind[:limit]], len(behind) > limit

    def find_leases(self, group: GroupName, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Lease]:
        with self._lock:
            stored = self._leases.get(group, {})
            return {key: stored[key] for key in partitions if key in stored}

    def take_lease(self, group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> Lease:
        with self._lock:
            stored = self._unmoved(group, seen)
            return self._put(group, replace(stored, owner=owner, epoch=epoch, topic=seen.topic))

    def reset_lease(self, group: GroupName, seen: Lease, committed: CommittedOffset, epoch: int) -> None:
        with self._lock:
            stored = self._unmoved(group, seen)
            self._put(group, replace(_with_commit(stored, committed), owner=None, epoch=epoch))

    def release_lease(self, group: GroupName, seen: Lease, epoch: int) -> None:
        with self._lock:
            self._put(group, replace(self._unmoved(group, seen), owner=None, epoch=epoch))

    def delete_lease(self, group: GroupName, seen: Lease) -> bool:
        with self._lock:
            stored = self._leases.get(group, {}).get(seen.partition)
            if stored is None:
                return seen.epoch == 0 and seen.offset is None
            if (stored.epoch, stored.offset, stored.committed_at_ms) != (seen.epoch, seen.offset, seen.committed_at_ms):
                return False
            del self._leases[group][seen.partition]
            return True

    def _unmoved(self, group: GroupName, seen: Lease) -> Lease:
        stored = self._leases.get(group, {}).get(seen.partition)
        if (stored.epoch if stored else 0) != seen.epoch:
            raise concurrent_update(f"the lease on partition {seen.partition} of group {group}")
        return stored or Lease(topic=seen.topic, partition=seen.partition)

    def _put(self, group: GroupName, lease: Lease) -> Lease:
        self._leases.setdefault(group, {})[lease.partition] = lease
        return lease


class MemoryMembershipStore:
    """MembershipStore: the port documents its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[GroupName, GroupState] = {}
        self._registered: dict[GroupName, GroupClaim | None] = {}
        self._members: dict[GroupName, dict[MemberName, Member]] = {}
        self._targets: dict[GroupName, dict[tuple[int, str], tuple[bytes, ...]]] = {}

    def get_group(self, group: GroupName) -> GroupState | None:
        return self._groups.get(group)

    def find_groups(self, groups: Sequence[GroupName]) -> Mapping[GroupName, GroupState]:
        with self._lock:
            return {name: self._groups[name] for name in groups if name in self._groups}

    def change_group(self, old: GroupState | None, new: GroupState) -> None:
        with self._lock:
            stored = self._groups.get(new.name)
            if (stored and stored.version) != (old and old.version):
                raise concurrent_update(f"group {new.name}")
            self._groups[new.name] = new

    def delete_group(self, seen: GroupState) -> None:
        with self._lock:
            stored = self._groups.get(seen.name)
            if stored is None or stored.version != seen.version:
                raise concurrent_update(f"group {seen.name}")
            del self._groups[seen.name]

    def register(self, group: GroupName, claim: GroupClaim | None = None) -> GroupClaim | None:
        with self._lock:
            self._registered[group] = noted = self._registered.get(group) or claim
            return noted

    def unregister(self, group: GroupName) -> GroupClaim | None:
        with self._lock:
            return self._registered.pop(group, None)

    def is_registered(self, group: GroupName) -> bool:
        with self._lock:
            return group in self._registered

    def registered(self, after: str, limit: int) -> Sequence[GroupName]:
        with self._lock:
            return sorted(name for name in self._registered if name > after)[:limit]

    def members(self, group: GroupName) -> Sequence[Member]:
        with self._lock:
            return [member for _, member in sorted(self._members.get(group, {}).items())]

    def find_members(self, group: GroupName, names: Sequence[MemberName]) -> Mapping[MemberName, Member]:
        with self._lock:
            stored = self._members.get(group, {})
            return {name: stored[name] for name in names if name in stored}

    def put_member(self, group: GroupName, old: Member | None, new: Member) -> None:
        with self._lock:
            if _heard(self._members.get(group, {}).get(new.name)) != _heard(old):
                raise concurrent_update(f"member {new.name} of group {group}")
            self._members.setdefault(group, {})[new.name] = new

    def touch_member(self, group: GroupName, name: MemberName, touch: SessionTouch) -> Member:
        with self._lock:
            stored = self._members.get(group, {}).get(name)
            member = touched(stored, group, name, touch)
            self._members[group][name] = member
            return member

    def remove_member(self, group: GroupName, seen: Member) -> bool:
        with self._lock:
            stored = self._members.get(group, {}).get(seen.name)
            if stored is None or _heard(stored) != _heard(seen):
                return False
            del self._members[group][seen.name]
            return True

    def put_target(self, group: GroupName, epoch: int, target_id: str, chunks: Sequence[bytes]) -> None:
        with self._lock:
            self._targets.setdefault(group, {})[epoch, target_id] = tuple(chunks)

    def get_target(self, group: GroupName, epoch: int, target_id: str) -> Sequence[bytes]:
        with self._lock:
            return self._targets.get(group, {}).get((epoch, target_id), ())

    def remove_targets(self, group: GroupName, below_epoch: int) -> None:
        with self._lock:
            stored = self._targets.get(group, {})
            self._targets[group] = {key: chunks for key, chunks in stored.items() if key[0] >= below_epoch}


def _with_commit(lease: Lease, committed: CommittedOffset) -> Lease:
    return replace(
        lease,
        topic=committed.topic,
        offset=committed.offset,
        metadata=committed.metadata,
        committed_at_ms=committed.committed_at_ms,
        leader_epoch=committed.leader_epoch,
    )


def _heard(member: Member | None) -> tuple[str, int, int] | None:
    """The fields that a heartbeat or another process changes."""
    return None if member is None else (member.member_id, member.sequence, member.deadline_ms)
