"""Move a topic to its mirror: it takes no appends any more, so that the mirror can become equal, and go on.

```
 1  the topic: its move, by the next number; from now on nobody alters it
 2  each head: `next_offset` gets another name, so no write of any release raises it
 3  the subscription pushes the rest                              until the mirror has all: it is promoted there
```
Each step may come twice, late, or from several callers. A call that died leaves some heads that take appends, and the
next one goes on. `reopen_topic` opens them again, once the mirror has refused the move (promote_topic.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicName, parse_own_topic_name
from penstock_core.limits import BATCH_GET_KEYS_MAX, OPEN_ATTEMPTS_MAX, TIMER_MS_MAX, TIMERS_READ_MAX
from penstock_core.log.index import Head
from penstock_core.log.retention import written_ms
from penstock_core.log.timer import PlaceRange
from penstock_core.log.topic import MirrorNote, MoveNote, MoveState, Topic, check_not_mirrored
from penstock_core.mirror.push import LOG_ID_BYTES, HeadMove, HeadReopening, SourceTopic, source_topic
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.subscription import Subscription
from penstock_core.push.targets.target import StageTarget
from penstock_service.index.heads import open_generation, waiting_timers
from penstock_service.index.reader import ref_at
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.push.subscriptions import find_subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPartition:
    """The end of a log that moves, and how far its mirror is, as its last answer said. `lag` records are missing there.

    `appended_ms` is when the newest record came, None for an empty log.
    """

    partition: Partition
    log_id: str
    end_offset: Offset
    mirrored_offset: Offset
    lag: int
    appended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTopic:
    """A move: where the topic goes, its settings as a push tells them, and its partitions. The number is 0 if none.

    The mirror was told of so many `timers` that wait, None before all were told once. `are_timers_told`: it was told
    all since the move, and has taken them.
    """

    note: MoveNote
    source: SourceTopic
    partitions: Sequence[MovedPartition]
    timers: int | None
    are_timers_told: bool


def move_topic(instance: Instance, name: str, mirror: str, *, is_dry_run: bool = False) -> MovedTopic:
    """Ends the topic's logs for its mirror. A repeat ends what an earlier call has left, and tells how far it is.

    Three reads, one update of the topic and of each head, one read of heads for each 100 partitions, a query for a
    partition whose tail is empty, and one query of the subscription's states. A dry run only reads. Raises
    UNKNOWN_TOPIC, UNKNOWN_SUBSCRIPTION, INVALID_REQUEST for a subscription that does not mirror the topic, or is
    paused, MIRRORED, and CONCURRENT_UPDATE for a topic that moves elsewhere, opens again, or is altered all the time.
    """
    subscription = find_subscription(instance, mirror)
    read_ms = instance.clock.now_ms()
    topic, note = _noted(instance, parse_own_topic_name(name), subscription, is_dry_run=is_dry_run)
    keys = [PartitionKey(topic.topic_id, each) for each in topic.all_heads()]
    with errors_maybe_applied(has_begun=not is_dry_run):
        heads = _heads(instance, keys)
        if not is_dry_run:
            heads |= _ended(instance, note, [key for key, head in heads.items() if not head.move])
        states = instance.stores.push.states_of(subscription.subscription_id).deliveries
        partitions = _told(instance, topic, subscription, heads, states)
        timers = states[first].timers if (first := _delivery(subscription, topic, Partition(0))) in states else None
        has_none = timers is None and instance.stores.timers.switched_on_ms() is None
    assert isinstance(subscription.target, StageTarget)
    is_told = timers is not None and (timers.told_move, timers.told_left) == (note.number, 0)
    return MovedTopic(
        note=note,
        source=source_topic(topic, subscription.target.prefix, read_ms),
        partitions=partitions,
        timers=0 if has_none else None if timers is None else timers.told,
        are_timers_told=has_none or is_told,
    )


def reopen_topic(instance: Instance, name: str, number: int, *, is_mirror_lost: bool = False) -> Topic:
    """The topic, which takes appends again. Call it once the mirror has refused the move: no call here asks it.

    With `is_mirror_lost` the mirror may have been promoted. So each log gets another name, and the mirror is no prefix
    of it any more. A repeat goes on. Two reads, two updates of the topic, one of each head. Raises UNKNOWN_TOPIC,
    CONCURRENT_UPDATE for another number, INVALID_REQUEST for a topic that was never moved, and MIRRORED for one that
    has become a mirror.
    """
    topic = _ending(instance, parse_own_topic_name(name), number, MoveState.REOPENING)
    if not topic.is_moved:
        return check_not_mirrored(topic)
    assert topic.move is not None
    opened = replace(topic, move=replace(topic.move, state=MoveState.OPEN))
    now_ms = instance.clock.now_ms()

    def reopen(partition: Partition) -> None:
        reopened = HeadReopening(
            number=number,
            layout=topic.layout,
            closed_ms=None if opened.is_writable(partition) else now_ms,
            log_id=_new_log_id(instance) if is_mirror_lost else "",
        )
        key = PartitionKey(topic.topic_id, partition)
        head = instance.stores.log.reopen(key, reopened)
        if head is not None and head.move == number:  # a late mover was between its two updates
            instance.stores.log.reopen(key, reopened)

    with errors_maybe_applied():
        instance.executor.map(reopen, [*topic.all_heads()]).all_ok()
        instance.stores.topics.replace(topic, opened)
    instance.topic_cache.forget(topic.name)
    return opened


def return_topic(instance: Instance, name: str, number: int, note: MirrorNote) -> Topic:
    """The topic, which mirrors its former mirror from now on. Call it once that was promoted: no call here asks it.

    Its logs are the same up to their ends, so pushes go on there. A repeat goes on. Costs and raises as `reopen_topic`,
    a read of heads for each 100, and a delete. Raises INVALID_REQUEST if the move has not ended all heads: then the
    mirror was promoted without the source. Also for a topic that was reopened, or that returns under another name.
    """
    _check_ended(instance, parse_own_topic_name(name), number)
    topic = _ending(instance, parse_own_topic_name(name), number, MoveState.RETURNING, note.name)
    if not topic.is_moved:
        if topic.mirror is None:
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"topic {name!r} takes appends again: it was reopened")
        _check_one_name(topic, topic.mirror.name, note.name)
        return topic
    assert topic.move is not None
    _check_one_name(topic, topic.move.mirror, note.name)
    returned = replace(topic, move=replace(topic.move, state=MoveState.OPEN), mirror=note)

    def return_to(partition: Partition) -> None:
        instance.stores.log.return_to(PartitionKey(topic.topic_id, partition), number, note.name)

    with errors_maybe_applied():
        instance.executor.map(return_to, [*topic.all_heads()]).all_ok()
        for partition in topic.all_heads():
            _drop_timers(instance, PartitionKey(topic.topic_id, partition))
        instance.stores.log.delete_offsets(topic.topic_id)  # of the time when it was a mirror before
        instance.stores.topics.replace(topic, returned)
    instance.topic_cache.forget(topic.name)
    return returned


def _drop_timers(instance: Instance, key: PartitionKey) -> None:
    """Removes the timers that wait in a log that has become a mirror: they wait at the other stage, which tells them.

    None of them is a copy that was told meanwhile: nothing pushes to this topic before the caller is done.
    """
    window, start_ms = UpdateWindow.open(instance.clock), 0
    while found := waiting_timers(instance, key, PlaceRange(start_ms, TIMER_MS_MAX), TIMERS_READ_MAX):
        window.check()
        instance.executor.map(lambda timer: instance.stores.timers.delete(key, timer.place), found).all_ok()
        start_ms = found[-1].place.due_ms


def _noted(
    instance: Instance, name: TopicName, subscription: Subscription, *, is_dry_run: bool
) -> tuple[Topic, MoveNote]:
    """The topic with the note of its move to this mirror. An alteration that has not ended is ended first."""
    for attempt in range(OPEN_ATTEMPTS_MAX):
        with errors_maybe_applied(has_begun=attempt > 0):
            topic = check_not_mirrored(instance.topic_cache.read_through(name))
        target = _target_of(subscription, topic)
        old = topic.move
        if topic.is_moved and old is not None:
            if old.state is not MoveState.MOVED or old.mirror != subscription.name:
                raise PenstockError(
                    ErrorCode.CONCURRENT_UPDATE,
                    f"topic {name!r} is {old.state.value}, by move {old.number} to mirror {old.mirror!r}: end that by "
                    "`penstock mirrors promote` or `penstock mirrors reopen` first",
                )
            return topic, old
        note = MoveNote(
            number=1 if old is None else old.number + 1,
            mirror=subscription.name,
            url=target.url,
            topic=f"{target.prefix}{name}",
        )
        if is_dry_run:
            return topic, note
        moved = replace(open_generation(instance, name), move=note)
        if moved.topic_id != topic.topic_id:
            continue  # it was made anew, and the mirror is of the old one
        try:
            with errors_maybe_applied():
                instance.stores.topics.replace(replace(moved, move=old), moved)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            continue
        instance.topic_cache.forget(name)
        return moved, note
    raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered all the time: move it again")


def _target_of(subscription: Subscription, topic: Topic) -> StageTarget:
    target = subscription.target
    is_mirror = isinstance(target, StageTarget) and subscription.topics.get(topic.name) == topic.topic_id
    if not is_mirror or subscription.is_paused or not isinstance(target, StageTarget):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"subscription {subscription.name!r} does not mirror topic {topic.name!r}, or is paused: resume it, or "
            "create the mirror anew",
        )
    return target


def _ended(instance: Instance, note: MoveNote, keys: Sequence[PartitionKey]) -> dict[PartitionKey, Head]:
    now_ms = instance.clock.now_ms()

    def end(key: PartitionKey) -> Head | None:
        move = HeadMove(number=note.number, log_id=_new_log_id(instance), now_ms=now_ms)
        return instance.stores.log.move(key, move)

    ended = dict(zip(keys, instance.executor.map(end, keys).all_ok(), strict=True))
    for key, head in ended.items():
        if head is None or head.move != note.number:
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE, f"partition {key} was deleted, or move {note.number} was given up"
            )
    return {key: head for key, head in ended.items() if head is not None}


def _check_ended(instance: Instance, name: TopicName, number: int) -> None:
    topic = instance.topic_cache.read_through(name)
    if topic.move is None or topic.move.number != number or not topic.is_moved:
        return
    heads = _heads(instance, [PartitionKey(topic.topic_id, each) for each in topic.all_heads()])
    open_heads = [key.partition for key, head in sorted(heads.items()) if not head.move]
    if open_heads and topic.move.state is MoveState.MOVED:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"partitions {open_heads} of topic {name!r} are not moved, so its mirror was promoted without them: delete "
            "the topic, and mirror it anew",
        )


def _check_one_name(topic: Topic, name: str, mirror: str) -> None:
    """Raises INVALID_REQUEST if an earlier call had another name: no push and no promotion would reach all heads."""
    if name != mirror:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} returns as the mirror {name!r}: go on by that name"
        )


def _ending(instance: Instance, name: TopicName, number: int, state: MoveState, mirror: str = "") -> Topic:
    """The topic once it says how its move ends, or has ended by this number.

    The first call decides the name `mirror` by which a topic returns, and the topic keeps it.
    """
    for attempt in range(OPEN_ATTEMPTS_MAX):
        with errors_maybe_applied(has_begun=attempt > 0):
            topic = instance.topic_cache.read_through(name)
        note = topic.move
        if note is None:
            raise PenstockError(ErrorCode.INVALID_REQUEST, f"topic {name!r} was never moved: it takes appends")
        if note.number != number:
            raise PenstockError(
                ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} was moved by move {note.number}, not by move {number}"
            )
        if note.state in (state, MoveState.OPEN):
            return topic
        if note.state is not MoveState.MOVED:
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is {note.state.value}: end that first")
        reopened = replace(topic, move=replace(note, state=state, mirror=mirror or note.mirror))
        try:
            with errors_maybe_applied():
                instance.stores.topics.replace(topic, reopened)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE:
                raise
            continue
        instance.topic_cache.forget(name)
        return reopened
    raise PenstockError(ErrorCode.CONCURRENT_UPDATE, f"topic {name!r} is altered all the time: reopen it again")


def _heads(instance: Instance, keys: Sequence[PartitionKey]) -> dict[PartitionKey, Head]:
    found: dict[PartitionKey, Head] = {}
    for start in range(0, len(keys), BATCH_GET_KEYS_MAX):
        found |= instance.stores.log.heads(keys[start : start + BATCH_GET_KEYS_MAX])
    return found


def _delivery(subscription: Subscription, topic: Topic, partition: Partition) -> DeliveryKey:
    return DeliveryKey(subscription_id=subscription.subscription_id, topic_id=topic.topic_id, partition=partition)


def _told(
    instance: Instance,
    topic: Topic,
    subscription: Subscription,
    heads: dict[PartitionKey, Head],
    states: Mapping[DeliveryKey, DeliveryState],
) -> list[MovedPartition]:
    def tell(partition: Partition) -> MovedPartition | None:
        key = PartitionKey(topic.topic_id, partition)
        head = heads.get(key)
        if head is None:
            return None
        state = states.get(_delivery(subscription, topic, partition))
        mirrored = Offset(0 if state is None else state.offset)
        last = Offset(head.next_offset - 1)
        is_there = last >= head.log_start_offset
        return MovedPartition(
            partition=partition,
            log_id=head.log_id,
            end_offset=head.next_offset,
            mirrored_offset=mirrored,
            lag=head.count_from(mirrored),
            appended_ms=written_ms(ref_at(instance, key, head, last).ref) if is_there else None,
        )

    return [each for each in instance.executor.map(tell, [*topic.all_partitions()]).all_ok() if each is not None]


def _new_log_id(instance: Instance) -> str:
    return instance.entropy.random_bytes(LOG_ID_BYTES).hex()
