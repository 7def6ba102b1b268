"""The partitions that a consumer reads, and where it starts in them.

| reads                   | the partitions come from            | starts                | commits                |
|-------------------------|-------------------------------------|-----------------------|------------------------|
| topics, in a group      | rebalance.py: the member's share    | the leases' offsets   | under the leases       |
| topics, without a group | here: all, looked up again in times | auto_offset_reset     | none                   |
| assigned partitions     | the application                     | the group's, if any   | for the group, if any  |

Without a group a change takes effect at once. A member releases the partitions of a topic that it no longer subscribes
to as it releases those that the group revokes: with its next poll, after the commit.
"""

import logging
from collections.abc import Callable, Collection, Iterable

from penstock.api import calls
from penstock.api.calls import StartOffset
from penstock.arguments import check, checked_topic
from penstock.consumer.commits import Commits
from penstock.consumer.fetch_buffer import FetchBuffer, OffsetReset
from penstock.consumer.listener import ConsumerRebalanceListener, ConsumerSteps, listener_of
from penstock.consumer.rebalance import Rebalance
from penstock.consumer.settings import ConsumerSettings
from penstock.errors import NoOffsetError, UnavailableError, UnknownTopicError, as_sdk_error
from penstock.group.membership import MemberState
from penstock.http.steps import Calls, Wait
from penstock.model import TopicPartition
from penstock.retry import NEVER_MS
from penstock_core.errors import PenstockError
from penstock_core.groups.group import Subscription, parse_subscription
from penstock_core.limits import SDK_SAFETY_NET_MS

_log = logging.getLogger("penstock.consumer")

_TOLD_MS_MAX = 2 * SDK_SAFETY_NET_MS  # each fetch of the safety net tells the number of partitions


class Subscriber:
    """Keeps the partitions of a fetch buffer those that the application asked for.

    `rebalance` is None without a group. `stop_reading` takes partitions out of the buffer.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        buffer: FetchBuffer,
        commits: Commits,
        rebalance: Rebalance | None,
        *,
        stop_reading: Callable[[Iterable[TopicPartition]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.subscription = Subscription()
        self.is_member = False  # the group says which partitions are read
        self.changes = 0  # counted, so that a poll that waits looks again
        self.refresh_due_ms = NEVER_MS
        self._settings = settings
        self._buffer = buffer
        self._commits = commits
        self._rebalance = rebalance
        self._stop_reading = stop_reading
        self._now_ms = now_ms
        self._topics: Collection[str] = ()  # the topics whose partitions this object looks up
        self._is_looked_up = False  # the topics of this subscription, after a first empty assignment
        self._appeared: set[TopicPartition] = set()  # partitions that were added while the consumer was reading

    # Topics and partitions.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError while the consumer is subscribed."""
        check(
            self.subscription == Subscription(),
            "assign() on a consumer that is subscribed to topics: use one or the other, or unsubscribe() before",
        )
        self.changes += 1
        self._buffer.assign(partitions)

    def subscribe(self, topics: str | Iterable[str], listener: ConsumerRebalanceListener | None) -> None:
        """Read these topics, and no others. Raises InvalidError for a bad name, and while partitions are assigned."""
        is_in_group = self._rebalance is not None
        check(listener is None or is_in_group, f"listener={listener!r:.100}: give a group_id, or None")
        subscription = parsed_subscription(topics, is_in_group=is_in_group)
        new_listener = listener_of(listener)
        is_assigned = self.subscription == Subscription() and self._buffer.assignment()
        check(
            not is_assigned, "subscribe() after assign(): use one or the other, or unsubscribe() before, or assign([])"
        )
        self.changes += 1
        self.subscription = subscription
        if self._rebalance is None:
            self._stop_reading([each for each in self._buffer.assignment() if not subscription.selects(each.topic)])
            self._look_for(subscription.topics)
            return
        if new_listener is not None:
            self._rebalance.listener = new_listener
        self.is_member = True
        self._is_looked_up = False
        self._commits.membership = self._rebalance.membership
        self._rebalance.membership.subscribe(subscription, self._now_ms())

    def unsubscribe(self) -> ConsumerSteps[None]:
        """Read nothing. A member tells the application, leaves, and waits until the group has answered."""
        try:
            if self._rebalance is not None and self.is_member:
                yield from self._rebalance.leave()
        finally:
            self.changes += 1
            self.subscription = Subscription()
            self.is_member = False
            self._stop_reading(self._buffer.assignment())
            self._look_for(())
            self._commits.membership = None
        if self._rebalance is not None:
            membership = self._rebalance.membership
            while membership.state is MemberState.LEAVING and self._now_ms() < membership.leave_until_ms:
                yield Wait(until_ms=membership.leave_until_ms)

    def refresh(self) -> Calls[None]:
        """Look for new partitions of the topics, if it is time: one call for each topic that no fetch has told of.

        If the service is not available, the consumer reads on what it knows. Raises UnknownTopicError, and
        UnavailableError while it knows no partition of a topic.
        """
        now_ms = self._now_ms()
        if now_ms < self.refresh_due_ms:
            return
        topics_asked = self._topics
        counts: dict[str, int] = {}
        try:
            for topic in topics_asked:
                told = self._buffer.told_partitions(topic, told_since_ms(self._settings, now_ms))
                counts[topic] = (yield from calls.topic_metadata(topic)).partitions if told is None else told
        except UnavailableError:
            if set(topics_asked) - {each.topic for each in self._buffer.assignment()}:
                raise
        if self._topics is not topics_asked:
            yield from self.refresh()  # the application has subscribed to others meanwhile
            return
        self.refresh_due_ms = now_ms + self._settings.metadata_max_age_ms
        known = set(self._buffer.assignment())
        found = {TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)}
        if found - known:
            topics = {each.topic for each in known}
            self._appeared |= {each for each in found - known if each.topic in topics}
            self._buffer.assign(sorted(found | known))

    def _look_for(self, topics: Collection[str]) -> None:
        self._topics = topics
        self._appeared.clear()
        self.refresh_due_ms = 0 if topics else NEVER_MS

    def warn_of_unknown_topics(self) -> Calls[bool]:
        """Look once whether the topics exist, if the group gives the member nothing. True if calls were made.

        A group waits for a topic that does not exist, so a mistyped name would never be told.
        """
        membership = self._commits.membership
        if self._is_looked_up or membership is None or membership.owned or membership.state is not MemberState.JOINED:
            return False
        self._is_looked_up = True
        for topic in self.subscription.topics:
            try:
                yield from calls.topic_metadata(topic)
            except UnknownTopicError:
                _log.warning("topic %r does not exist: group %r waits for it", topic, self._settings.group_id)
            except PenstockError as error:
                _log.debug("topic %r could not be looked up: %s", topic, error)
        return True

    # Starts.

    def find_starts(self) -> Calls[None]:
        """Give every partition a position. Raises NoOffsetError.

        With a group, the start that "latest" gives is committed first. Otherwise a consumer that takes over before the
        first commit would start at a later end, and skip records that this one has returned.
        """
        missing = self._buffer.without_position()
        if not missing:
            return
        self._commits.forget(missing)
        group_id = self._settings.group_id
        committed, found = yield from self._starts(missing)
        starts = committed | found
        is_kept = self._settings.auto_offset_reset == "latest" or (self.is_member and self._commits.is_automatic)
        if found and group_id is not None and is_kept:
            ahead = yield from self._commits.commit_starts(found)
            starts |= {each: starts[each]._replace(offset=offset) for each, offset in ahead.items()}
        unknown = set(self._buffer.without_position())  # another call may have sought or assigned meanwhile
        for partition, start in starts.items():
            if partition in unknown:
                self._buffer.start(partition, *start)

    def _starts(
        self, missing: Collection[TopicPartition]
    ) -> Calls[tuple[dict[TopicPartition, StartOffset], dict[TopicPartition, StartOffset]]]:
        """As `_start_offsets`. A member loses the partitions of a topic that was deleted, and goes on."""
        late = self._appeared | {each for each in missing if self._buffer.cursor(each).is_late}
        reset = self._settings.auto_offset_reset
        if not self.is_member:
            group_id = self._settings.group_id
            return (yield from _start_offsets(missing, group_id=group_id, offset_reset=reset, appeared=late))
        found: dict[TopicPartition, StartOffset] = {}
        if len({each.topic for each in missing}) > 1:
            bounds = yield from calls.bounds_at_once(each for each in missing if each in late or reset != "none")
            found = {each: told["earliest" if each in late else reset] for each, told in bounds.items()}
        for topic, numbers in calls.by_topic(each for each in missing if each not in found).items():
            part = [TopicPartition(topic, each) for each in numbers]
            try:
                _, starts = yield from _start_offsets(part, group_id=None, offset_reset=reset, appeared=late)
                found |= starts
            except UnknownTopicError:
                self._buffer.gone.update(part)
        return {}, found


def told_since_ms(settings: ConsumerSettings, now_ms: int) -> int:
    """A number of partitions that a fetch has told since then makes a look at the topic needless."""
    return now_ms - min(settings.metadata_max_age_ms, _TOLD_MS_MAX)


def parsed_subscription(topics: str | Iterable[str], *, is_in_group: bool) -> Subscription:
    """Names of topics, and patterns: names with a `*`. Raises InvalidError for a bad name, for too many, or none."""
    given = [topics] if isinstance(topics, str) else topics
    check(isinstance(given, Iterable), f"topics={topics!r:.100}: give a topic's name, or several in a list")
    names = list(given)
    check(bool(names), f"topics={topics!r:.100}: give one or more; unsubscribe() reads none")
    for name in names:
        check(isinstance(name, str), f"topic {name!r:.100}: give each topic as a string of its own")
        check(is_in_group or "*" not in name, f"topic pattern {name!r}: give a group_id, only groups take patterns")
    patterns = [name for name in names if "*" in name]
    try:
        return parse_subscription([checked_topic(name) for name in names if "*" not in name], patterns)
    except PenstockError as error:
        raise as_sdk_error(error) from None


def _start_offsets(
    partitions: Collection[TopicPartition],
    *,
    group_id: str | None,
    offset_reset: OffsetReset,
    appeared: Collection[TopicPartition],
) -> Calls[tuple[dict[TopicPartition, StartOffset], dict[TopicPartition, StartOffset]]]:
    """The offsets to start at: those that the group has committed, and those of the other partitions.

    The others start by `offset_reset`. Partitions in `appeared` were added while the consumer was reading. They start
    at their beginning under every `offset_reset`, so that the consumer misses no record. Costs one call for the group,
    and one per topic and reset. Raises NoOffsetError.
    """
    committed: dict[TopicPartition, StartOffset] = {}
    if group_id is not None:
        found = yield from calls.committed_starts(group_id)
        committed = {each: found[each] for each in partitions if each in found}
    missing = [each for each in partitions if each not in committed]
    starts = yield from calls.start_offsets([each for each in missing if each in appeared], "earliest")
    missing = [each for each in missing if each not in starts]
    if missing and offset_reset == "none":
        where = f"group {group_id!r} has no committed offset" if group_id else "there is no group"
        raise NoOffsetError(
            f"no offset to start at in {missing[0].topic}[{missing[0].partition}]: {where}, and auto_offset_reset is "
            "'none'; seek() first, or use 'earliest' or 'latest'"
        )
    return committed, starts | (yield from calls.start_offsets(missing, offset_reset))
