"""The partitions that a member of a group holds, and those of them that it must release.

    granted -> owned (the application has it) -> revoked -> released
                                              -> lost

Invariants:

- Heartbeats claim exactly the granted and the owned partitions. `claims` counts the changes that the group has to hear
  of: the answer to a heartbeat from before the last change does not know all of them.
- A partition of a topic outside the subscription is not granted. If it is owned, the member must release it, even if
  the group does not know that yet.
"""

from collections.abc import Iterable, Mapping

from penstock.group.group_calls import HeartbeatResponse, HeldLease
from penstock.model import TopicPartition
from penstock_core.groups.group import Subscription


class Holdings:
    """Dicts and sets are never changed in place, because `is_changed` looks at them without the lock."""

    def __init__(self) -> None:
        self.subscription = Subscription()
        self.is_subscription_known = False  # to the group
        self.owned: dict[TopicPartition, HeldLease] = {}
        self.claims = 0
        self.is_complete = False  # the group knows all claims, and gives no more partitions
        self._granted: dict[TopicPartition, HeldLease] = {}
        self._revoked: set[TopicPartition] = set()  # part of `owned`
        self._lost: set[TopicPartition] = set()

    @property
    def is_changed(self) -> bool:
        """The application has something to do."""
        is_granted = not self._granted.keys() <= self.owned.keys()
        return bool(self._lost or self._revoked or is_granted)

    def subscribe(self, subscription: Subscription) -> None:
        """Hold nothing of other topics."""
        self.subscription = subscription
        self.is_subscription_known = False
        self._revoke(frozenset())  # the group revokes again when it has heard of this
        self._claim_anew()

    def obey(self, claims: int, answer: HeartbeatResponse) -> bool:
        """Take the answer to a heartbeat that was sent at this count of `claims`; false if that count is old."""
        if self.is_subscription_known or claims == self.claims:  # else it answers an older subscription
            self._revoke(answer.revoked)
        self._grant(answer.granted)
        is_as_claimed = claims == self.claims
        self.is_subscription_known = self.is_subscription_known or is_as_claimed
        self.is_complete = answer.is_complete and is_as_claimed
        return is_as_claimed

    def take_lost(self) -> list[TopicPartition]:
        """The partitions that the member lost since the last call, sorted."""
        lost, self._lost = self._lost, set()
        return sorted(lost)

    def to_revoke(self) -> list[TopicPartition]:
        """The partitions that the member must release, sorted."""
        return sorted(self._revoked)

    def take_granted(self) -> dict[TopicPartition, HeldLease]:
        """The partitions that the member owns from now on.

        A partition of an older topic of the same name must be released before.
        """
        taken = {each: lease for each, lease in sorted(self._granted.items()) if each not in self.owned}
        self.owned |= taken
        self._granted = {each: lease for each, lease in self._granted.items() if each not in taken}
        return taken

    def release(self, partitions: Iterable[TopicPartition]) -> bool:
        """The application has released these; true if the group must hear of it."""
        released = [each for each in partitions if self.owned.pop(each, None) is not None]
        self._revoked.difference_update(partitions)
        if released:
            self._claim_anew()
        return bool(released)

    def fenced(self, partition: TopicPartition, lease_epoch: int) -> bool:
        """This lease is lost; true if the member held it, so that the group must hear of it."""
        lease = self.owned.get(partition)
        if lease is None or lease.lease_epoch != lease_epoch:
            return False
        self._lose(partition)
        self._claim_anew()
        return True

    def lose_all(self) -> None:
        """The session has ended."""
        self._lost |= self.owned.keys()
        self.give_back()

    def give_back(self) -> None:
        """Hold nothing any more: the application has released all, or will hear that it lost all."""
        self.owned = {}
        self._granted = {}
        self._revoked = set()
        self.is_complete = False

    def by_topic_id(self) -> dict[str, list[int]]:
        """The claimed partitions, by topic id."""
        claimed: dict[str, list[int]] = {}
        for partition, lease in sorted([*self.owned.items(), *self._granted.items()], key=lambda each: each[0]):
            claimed.setdefault(lease.topic_id, []).append(partition.partition)
        return claimed

    def _revoke(self, revoked: frozenset[tuple[str, int]]) -> None:
        """Partitions that the application does not have yet are released at once.

        A partition that the group no longer revokes stays.
        """

        def is_revoked(partition: TopicPartition, lease: HeldLease) -> bool:
            is_asked = (lease.topic_id, partition.partition) in revoked
            return is_asked or not self.subscription.selects(partition.topic)

        kept = {each: lease for each, lease in self._granted.items() if not is_revoked(each, lease)}
        self.claims += len(kept) < len(self._granted)
        self._granted = kept
        self._revoked = {each for each, lease in self.owned.items() if is_revoked(each, lease)}

    def _grant(self, granted: Mapping[TopicPartition, HeldLease]) -> None:
        for partition, lease in granted.items():
            held = self.owned.get(partition)
            if held is not None and held.topic_id == lease.topic_id:
                self._lose(partition)  # the new lease has ended the old one
        wanted = {each: lease for each, lease in granted.items() if self.subscription.selects(each.topic)}
        self.claims += len(wanted) < len(granted)  # the heartbeat that tells of the subscription claims none of them
        self._granted = {**self._granted, **wanted}

    def _lose(self, partition: TopicPartition) -> None:
        del self.owned[partition]
        self._revoked.discard(partition)
        self._lost.add(partition)

    def _claim_anew(self) -> None:
        self.claims += 1
        self.is_complete = False
