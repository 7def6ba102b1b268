"""Open a generation: close all partitions of a topic, then let new ones take its records (docs/protocol/partitions).

```
 1  the topic, under its next layout: a generation is opening          alter_topic.py
 2  close each head of the newest generation, those of draining partitions too; create the coming heads  here
 3  the topic: the coming partitions take the records                  here
```
Each step may come twice, late, or from several callers. So an append that a closed head refuses ends what an operator
who died has begun. No append gets a place in the new generation before step 3, and none in the old one after step 2.

Settle a head: close or open it as its topic's layout says (docs/adr/0046).

A change of the writable partitions is one conditional update of the topic, which raises its layout. The heads follow.
Each follows the newest layout that it has met, so a late update of an older layout changes nothing. A caller that dies
before a head has followed leaves the work to the next alteration, to retention, or to an append that was refused.

The timers of a partition that wait, from all shards, in order.

Announce a reader's new place to retention, where it removes what all readers have passed (docs/protocol/retention).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicName
from penstock_core.limits import OPEN_ATTEMPTS_MAX, TIMER_SHARDS
from penstock_core.log.index import Head, HeldHead, partition_closed
from penstock_core.log.timer import PlaceRange, Timer
from penstock_core.log.topic import Topic, check_own
from penstock_core.outcomes import errors_of_a_late_attempt
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow

Moved = TypeVar("Moved")
_LANE = "timers"  # threads of its own: callers look at many partitions side by side
_SPARE = 8  # timers more than a shard's share: ids fall on shards by chance


def open_generation(instance: Instance, name: str) -> Topic:
    """The topic as it is now, once its coming generation takes the records. It is read here, past the cache.

    One read. If a generation is coming: one update for each head that closes, one put for each that comes, one update
    and one read of the topic. Raises UNKNOWN_TOPIC, and STORAGE_UNAVAILABLE if the caller was held up for so long that
    the topic may be gone: its heads must not come back. Raises CONCURRENT_UPDATE if other calls kept altering the topic
    meanwhile, MIRRORED for a topic that a mirror writes, and MOVED for one that was moved to its mirror.
    """
    for _ in range(OPEN_ATTEMPTS_MAX):
        window = UpdateWindow.open(instance.clock)
        topic = check_own(instance.topic_cache.read_through(name))
        if topic.opening is None:
            return topic
        # Draining heads too: an earlier decrease may have died before it closed them.
        settle_heads(instance, topic, map(Partition, range(topic.first_writable, topic.partitions)))
        # No delivery has been at the new partitions yet. So their heads begin with the push waiter of subscriptions.
        create_heads(instance, window, topic, topic.coming_partitions(), has_push_waiter=True)
        try:
            instance.stores.topics.open_generation(topic)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            continue  # its end has come, or retention took a partition
        return instance.topic_cache.read_through(name)
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered by other requests all the time: try again"
    )


def create_heads(
    instance: Instance,
    window: UpdateWindow,
    topic: Topic,
    partitions: Iterable[Partition],
    *,
    has_push_waiter: bool = False,
) -> None:
    """Make empty heads for the partitions that have none, and a push waiter in each if asked. One put for each.

    The window was opened before the topic was read: later the topic may be gone for good, and nothing would remove its
    heads. Raises the first error.
    """
    note = topic.mirror
    held = [] if note is None else [HeldHead(mirror=note.name, closed_ms=instance.clock.now_ms())]

    def create(partition: Partition) -> None:
        window.check()
        instance.stores.log.create_head(PartitionKey(topic.topic_id, partition), has_push_waiter, *held)

    instance.executor.map(create, [*partitions]).all_ok()


def settle_head(instance: Instance, topic: Topic, partition: Partition) -> Head | None:
    """The head once it has followed the layout of `topic`, None if there is none. One conditional update."""
    closed_ms = None if topic.is_writable(partition) else instance.clock.now_ms()
    key = PartitionKey(topic.topic_id, partition)
    return instance.stores.log.move_to_layout(key, topic.layout, closed_ms)


def settle_heads(instance: Instance, topic: Topic, partitions: Iterable[Partition]) -> None:
    """Settles some heads of the topic. One conditional update for each. Raises the first error."""
    instance.executor.map(lambda partition: settle_head(instance, topic, partition), [*partitions]).all_ok()


def is_unsettled(topic: Topic, partition: Partition, head: Head) -> bool:
    """True if the head has not followed the layout of `topic` yet."""
    return head.layout < topic.layout and head.is_closed == topic.is_writable(partition)


def open_partitions(instance: Instance, name: str) -> None:
    """Opens a generation that comes, and writable heads that are closed. The cache knows the topic then.

    One read of the topic and one of its writable heads for each 100; one update for each head that opens. While a
    generation is opening, it costs what `open_generation` costs, and raises as that does.
    """
    topic = open_generation(instance, name)
    keys = [PartitionKey(topic.topic_id, Partition(each)) for each in range(topic.first_writable, topic.writable_end)]
    for key, head in instance.stores.log.heads(keys).items():
        if is_unsettled(topic, key.partition, head):
            settle_head(instance, topic, key.partition)


def move_again_if_closed(instance: Instance, names: Collection[str], move: Callable[[], Moved]) -> Moved:
    """The result of `move`, which appends to the topics of these names by the cache.

    If a partition was closed, it opens those that take records, and lets `move` look them up and try again, once.
    Raises what `move` and `open_partitions` raise.
    """
    try:
        return move()
    except PenstockError as error:
        if error.code is not ErrorCode.PARTITION_CLOSED:
            raise
        maybe_applied = error.maybe_applied
    with errors_of_a_late_attempt(maybe_applied=maybe_applied):
        for name in names:
            open_partitions(instance, name)
        return move()


def still_closed(instance: Instance, topic_name: str, key: PartitionKey) -> PenstockError | None:
    """None if a partition that refused an append may take it now; else the error, with what its topic has.

    Its topic has opened it since, or an alteration died before it could open the head. One read of the topic, and one
    update then. While a generation is opening, it costs what `open_generation` costs, and raises as that does.
    """
    topic = open_generation(instance, topic_name)
    if topic.topic_id != key.topic_id:
        return partition_closed(key)
    if not topic.is_writable(key.partition):
        return partition_closed(key, topic.writable_partitions, topic.first_writable)
    head = settle_head(instance, topic, key.partition)
    return None if head is not None and not head.is_closed else partition_closed(key)


def waiting_timers(instance: Instance, key: PartitionKey, places: PlaceRange, limit: int) -> Sequence[Timer]:
    """The first timers that wait in that range, in order, `limit` at most. Fewer if shards are uneven, and then some.

    Empty only if no timer of the range waits. The shards are read side by side, and no two of them at one moment: a
    timer that is put meanwhile may be missing, and one behind it may be there. One query for each of `TIMER_SHARDS`
    shards, and what marks cost (`TimerStore.waiting`). Raises what a query raises.
    """
    share = min(limit, limit // TIMER_SHARDS + _SPARE)
    shards = range(TIMER_SHARDS)
    results = instance.executor.first_of(
        lambda shard: instance.stores.timers.waiting(key, shard, places, share),
        shards,
        lambda _: False,
        0,
        lanes=[_LANE] * TIMER_SHARDS,
    )
    found: list[Sequence[Timer]] = []
    for each in results:
        if each is None:
            raise RuntimeError("a shard was not read, though all calls have ended")
        if isinstance(each, PenstockError):
            raise each
        found.append(each)
    merged = sorted((timer for each in found for timer in each), key=lambda timer: timer.place)
    # A shard that gave all that was asked of it may have more behind its last one, where other shards have some, too.
    known = [each[-1].place for each in found if len(each) == share]
    if known:
        merged = [timer for timer in merged if timer.place <= min(known)]
    return merged[:limit]


def announce_reader(instance: Instance, name: TopicName, key: PartitionKey) -> Head | None:
    """Tells retention of a new place in a partition of the topic, if readers empty it. The head after that, else None.

    Call it after the write of the place, and before the answer. It costs a read of the topic if it is not remembered,
    and one update. It may be repeated. Raises what these raise: call it again then.
    """
    topic = instance.topic_cache.find(name)
    if topic is None or topic.topic_id != key.topic_id or not topic.config.is_acknowledged:
        return None
    return instance.stores.log.count_reader(key)


def announce_topics(instance: Instance, names: Iterable[TopicName | None]) -> None:
    """As `announce_reader`, for all partitions of these topics."""
    for name in dict.fromkeys(names):
        topic = None if name is None else instance.topic_cache.find(name)
        if topic is not None and topic.config.is_acknowledged:
            keys = [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]
            instance.executor.map(instance.stores.log.count_reader, keys).all_ok()
