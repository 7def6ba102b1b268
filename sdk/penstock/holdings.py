"""What a member of a group holds: the partitions that it was given, and which of them it has to let go of.

    granted -> owned (the application has it) -> revoked -> released
                                              -> lost

Invariants:
- What is granted or owned, and nothing else, is claimed in heartbeats. `claims` counts the changes that the group has
  to hear of: an answer to a heartbeat from before the last of them does not know all.
- What is not subscribed to is not granted, and what is owned of it is to be revoked, whatever the group knows of it.
"""

from collections.abc import Iterable, Mapping

from penstock.heartbeat import HeartbeatAnswer, Lease
from penstock.model import TopicPartition
from penstock_core.group import Subscription


class Holdings:
    """Dicts and sets are never changed in place while somebody may look without the lock (`is_changed`)."""

    def __init__(self) -> None:
        self.subscription = Subscription()
        self.is_subscription_known = False  # to the group
        self.owned: dict[TopicPartition, Lease] = {}
        self.claims = 0
        self.is_complete = False  # the group knows what is held, and gives no more
        self._granted: dict[TopicPartition, Lease] = {}
        self._revoked: set[TopicPartition] = set()  # of what is owned
        self._lost: set[TopicPartition] = set()

    @property
    def is_changed(self) -> bool:
        """Whether there is something for the application to do."""
        is_granted = not self._granted.keys() <= self.owned.keys()
        return bool(self._lost or self._revoked or is_granted)

    def subscribe(self, subscription: Subscription) -> None:
        """Hold nothing of other topics."""
        self.subscription = subscription
        self.is_subscription_known = False
        self._revoke(frozenset())  # what the group wants back it says again when it has heard
        self._claim_anew()

    def obey(self, claims: int, answer: HeartbeatAnswer) -> bool:
        """Take the answer to a heartbeat that was sent with so many `claims`; whether it knows all of them."""
        if self.is_subscription_known or claims == self.claims:  # else it is of an older subscription
            self._revoke(answer.revoked)
        self._grant(answer.granted)
        is_as_claimed = claims == self.claims
        self.is_subscription_known = self.is_subscription_known or is_as_claimed
        self.is_complete = answer.is_complete and is_as_claimed
        return is_as_claimed

    def take_lost(self) -> list[TopicPartition]:
        """What was owned and is no more; once."""
        lost, self._lost = self._lost, set()
        return sorted(lost)

    def to_revoke(self) -> list[TopicPartition]:
        """What is to be released."""
        return sorted(self._revoked)

    def take_granted(self) -> dict[TopicPartition, Lease]:
        """What is owned from now on. What of an older topic of the same name must be released before."""
        taken = {each: lease for each, lease in sorted(self._granted.items()) if each not in self.owned}
        self.owned |= taken
        self._granted = {each: lease for each, lease in self._granted.items() if each not in taken}
        return taken

    def release(self, partitions: Iterable[TopicPartition]) -> bool:
        """The application has let go of them; whether the group is to hear of it."""
        released = [each for each in partitions if self.owned.pop(each, None) is not None]
        self._revoked.difference_update(partitions)
        if released:
            self._claim_anew()
        return bool(released)

    def fenced(self, partition: TopicPartition, lease_epoch: int) -> bool:
        """This lease is lost; whether it was held, so that the group is to hear of it."""
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
        """Hold nothing any more: the application has let go of it, or is to be told."""
        self.owned = {}
        self._granted = {}
        self._revoked = set()
        self.is_complete = False

    def by_topic_id(self) -> dict[str, list[int]]:
        """What is claimed."""
        claimed: dict[str, list[int]] = {}
        for partition, lease in sorted([*self.owned.items(), *self._granted.items()], key=lambda each: each[0]):
            claimed.setdefault(lease.topic_id, []).append(partition.partition)
        return claimed

    def _revoke(self, revoked: frozenset[tuple[str, int]]) -> None:
        """What the application has not got yet is released at once. What was revoked and is not now is kept."""

        def is_revoked(partition: TopicPartition, lease: Lease) -> bool:
            is_asked = (lease.topic_id, partition.partition) in revoked
            return is_asked or not self.subscription.selects(partition.topic)

        kept = {each: lease for each, lease in self._granted.items() if not is_revoked(each, lease)}
        self.claims += len(kept) < len(self._granted)
        self._granted = kept
        self._revoked = {each for each, lease in self.owned.items() if is_revoked(each, lease)}

    def _grant(self, granted: Mapping[TopicPartition, Lease]) -> None:
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
