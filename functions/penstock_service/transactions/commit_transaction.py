"""Transactions: stage data that is too large for one request, then commit all of it, with a group's offsets, at once.

```
 stage 0 … n-1:  put a segment, note its refs   (nothing is visible; garbage without a commit)
 commit:         put the rest, then one TransactWriteItems: producer's item, heads, leases
```
Delayed records wait in timers that the commit puts: they exist if it is applied, and never else (docs/adr/0039).
A crash before the commit leaves notes, which expire, and objects that no ref names, which the sweep removes. The
service recognises a repeated commit by its nonce, and answers it as it answered the first. Before it refuses a commit,
for whatever reason, it looks whether that commit was applied before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import CommittedOffset, LeaseToken, check_committed
from penstock_core.ids import (
    GroupName,
    Offset,
    Partition,
    PartitionKey,
    SegmentId,
    member_name,
    parse_group_name,
    segment_time_ms,
)
from penstock_core.limits import (
    TRANSACTION_COMMIT_ROUNDS_MAX,
    TRANSACTION_MS_MAX,
    TRANSACTION_STAGES_MAX,
)
from penstock_core.log.ref import Ref, Tier, span
from penstock_core.log.topic import check_own
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.records.producer_state import Verdict
from penstock_core.storage.transaction_items import StagedRef
from penstock_core.transaction import (
    OffsetCommit,
    ShareCommit,
    Transaction,
    check_transaction_size,
    id_expiry_s,
    judge_transaction,
    must_renew,
)
from penstock_service.groups.claim_group import keep_listed, list_group, release_abandoned_lease
from penstock_service.groups.commit_offsets import check_jumps
from penstock_service.index.heads import announce_reader, still_closed
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.transactions import TransactionStore
from penstock_service.records.append import PartitionBatches, is_head_closed, is_head_gone, put_batches
from penstock_service.records.count_traffic import count_committed
from penstock_service.records.produce import ProduceEntry, RecordBudget, are_inline, check_entries, check_entry
from penstock_service.records.produce_within_quotas import check_delayed
from penstock_service.records.schedule import DelayedBatches, put_delayed
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.records.timer_room import announce
from penstock_service.records.wake_readers import wake_beside, wake_blindly, wake_ups_of_heads
from penstock_service.transactions.begin_transactions import CommittedRange, TransactionPart, committed_ranges, spans_of
from penstock_service.transactions.share_commits import (
    Acceptance,
    CheckedEntry,
    announce_again,
    share_commits,
    staged_timer,
    timers_of,
    wake_after,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """An offset to commit for a group; `member_id` and `lease_epoch` are None where no member owns the partition.

    `topic_id` is the topic that the caller has read, None if it does not say. Unless it `may_create`, the group has a
    lease there.
    """

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""
    member_id: str | None = None
    instance_id: str | None = None
    lease_epoch: int | None = None
    topic_id: str | None = None
    leader_epoch: int | None = None
    may_create: bool = False


def stage(instance: Instance, part: TransactionPart, stage_number: int) -> None:
    """Put data of a transaction ahead of its commit. The same stage again takes the place of the first.

    One read, one put per zone, one put; one update more to put off the end of an id that is near. Raises
    PRODUCER_FENCED, OUT_OF_ORDER_SEQUENCE, TRANSACTION_TOO_LARGE after `TRANSACTION_STAGES_MAX` stages, and the error
    of the first wrong entry.
    """
    window = UpdateWindow.open(instance.clock)
    producer, number = part.producer, part.number
    if stage_number >= TRANSACTION_STAGES_MAX:
        raise PenstockError(
            ErrorCode.TRANSACTION_TOO_LARGE,
            f"stage {stage_number} of transaction {number}: {TRANSACTION_STAGES_MAX} at most. Commit more often",
            limit=TRANSACTION_STAGES_MAX,
        )
    transactions, name, now_ms = instance.stores.transactions, producer.transactional_id, instance.clock.now_ms()
    state = transactions.get(name)
    judge_transaction(state, producer, number, part.nonce)
    if state is not None and must_renew(state, now_ms) and not transactions.renew(producer, id_expiry_s(now_ms)):
        judge_transaction(transactions.get(name), producer, number, part.nonce)  # it is not as it was: raises
    staged = _put(instance, part, _checked(instance, part.entries))
    window.check()  # the commit trusts what was checked here, and counts its time from the segment's
    transactions.put_stage(producer, number, part.nonce, stage_number, staged, instance.clock.now_ms())


def commit_transaction(
    instance: Instance,
    last: TransactionPart,
    offsets: Sequence[OffsetEntry],
    stage_count: int,
    acceptances: Sequence[Acceptance] = (),
) -> list[CommittedRange]:
    """Make the staged data, the entries of the `last` part, `offsets` and `acceptances` visible at once.

    The result has one range for each partition with records. One put per zone, one TransactWriteItems, one read of
    heads; a query if there were stages; a roll for each tail that is due. The first offset for a partition may make its
    group: the commit is refused once, and costs what `list_group` and `keep_listed` cost.

    Raises the error of the first wrong part: nothing is visible then, unless the error says `maybe_applied`. A refusal
    costs one read more: a commit that was applied before is answered as then, although it would be refused now.
    """
    maybe_applied = False
    for rest in reversed(range(TRANSACTION_COMMIT_ROUNDS_MAX)):
        prepared = None
        try:
            prepared = _prepared(instance, last, offsets, stage_count, acceptances)
            if instance.stores.transactions.commit(prepared.transaction):
                _keep_listed(instance, last, prepared)
                return _answer(instance, prepared, acceptances)
            refusal = PenstockError(ErrorCode.CONCURRENT_UPDATE, "the producer has changed meanwhile: try again")
        except PenstockError as error:
            refusal = error
        maybe_applied |= refusal.maybe_applied
        if not (rest and prepared is not None and _may_heal(instance, prepared, refusal)):
            break
        if refusal.code is ErrorCode.UNKNOWN_GROUP or rest == 1:  # nothing heals a refusal of the last round
            offsets = [replace(each, may_create=True) for each in offsets]
    if is_head_closed(refusal) and prepared is not None:
        refusal = _why_closed(instance, prepared, refusal)
    refusal.maybe_applied = maybe_applied  # an attempt of an earlier round may still come
    segments = () if prepared is None else prepared.transaction.segments
    try:
        answer = _earlier_answer(instance, last, stage_count, segments, refusal)
    except PenstockError as error:
        if error.maybe_applied and prepared is not None:
            wake_blindly(instance, prepared.transaction.refs)
            _keep_listed(instance, last, prepared)
        raise
    if prepared is not None:
        _keep_listed(instance, last, prepared)
    else:
        _announce_again(instance, offsets)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A transaction whose data is stored, and the names of its topics."""

    transaction: Transaction
    names: Mapping[PartitionKey, str]


def _prepared(
    instance: Instance,
    last: TransactionPart,
    offsets: Sequence[OffsetEntry],
    stage_count: int,
    acceptances: Sequence[Acceptance],
) -> _Prepared:
    """Check all of the transaction, and put the last part."""
    window = UpdateWindow.open(instance.clock)
    now_ms = instance.clock.now_ms()
    commits = [_offset_commit(instance, each, now_ms) for each in offsets]
    for group in _made(commits):
        list_group(instance, window, last.principal, group)
    checked = _checked(instance, last.entries) if last.entries else []
    staged = _staged(instance.stores.transactions, last, stage_count, now_ms)
    shares = share_commits(instance, acceptances)
    _check_size(staged, checked, commits, shares)  # the number of partitions is known here, before the first put
    if checked:
        staged += _put(instance, last, checked)
    refs: dict[PartitionKey, list[Ref]] = {}
    for each in staged:
        if each.place is None:
            refs.setdefault(each.key, []).append(each.ref)
    written_zones = instance.zone_cache.get().written(instance.stores.zone_names) & instance.stores.regular_zones
    transaction = Transaction(
        producer=last.producer,
        number=last.number,
        expires_at_s=id_expiry_s(now_ms),
        refs=refs,
        nonce=last.nonce,
        unconfirmed=_unconfirmed(refs, written_zones),
        offsets=commits,
        shares=shares,
        timers=timers_of(instance, staged),
    )
    window.check()
    return _Prepared(transaction=transaction, names={each.key: each.topic for each in staged})


def _keep_listed(instance: Instance, last: TransactionPart, prepared: _Prepared) -> None:
    """A read for each group that the transaction may have made. Then retention is told of places without a member."""
    offsets = prepared.transaction.offsets
    for group in _made(offsets):
        keep_listed(instance, last.principal, group)
    with errors_maybe_applied():
        for each in offsets:
            if each.token is None:
                announce_reader(instance, each.committed.topic, each.committed.partition)


def _announce_again(instance: Instance, offsets: Sequence[OffsetEntry]) -> None:
    """Tells retention of places without a member: the try that committed them may have died before it."""
    with errors_maybe_applied():
        for each in offsets:
            topic = instance.topic_cache.find(each.topic)
            if topic is not None and each.member_id is None:
                announce_reader(instance, topic.name, PartitionKey(topic.topic_id, Partition(each.partition)))


def _made(commits: Sequence[OffsetCommit]) -> set[GroupName]:
    """The groups that the commits may make. A member's commit makes none."""
    return {each.group for each in commits if each.may_create and each.token is None}


def _check_size(
    staged: Sequence[StagedRef],
    checked: Sequence[CheckedEntry],
    commits: Sequence[OffsetCommit],
    shares: Sequence[ShareCommit],
) -> None:
    partitions = {each.key for each in staged if each.place is None}
    partitions |= {each.key for each in checked if isinstance(each, PartitionBatches)}
    timers = sum(each.place is not None for each in staged) + sum(isinstance(each, DelayedBatches) for each in checked)
    check_transaction_size(partitions, commits, shares, timers=timers)


def _answer(instance: Instance, prepared: _Prepared, acceptances: Sequence[Acceptance]) -> list[CommittedRange]:
    """Where the records are of a transaction that this try has committed."""
    refs = prepared.transaction.refs
    window = UpdateWindow.open(instance.clock)
    announce(instance, prepared.transaction.timers)
    with errors_maybe_applied():
        heads = instance.stores.log.heads([*refs]) if refs else {}
        grown = [GrownHead(key=key, head=head, added_refs=len(refs[key])) for key, head in heads.items()]
        wake_beside(instance, wake_ups_of_heads(heads), lambda: shorten_heads(instance, window, grown))
        wake_after(instance, acceptances, prepared.transaction.shares)
        count_committed(instance, refs, prepared.names)
        spans = {key: (prepared.names[key], span(each)) for key, each in refs.items()}
        return committed_ranges(instance.stores.log, spans, heads, set(prepared.transaction.segments))


def _earlier_answer(
    instance: Instance,
    last: TransactionPart,
    stage_count: int,
    segments: Sequence[SegmentId],
    refusal: PenstockError,
) -> list[CommittedRange]:
    """The answer if an earlier try has committed the transaction, for this try was refused. Else raises why.

    The producer's item decides. If it cannot be read, the error says `maybe_applied`.
    """
    producer = last.producer
    with errors_maybe_applied():
        state = instance.stores.transactions.get(producer.transactional_id)
    verdict = judge_transaction(state, producer, last.number, last.nonce, segments)
    if verdict is not Verdict.REPEATS or state is None:
        raise refusal
    with errors_maybe_applied():
        announce_again(instance, last, stage_count)  # the first try may have died before it
        spans = spans_of(instance, last, stage_count)
        heads = instance.stores.log.heads([*spans]) if spans else {}
        wake_beside(instance, wake_ups_of_heads(heads), lambda: None)  # the first try may have died before it
        return committed_ranges(instance.stores.log, spans, heads, set(state.segments))


def _may_heal(instance: Instance, prepared: _Prepared, refusal: PenstockError) -> bool:
    """Remove the cause of a refusal that may be out of date. True if another try may do better.

    False also if that fails: the refusal holds then, unless the commit was applied before.
    """
    try:
        return _heals(instance, prepared, refusal)
    except PenstockError:
        return False


def _why_closed(instance: Instance, prepared: _Prepared, refusal: PenstockError) -> PenstockError:
    """The refusal by a topic that its mirror writes, or that was moved to its mirror: it says where the records go."""
    try:
        for name in {*prepared.names.values()}:
            check_own(instance.topic_cache.read_through(name))
    except PenstockError as error:
        return error if error.code in (ErrorCode.MIRRORED, ErrorCode.MOVED) else refusal
    return refusal


def _heals(instance: Instance, prepared: _Prepared, refusal: PenstockError) -> bool:
    transaction = prepared.transaction
    if is_head_gone(refusal):
        # A topic was deleted, and perhaps created again, since it was looked up.
        return any(_is_another_topic(instance.topic_cache, name, key) for key, name in prepared.names.items())
    if is_head_closed(refusal):
        return all(still_closed(instance, prepared.names[key], key) is None for key in transaction.refs)
    if refusal.code is ErrorCode.LEASE_HELD:
        released = [
            release_abandoned_lease(instance, each.group, each.committed.partition)
            for each in transaction.offsets
            if each.token is None
        ]
        return any(released)
    # The share item has changed since it was read, perhaps by another lock's end: look again if this lock holds.
    # Or an offset is the first of its group in a partition: list the group.
    return refusal.code in (ErrorCode.LOCK_LOST, ErrorCode.UNKNOWN_GROUP)


def _is_another_topic(topic_cache: TopicCache, name: str, key: PartitionKey) -> bool:
    """True if the name means another topic than that of `key` now, or none. One read, which the cache remembers."""
    try:
        return topic_cache.read_through(name).topic_id != key.topic_id
    except PenstockError:
        return True  # the next look-up says why


def _checked(instance: Instance, entries: Sequence[ProduceEntry]) -> list[CheckedEntry]:
    """The batches of all entries. Raises the error of the first wrong entry."""
    check_entries(entries)
    budget, needs_zones = RecordBudget(), not are_inline(instance, entries)
    return [
        check_entry(instance, entry, budget, needs_zones=needs_zones)
        if entry.timer is None
        else _check_timer(instance, entry, budget)
        for entry in entries
    ]


def _check_timer(instance: Instance, entry: ProduceEntry, budget: RecordBudget) -> DelayedBatches:
    """As `check_delayed`. Raises PARTITION_CLOSED too: a timer would come to the partition although it drains.

    Costs what `still_closed` costs then. That opens the partitions of a generation that comes.
    """
    delayed = check_delayed(instance, entry, budget)
    if not delayed.batches.is_draining:
        return delayed
    refusal = still_closed(instance, entry.topic, delayed.batches.key)
    if refusal is not None:
        raise refusal
    return check_delayed(instance, entry, budget)  # only an old view of the topic had it closed


def _put(instance: Instance, part: TransactionPart, checked: Sequence[CheckedEntry]) -> list[StagedRef]:
    """Puts the data of the part. Its refs are in the order of the entries."""
    now = [each for each in checked if isinstance(each, PartitionBatches)]
    refs = iter(put_batches(instance, now, part.acks)[1] if now else ())
    later = [each for each in checked if isinstance(each, DelayedBatches)]
    timers = iter(put_delayed(instance, later) if later else ())
    return [
        staged_timer(entry.topic, next(timers))
        if isinstance(each, DelayedBatches)
        else StagedRef(topic=entry.topic, key=each.key, ref=next(refs))
        for entry, each in zip(part.entries, checked, strict=True)
    ]


def _staged(transactions: TransactionStore, last: TransactionPart, stage_count: int, now_ms: int) -> list[StagedRef]:
    """The refs of all stages. One query. Raises OUT_OF_ORDER_SEQUENCE and TRANSACTION_EXPIRED."""
    producer, number = last.producer, last.number
    if not stage_count:
        return []
    stages = transactions.stages(producer, number, last.nonce)
    if len(stages) < stage_count:
        raise PenstockError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE,
            f"transaction {number} of {producer.transactional_id!r} has {len(stages)} stages, not {stage_count}: "
            "stage what is missing before you commit",
        )
    parts = [part for staged in stages[:stage_count] for part in staged]
    oldest_ms = min(segment_time_ms(part.ref.segment_id) for part in parts)
    age_ms = now_ms - oldest_ms
    if age_ms > TRANSACTION_MS_MAX:
        raise PenstockError(
            ErrorCode.TRANSACTION_EXPIRED,
            f"transaction {number} of {producer.transactional_id!r} has staged data for {age_ms // 1_000} s: "
            f"{TRANSACTION_MS_MAX // 1_000} s at most. Abort it, and send its records again",
        )
    # The commit is their append, and their segments' ids may be as old as the transaction.
    return [
        each if each.place is not None else each._replace(ref=replace(each.ref, appended_ms=now_ms)) for each in parts
    ]


def _unconfirmed(refs: Mapping[PartitionKey, Sequence[Ref]], written_zones: int) -> dict[PartitionKey, int]:
    """A bitmap per partition: the zones that take writes and lack some of its segments. They need no inline one."""
    unconfirmed: dict[PartitionKey, int] = {}
    for key, each in refs.items():
        for ref in (ref for ref in each if ref.tier is Tier.ZONAL):
            unconfirmed[key] = unconfirmed.get(key, 0) | (written_zones & ~ref.zones)
    return unconfirmed


def _offset_commit(instance: Instance, each: OffsetEntry, now_ms: int) -> OffsetCommit:
    """The checked commit of one offset. Reads the topic if it is not remembered.

    Raises as `check_committed` and `check_jumps`.
    """
    topic, key = instance.topic_cache.get_partition(each.topic, each.partition, each.topic_id)
    if (each.member_id is None) != (each.lease_epoch is None):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the offset for partition {each.partition} of topic {each.topic!r:.100} names only one of member_id and "
            "lease_epoch: name both, or none for a partition that no member owns",
        )
    token = None
    if each.member_id is not None and each.lease_epoch is not None:
        token = LeaseToken(owner=member_name(each.member_id, each.instance_id), epoch=each.lease_epoch)
    committed = CommittedOffset(
        topic=topic.name,
        partition=key,
        offset=Offset(each.offset),
        metadata=each.metadata,
        committed_at_ms=now_ms,
        leader_epoch=each.leader_epoch,
    )
    check_committed(committed)
    check_jumps(instance, topic, committed)
    return OffsetCommit(
        group=parse_group_name(each.group), committed=committed, token=token, may_create=each.may_create
    )
