"""The run of each minute that measures consumers and chooses topics."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock_core.errors import Category, PenstockError
from penstock_core.groups.lease import Lease
from penstock_core.groups.topic_patterns import topic_reach
from penstock_core.ids import GroupName, Offset, PartitionKey, TopicId
from penstock_core.limits import GROUP_LIST_MAX, GROUP_PAGE_MAX, PUSH_LIST_MAX, SHARE_GROUP_LIST_MAX
from penstock_core.log.index import Head
from penstock_core.log.topic import Topic
from penstock_core.metrics.lag_memory import (
    Consumer,
    ConsumerKind,
    ConsumerLag,
    decode_memory,
    encode_memory,
    published,
    without_gone,
)
from penstock_core.outcomes import Outcomes
from penstock_service.groups.describe_group import lease_age_ms
from penstock_service.instance.instance import Instance
from penstock_service.metrics.rank_topics import rank_topics
from penstock_service.push.admin.describe_subscription import describe_subscription
from penstock_service.share.admin.describe_share_group import describe_share_group

_JOB = "measure"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureWish:
    """The most topics and consumers that have series of their own, and the consumers that always have one.

    With `topics_only`, no consumer is measured.
    """

    topics_max: int
    consumers_max: int
    always: Collection[Consumer] = ()
    topics_only: bool = False


@dataclass(slots=True, kw_only=True)
class Measurement:
    """The lags to publish, and the counts of one run."""

    lags: Sequence[ConsumerLag] = field(default_factory=list)
    consumers: int = 0
    has_ranked: bool = False
    failures: int = 0
    is_finished: bool = True


def measure(instance: Instance, wish: MeasureWish, *, budget_ms: float) -> Measurement:
    """Measures for `budget_ms` at most. The next run goes on where this one stopped.

    Costs what `rank_topics` and `consumer_lags` cost, one read, and a put where the memory has changed. A failure to
    rank leaves the topics as they are.
    """
    done = Measurement()
    try:
        done.has_ranked = rank_topics(instance, wish.topics_max)
    except PenstockError as error:
        done.failures += 1
        instance.telemetry.log("topics_not_ranked", error=str(error))
    if wish.topics_only:
        return done
    text = instance.stores.cursors.get(_JOB)
    memory = decode_memory(text)
    run = consumer_lags(instance, memory.after, budget_ms)
    if not (memory.after or run.after or run.failures):
        memory = without_gone(memory, run.lags)
    memory = replace(memory, after=run.after)
    done.lags, memory = published(memory, run.lags, wish.always, wish.consumers_max, instance.clock.now_ms())
    done.consumers, done.is_finished = len(run.lags), not run.after
    done.failures += run.failures
    if memory.zeros or run.after:
        new = encode_memory(memory)
        if new != text:
            instance.stores.cursors.put(_JOB, new)
    elif text is not None:
        instance.stores.cursors.clear(_JOB)
    return done


@dataclass(slots=True, kw_only=True)
class LagRun:
    """The lags of one run. `after` is the last consumer that it measured if its time was up, else empty."""

    lags: list[ConsumerLag] = field(default_factory=list)
    failures: int = 0
    after: str = ""


def consumer_lags(instance: Instance, after: str, budget_ms: float) -> LagRun:
    """The lags of all consumers behind `after`, the text of one, for `budget_ms` at most. One page has 100 of them.

    One read of the topics table, and one query for each page. Of each group: one query for each MB of its leases, and
    one read for each 100 partitions. Share groups and subscriptions cost what their descriptions cost. One query more
    for each partition that is behind, and whose oldest record is not in the tail. A consumer that cannot be measured
    counts as a failure. If the topics cannot be read, no generation that waits is counted.
    """
    ends_ms = instance.clock.monotonic_ms() + budget_ms
    run = LagRun()
    turned: dict[TopicId, Topic] = {}
    try:
        turned = {topic.topic_id: topic for topic in instance.stores.topics.list() if len(topic.generations) > 1}
    except PenstockError as error:
        instance.telemetry.log("generations_unknown", error=str(error))
    for page in _pages(instance, after):
        outcomes = instance.executor.map(lambda each: _lag_of(instance, each, turned), page)
        run.lags += [lag for lag in outcomes.ok if lag is not None]
        run.failures += len(outcomes.errors)
        for failure in outcomes.errors:
            instance.telemetry.log("lag_unknown", error=str(failure))
        if instance.clock.monotonic_ms() >= ends_ms:
            run.after = str(page[-1])
            return run
    return run


def _pages(instance: Instance, after: str) -> Iterator[Sequence[Consumer]]:
    for kind in ConsumerKind:
        of_kind, _, behind = after.partition("/")
        if of_kind > kind:
            continue
        name = behind if of_kind == kind else ""
        while page := _names(instance, kind, name):
            yield [Consumer(kind, each) for each in page]
            name = page[-1]


def _names(instance: Instance, kind: ConsumerKind, after: str) -> Sequence[str]:
    stores = instance.stores
    if kind is ConsumerKind.GROUP:
        return stores.memberships.registered(after, GROUP_LIST_MAX)
    if kind is ConsumerKind.SHARE_GROUP:
        return [each.name for each in stores.share.list_groups(after, SHARE_GROUP_LIST_MAX)]
    return [each.name for each in stores.push.list_subscriptions(after, PUSH_LIST_MAX)]


def _lag_of(instance: Instance, consumer: Consumer, turned: Mapping[TopicId, Topic]) -> ConsumerLag | None:
    """None for a consumer that is gone by now. `turned` has the topics with older generations."""
    try:
        if consumer.kind is ConsumerKind.GROUP:
            places = [*_group_places(instance, consumer.name, turned)]
        else:
            places = [*_READERS[consumer.kind](instance, consumer.name)]
    except PenstockError as error:
        if error.code.category is Category.NOT_FOUND:
            return None
        raise
    return ConsumerLag(
        consumer=consumer,
        records=sum(records for records, _ in places),
        oldest_age_ms=max((age_ms or 0 for _, age_ms in places), default=0),
    )


def _group_places(instance: Instance, name: str, turned: Mapping[TopicId, Topic]) -> Sequence[tuple[int, int | None]]:
    """The lag and the age of each partition that the group has committed for, or that waits for the group."""
    leases = [each for each in instance.stores.groups.leases(GroupName(name)) if each.offset is not None]
    leases += _unread_generations(leases, turned)
    heads = instance.stores.log.heads([each.partition for each in leases])
    present = [(lease, heads[lease.partition]) for lease in leases if lease.partition in heads]
    outcomes: Outcomes[tuple[int, int | None]] = instance.executor.map(
        lambda each: _group_place(instance, *each), present
    )
    return outcomes.all_ok()


def _unread_generations(leases: Sequence[Lease], turned: Mapping[TopicId, Topic]) -> list[Lease]:
    """A lease at the beginning of each partition that came after the group had begun, and that it has not read yet."""
    committed = {each.partition for each in leases}
    found: list[Lease] = []
    for topic_id in {key.topic_id for key in committed} & turned.keys():
        topic = turned[topic_id]
        late_from = topic_reach(topic, (), [key.partition for key in committed if key.topic_id == topic_id]).late_from
        keys = [PartitionKey(topic_id, each) for each in topic.all_partitions()[late_from or topic.partitions :]]
        found += [Lease(topic=topic.name, partition=key, offset=Offset(0)) for key in keys if key not in committed]
    return found


def _group_place(instance: Instance, lease: Lease, head: Head) -> tuple[int, int | None]:
    return head.count_from(lease.offset or 0), lease_age_ms(instance, lease, head)


def _share_places(instance: Instance, name: str) -> Iterator[tuple[int, int | None]]:
    after: str | None = ""
    while after is not None:
        _, partitions, after = describe_share_group(instance, name, after, GROUP_PAGE_MAX)
        yield from ((each.lag, each.oldest_age_ms) for each in partitions)


def _push_places(instance: Instance, name: str) -> Iterator[tuple[int, int | None]]:
    after: str | None = ""
    while after is not None:
        page = describe_subscription(instance, name, after, GROUP_PAGE_MAX)
        yield from ((each.place.lag, each.place.oldest_age_ms) for each in page.partitions)
        after = page.next_after


_READERS = {
    ConsumerKind.SHARE_GROUP: _share_places,
    ConsumerKind.SUBSCRIPTION: _push_places,
}
