"""Topics by name, remembered between requests, so that a warm append or fetch reads no topic.

A remembered topic may be up to `TTL_MS` old. That is safe. If the topic was deleted, its missing heads refuse an
append. If a partition is not in the remembered count, the cache reads the topic again before it calls it unknown. A use
case that removes data by a topic's settings reads the topic itself (`read_through`).

Share groups by name, remembered between requests, so that a warm acquire or acknowledgement reads no group.

A remembered group may be up to `TTL_MS` old. That is safe: the states of a group that was deleted are gone, and none is
made for it (`ShareStore.begin_state`). A change of its settings takes so long until all instances go by it.

The access rules, remembered between requests, so that a warm request reads none.

The rules by which an instance decides are as they were `ACL_AGE_MS_MAX` ago at the earliest. Then one read of a small
item tells whether they have changed. If that read fails, the remembered rules hold for up to `ACL_OUTAGE_MS_MAX`. After
that, and on an instance that never read any, the error of the read refuses the request.

The tenants of records that share groups with sharing=fair read, so that a warm acquire decodes new records only.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import TYPE_CHECKING

from penstock_core.acls.principal import Principal
from penstock_core.acls.rule_set import Access, RuleBook, RuleSet
from penstock_core.acls.tokens import AclSettings
from penstock_core.direct.caller_proof import account_of
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import GroupName, Partition, PartitionKey, TopicName, parse_group_name, parse_topic_name
from penstock_core.limits import (
    ACL_AGE_MS_MAX,
    ACL_OUTAGE_MS_MAX,
    INSTANCE_GROUPS_MAX,
    INSTANCE_TARGETS_MAX,
    INSTANCE_TENANT_BYTES_MAX,
    INSTANCE_TOPICS_MAX,
)
from penstock_core.log.topic import Topic
from penstock_service.instance.update_window import Moment
from penstock_service.ports.access import AclStore
from penstock_service.ports.runtime import Clock
from penstock_service.ports.topics import TopicStore

if TYPE_CHECKING:
    from penstock_core.groups.group import GroupState
    from penstock_core.groups.group_target import TargetAssignment
    from penstock_core.share.share_group import ShareGroup
    from penstock_core.share.tenants import KnownTenants
    from penstock_service.ports.groups import MembershipStore
    from penstock_service.ports.share import ShareStore

TTL_MS = 10_000
_PAUSE_MS = 2_000  # after a read that failed: a request must not wait for the next one to fail, too


class TopicCache:
    """A cache over a TopicStore, at most `INSTANCE_TOPICS_MAX` topics. Each function instance has one."""

    def __init__(self, topics: TopicStore, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._remembered: dict[TopicName, tuple[Moment, Topic]] = {}
        self._counted: tuple[Moment, int] | None = None

    def get(self, name: str) -> Topic:
        """The topic, as it is or was at most `TTL_MS` ago. One read if the cache does not know it.

        Raises INVALID_NAME or UNKNOWN_TOPIC.
        """
        remembered = self._remembered.get(TopicName(name))
        if remembered is not None and remembered[0].age_ms(self._clock) < TTL_MS:
            return remembered[1]
        return self.read_through(name)

    def count_for_one_more(self, most: int) -> int:
        """The number of topics, for a caller that adds one unless there are `most`. It adds one to what is remembered.

        It was counted at most `TTL_MS` ago, or now if that reached `most`: counts are scans of the table.
        """
        counted = self._counted
        if counted is None or counted[0].age_ms(self._clock) >= TTL_MS or counted[1] >= most:
            counted = Moment.now(self._clock), self._topics.count()
        self._counted = counted[0], counted[1] + 1
        return counted[1]

    def find(self, name: str) -> Topic | None:
        """As `get`, and None for a topic that does not exist."""
        try:
            return self.get(name)
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise
            return None

    def find_by_id(self, topic_id: str) -> Topic | None:
        """The topic with this id as it is now. One read. None if it was deleted, or this instance never met it."""
        names = [name for name, (_, topic) in [*self._remembered.items()] if topic.topic_id == topic_id]
        try:
            topic = self.read_through(names[0]) if names else None
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                raise
            return None
        return topic if topic is not None and topic.topic_id == topic_id else None

    def read_moment(self, name: str) -> Moment:
        """A moment that is not after the read of the topic which the next `get` answers with. Ask before that call."""
        remembered = self._remembered.get(TopicName(name))
        is_known = remembered is not None and remembered[0].age_ms(self._clock) < TTL_MS
        return remembered[0] if remembered is not None and is_known else Moment.now(self._clock)

    def remembers(self, name: str) -> bool:
        """True for a topic that was there when it was last read, however long ago. Sends no call."""
        return TopicName(name) in self._remembered

    def read_through(self, name: str) -> Topic:
        """The topic as it is now; the cache remembers it. One read. Raises INVALID_NAME or UNKNOWN_TOPIC."""
        topic_name = parse_topic_name(name)
        # The time before the read: the topic that it shows may be as old as that.
        asked = Moment.now(self._clock)
        topic = self._topics.get(topic_name)
        if topic is None:
            self._remembered.pop(topic_name, None)
            raise PenstockError(ErrorCode.UNKNOWN_TOPIC, f"topic {name!r} does not exist: check its name, or create it")
        if len(self._remembered) >= INSTANCE_TOPICS_MAX:
            self._remembered.clear()
        self._remembered[topic_name] = (asked, topic)
        return topic

    def get_partition(self, name: str, partition: int, topic_id: str | None = None) -> tuple[Topic, PartitionKey]:
        """The topic as `get` finds it, and the key of one of its partitions.

        Reads the topic again before it raises UNKNOWN_PARTITION for a number that is too high, or UNKNOWN_TOPIC_ID if
        the name does not stand for `topic_id`. Raises as `get`, too. A partition that went still has a key: its head
        is closed and empty.
        """
        topic = self.get(name)
        if partition >= topic.head_count or topic_id not in (None, topic.topic_id):
            topic = self.read_through(name)
        if topic_id not in (None, topic.topic_id):
            raise PenstockError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {name!r} was deleted and created anew: its id is {topic.topic_id} now, not {shown(topic_id)}",
                topic_id=topic.topic_id,
            )
        if not 0 <= partition < topic.head_count:
            raise PenstockError(
                ErrorCode.UNKNOWN_PARTITION,
                f"partition {shown(partition)} of topic {name!r} does not exist: it has 0 to {topic.partitions - 1}",
            )
        return topic, PartitionKey(topic.topic_id, Partition(partition))

    def forget(self, name: str) -> None:
        """Makes the next `get` of this topic read it."""
        self._remembered.pop(TopicName(name), None)


class GroupCache:
    """A cache over a MembershipStore, at most `INSTANCE_TARGETS_MAX` targets. Each function instance has one."""

    def __init__(self, memberships: MembershipStore) -> None:
        self._memberships = memberships
        self._targets: dict[tuple[GroupName, str], TargetAssignment] = {}

    def target_of(self, group: GroupState) -> TargetAssignment | None:
        """The target of the group's epoch. None if a newer epoch has removed it. One query unless it is remembered."""
        from penstock_core.groups.group_target import EMPTY_TARGET, decode_target  # which produce and fetch do not need

        if group.epoch == 0:
            return EMPTY_TARGET
        remembered = self._targets.get((group.name, group.target_id))
        if remembered is not None:
            return remembered
        chunks = self._memberships.get_target(group.name, group.epoch, group.target_id)
        return self.remember(group, decode_target(chunks)) if chunks else None

    def remember(self, group: GroupState, target: TargetAssignment) -> TargetAssignment:
        """Keeps the target of the group's epoch for `target_of`."""
        while len(self._targets) >= INSTANCE_TARGETS_MAX:
            self._targets.pop(next(iter(self._targets)), None)
        self._targets[group.name, group.target_id] = target
        return target


class ShareGroupCache:
    """A cache over a ShareStore, at most `INSTANCE_GROUPS_MAX` groups. Each function instance has one."""

    def __init__(self, share: ShareStore, clock: Clock) -> None:
        self._share = share
        self._clock = clock
        self._remembered: dict[GroupName, tuple[Moment, ShareGroup]] = {}

    def get(self, name: str) -> ShareGroup:
        """The group, as it is or was at most `TTL_MS` ago. One read if the cache does not know it.

        Raises INVALID_NAME or UNKNOWN_SHARE_GROUP.
        """
        remembered = self._remembered.get(GroupName(name))
        if remembered is not None and remembered[0].age_ms(self._clock) < TTL_MS:
            return remembered[1]
        return self.read_through(name)

    def read_through(self, name: str) -> ShareGroup:
        """The group as it is now; the cache remembers it. One read. Raises INVALID_NAME or UNKNOWN_SHARE_GROUP."""
        group_name = parse_group_name(name)
        asked = Moment.now(self._clock)
        group = self._share.get_group(group_name)
        if group is None:
            self.forget(name)
            raise unknown_share_group(group_name)
        if len(self._remembered) >= INSTANCE_GROUPS_MAX:
            self._remembered.clear()
        self._remembered[group_name] = (asked, group)
        return group

    def forget(self, name: str) -> None:
        """Makes the next `get` of this group read it."""
        self._remembered.pop(GroupName(name), None)


def unknown_share_group(name: GroupName) -> PenstockError:
    """The error for a name that no share group has."""
    return PenstockError(
        ErrorCode.UNKNOWN_SHARE_GROUP, f"share group {name!r} does not exist: check its name, or create it"
    )


class AclCache:
    """A cache over an AclStore. Each function instance has one."""

    def __init__(self, acls: AclStore, clock: Clock, settings: AclSettings) -> None:
        self._acls = acls
        self._clock = clock
        self._settings = settings
        self._known: tuple[Moment, RuleBook, RuleSet] | None = None
        self._failed: Moment | None = None

    @property
    def settings(self) -> AclSettings:
        """The settings that decide without rules."""
        return self._settings

    def access_of(self, principal: Principal) -> Access:
        """The rights of the principal. One read if the rules are to be looked at again, and one more if they changed.

        Raises what the store raises.
        """
        return Access(principal=principal, rules=self._rules().of(principal.name))

    def newest_access_of(self, principal: Principal) -> Access:
        """As `access_of`, by the rules as they are now. One read. If it fails, the remembered rules stay."""
        return Access(principal=principal, rules=self._load().of(principal.name))

    def forget(self) -> None:
        """Makes the next `access_of` read the rules."""
        self._known = None

    def _rules(self) -> RuleSet:
        known = self._known
        if known is not None and known[0].age_ms(self._clock) < ACL_AGE_MS_MAX:
            return known[2]
        if known is None:
            return self._load()
        if self._failed is not None and self._failed.age_ms(self._clock) < _PAUSE_MS and self._may_go_on(known[0]):
            return known[2]
        try:
            return self._look(known[1], known[2])
        except PenstockError:
            if not self._may_go_on(known[0]):
                raise
            self._failed = Moment.now(self._clock)
            return known[2]

    def _may_go_on(self, asked: Moment) -> bool:
        return asked.age_ms(self._clock) < ACL_OUTAGE_MS_MAX

    def _look(self, book: RuleBook, rules: RuleSet) -> RuleSet:
        asked = Moment.now(self._clock)
        if self._acls.revision() != book.revision:
            return self._load()
        self._known = asked, book, rules
        return rules

    def _load(self) -> RuleSet:
        asked = Moment.now(self._clock)
        book = self._acls.get()
        rules = RuleSet(book.rules, self._settings)
        self._known = asked, book, rules
        return rules


def _of_account(arn: str, account: str) -> str:
    """The ARN. A caller of another account could make any number of names, each with a quota of its own."""
    if account_of(arn) != account:
        raise PenstockError(
            ErrorCode.NOT_AUTHORIZED,
            f"the caller {arn:.200} is of another account than the stage's, {account}: assume a role of that account",
        )
    return arn


class TenantCache:
    """The known tenants by partition and settings of a share group, `INSTANCE_TENANT_BYTES_MAX` in all.

    Those of the partition go that nobody has asked for the longest. For all threads of an instance.
    """

    def __init__(self, bytes_max: int = INSTANCE_TENANT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._known: dict[Hashable, KnownTenants] = {}

    def find(self, key: Hashable) -> KnownTenants | None:
        """What is known, None if nothing is."""
        with self._lock:
            known = self._known.pop(key, None)
            if known is not None:
                self._known[key] = known
            return known

    def put(self, key: Hashable, known: KnownTenants) -> None:
        """Remember it in place of what was known. Of two threads the later one wins, and the other reads again."""
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = known
            left = self._bytes_max - sum(each.size for each in self._known.values())
            while left < 0 and len(self._known) > 1:
                left += self._known.pop(next(iter(self._known))).size
