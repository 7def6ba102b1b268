"""Look through the partitions of a share group for records, and take some: the search of one acquire.

```
round 1   the partitions that the call acknowledges   1 read of states, 1 of heads, 1 update does both
round 2   4 more, in the order of the nonce           1 read of states, 1 of heads, 1 update for each that has records
round 3   16 more, then 64, then 100 at a time        ends with the first round that has something
```
With topic_order=listed all partitions of a topic come before the next topic, and those that the call acknowledges come
first in their topic. The rounds go on while there is room. An acquire that has left something in a topic takes nothing
of a later one.

With order by key, a partition of a later generation that has something costs what `OlderGenerations` costs.
A repeated acquire has the same nonce, so it looks in the same order. Where it meets a lock of its nonce, it takes that
lock and nothing else: its first try has got it. Records that came since may end the look in an earlier round. So if the
client says that it repeats, the look reads the states of all partitions before round 1, and takes its locks in round 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicName
from penstock_core.limits import (
    HEADS_AT_ONCE,
    READ_DECODED_BYTES_MAX,
    SHARE_ACQUIRE_ATTEMPTS_MAX,
    SHARE_KEY_ATTEMPTS_MAX,
    SHARE_LOOK_MS_MAX,
    SHARE_LOOKS_FIRST,
    SHARE_READ_BYTES_MAX,
    SHARE_UNREAD_PAUSE_MS,
)
from penstock_core.log.index import Head
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.acknowledge import Acknowledgement
from penstock_core.share.acquire import (
    AcquirePlan,
    AcquireRequest,
    Grant,
    LogBounds,
    grants,
    has_available,
    next_available_ms,
    plan_acquire,
)
from penstock_core.share.fair import plan_fair
from penstock_core.share.read_first import plan_read_first
from penstock_core.share.share_group import ShareGroup
from penstock_core.share.share_state import ShareKey, ShareState, locks_of
from penstock_core.share.tenants import KnownTenants
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import (
    AckEntry,
    LocksNow,
    acknowledge_partition,
    answered,
    by_partition,
    unknown_outcomes,
)
from penstock_service.share.acquire.fresh_window import (
    FreshWindow,
    Look,
    OlderGenerations,
    Taken,
    first_fresh,
    fresh_window,
    in_turn,
    records_within,
)
from penstock_service.share.acquire.read_tenants import ReadTenants, read_tenants
from penstock_service.share.batches.decode_batches import filter_of
from penstock_service.share.batches.read_batches import StoredBatch
from penstock_service.share.share_partitions import SharePartition, count_expired

_GROWTH = 4
_NOTHING_READ = ReadTenants(known=KnownTenants())


def look_through(
    instance: Instance,
    group: ShareGroup,
    request: AcquireRequest,
    *,
    topics: frozenset[str] | None,
    bytes_max: int,
    entries: Sequence[AckEntry] = (),
    reach: int = 1,
) -> Look:
    """Take records for the request, and make the acknowledgements of `entries` with it.

    With a filter it takes up to `reach` times as many: the filter may take few of them.

    Costs two reads for each round, and one update for each partition that has records or is acknowledged; for a repeat
    one read more for each `HEADS_AT_ONCE` partitions. Raises THROTTLED if a partition that is acknowledged changes all
    the time.
    """
    search = _Search(instance, group, request, bytes_max, entries, reach)
    search.run(_all_partitions(instance, group, request, topics))
    return search.look


def _all_partitions(
    instance: Instance, group: ShareGroup, request: AcquireRequest, topics: frozenset[str] | None
) -> Iterator[tuple[TopicName, ShareKey]]:
    """The partitions in the order of the nonce. Topics that were deleted, or made anew since, are left out."""
    found = []
    for name, topic_id in group.topics.items():
        if topics is not None and name not in topics:
            continue
        topic = instance.topic_cache.find(name)
        if topic is not None and topic.topic_id == topic_id:
            found.append(topic)
    for index, number in in_turn([topic.partitions for topic in found], request.nonce):
        topic = found[index]
        yield topic.name, ShareKey(group.share_group_id, topic.topic_id, Partition(number))


def _holds_some(found: Sequence[Grant], batch: StoredBatch) -> bool:
    return any(each.records.only(((batch.base_offset, batch.next_offset),)).ranges for each in found)


def _call(read: Callable[[], None]) -> None:
    read()


class _Search:
    """One look, and what is left of its wish."""

    def __init__(
        self,
        instance: Instance,
        group: ShareGroup,
        request: AcquireRequest,
        bytes_max: int,
        entries: Sequence[AckEntry],
        reach: int,
    ) -> None:
        self._instance = instance
        self._group = group
        self._config = group.config
        self._request = request
        self._entries = entries
        self._places = by_partition(group, entries)
        self._wanted = filter_of(group.config)
        self._reach = reach
        self._records_left = request.records_max
        self._bytes_left = self._bytes_max = bytes_max
        self._budget = DecodeBudget(READ_DECODED_BYTES_MAX)
        self._older = OlderGenerations(instance)
        self._visited: set[ShareKey] = set()
        self._last_topic: TopicName | None = None  # with something left: if the group lists them, it is the last one
        self._deadline_ms = instance.clock.monotonic_ms() + SHARE_LOOK_MS_MAX
        self.look = Look(outcomes=unknown_outcomes(entries, self._places))

    def run(self, partitions: Iterator[tuple[TopicName, ShareKey]]) -> None:
        """Look, round by round. Once something may have changed, a failure is `maybe_applied`."""
        first = [] if self._group.order else self._acknowledged()
        if self._group.order:
            partitions = iter(self._listed([*partitions]))
        if self._request.is_repeat:
            every = [*partitions]
            first, partitions = self._with_own(first, every), iter(every)
        if first:
            self._round(first)
        with errors_maybe_applied(has_begun=bool(first)):
            self._look_on(partitions, first)
            if self._group.order:
                self._acknowledge_rest()
        self.look.is_spent = self._budget.is_spent

    def _look_on(
        self, partitions: Iterator[tuple[TopicName, ShareKey]], first: Sequence[tuple[TopicName, ShareKey]]
    ) -> None:
        known = {key for _, key in first}
        others = ((topic, key) for topic, key in partitions if key not in known)
        size = SHARE_LOOKS_FIRST
        while not (self._has_enough() if self._group.order else self.look.taken):
            chosen = [*islice(others, size)]
            if not chosen:
                self.look.is_complete = True
                return
            if self._budget.is_spent or self._instance.clock.monotonic_ms() > self._deadline_ms:
                return
            with errors_maybe_applied(has_begun=bool(self.look.taken or self.look.outcomes)):
                self._round(chosen)
            size = min(size * _GROWTH, HEADS_AT_ONCE)

    def _has_enough(self) -> bool:
        """With listed topics: nothing more may be taken."""
        is_repeat = any(each.is_repeat for each in self.look.taken)
        return is_repeat or self._last_topic is not None or self._is_satisfied()

    def _listed(self, partitions: list[tuple[TopicName, ShareKey]]) -> list[tuple[TopicName, ShareKey]]:
        """The partitions in the order of their topics, in each topic those first that the call acknowledges."""
        rank = {topic: index for index, topic in enumerate(self._group.order)}
        return sorted(partitions, key=lambda each: (rank[each[0]], each[1] not in self._places))

    def _acknowledge_rest(self) -> None:
        """Acknowledge in the partitions that the acquire has not come to."""
        for key in self._places:
            if key is not None and key not in self._visited:
                with errors_maybe_applied(has_begun=bool(self.look.taken or self.look.outcomes)):
                    self._acknowledge_only(key, None)

    def _acknowledged(self) -> list[tuple[TopicName, ShareKey]]:
        return [
            (TopicName(self._entries[places[0]].topic), key) for key, places in self._places.items() if key is not None
        ]

    def _with_own(
        self, first: list[tuple[TopicName, ShareKey]], every: Sequence[tuple[TopicName, ShareKey]]
    ) -> list[tuple[TopicName, ShareKey]]:
        """The first partitions, and those in which an earlier try of the call has locks."""
        own: set[ShareKey] = set()
        for start in range(0, len(every), HEADS_AT_ONCE):
            keys = [key for _, key in every[start : start + HEADS_AT_ONCE]]
            states = self._instance.stores.share.find_states(keys)
            own |= {key for key, state in states.items() if locks_of(state, self._request.nonce)}
        return first + [each for each in every if each[1] in own and each not in first]

    def _round(self, chosen: Sequence[tuple[TopicName, ShareKey]]) -> None:
        """Look at these partitions, all of them if they are acknowledged."""
        stores, keys = self._instance.stores, [key for _, key in chosen]
        states: dict[ShareKey, ShareState] = {}
        heads: dict[PartitionKey, Head] = {}

        def read_states() -> None:
            states.update(stores.share.find_states(keys))

        def read_heads() -> None:
            heads.update(stores.log.heads([key.partition_key for key in keys]))

        self._instance.executor.map(_call, [read_states, read_heads]).all_ok()
        with errors_maybe_applied(has_begun=len(chosen) > 1):
            self._visit(chosen, states, heads)

    def _visit(
        self,
        chosen: Sequence[tuple[TopicName, ShareKey]],
        states: Mapping[ShareKey, ShareState],
        heads: Mapping[PartitionKey, Head],
    ) -> None:
        """Take records, or only acknowledge. An update of an earlier partition may be done when a later one fails."""
        has_own = any(locks_of(state, self._request.nonce) for state in states.values())
        self._visited.update(key for _, key in chosen)
        for topic, key in chosen:
            head, state = heads.get(key.partition_key), states.get(key)
            is_own = state is not None and bool(locks_of(state, self._request.nonce))
            if head is None:
                self._acknowledge_only(key, state)
            elif is_own or not (
                has_own or self._is_satisfied() or (self._group.order and self._last_topic not in (None, topic))
            ):
                self._take(SharePartition(topic=topic, key=key, head=head, state=state))
            else:
                self._acknowledge_only(key, state)

    def _is_satisfied(self) -> bool:
        """True if the next partition's update would bring few records, or nothing more may be decoded."""
        is_half_full = self._records_left <= self._request.records_max // 2 or self._bytes_left <= self._bytes_max // 2
        return self.look.is_alone or self._budget.is_spent or (bool(self.look.taken) and is_half_full)

    def _take(self, partition: SharePartition) -> None:
        key, state = partition.key, partition.state
        if self._config.is_by_key and self._has_some(partition):
            partition = replace(partition, held=self._older.held_from(partition))
            if partition.held.is_all and not (state is not None and locks_of(state, self._request.nonce)):
                state = self._acknowledge_only(key, state)
                self.look.idle.append(replace(partition, state=state))
                self.look.note_available(self._older.again_ms(partition.held))
                return
        if state is None and partition.head.next_offset > partition.head.log_start_offset:
            state = self._begun(key)
        if state is None:
            self._acknowledge_only(key, None)
            self.look.idle.append(partition)
            return
        self._try(partition, state)

    @staticmethod
    def _has_some(partition: SharePartition) -> bool:
        """True if the partition may have records to hand out, of one kind or another."""
        state = partition.state
        return first_fresh(partition, state) < partition.head.next_offset or (state is not None and state.open > 0)

    def _try(self, partition: SharePartition, state: ShareState | None) -> None:
        """Plan and update, again after a refusal, which shows the state. None: the group was deleted."""
        key = partition.key
        window: FreshWindow | None = None
        tenants: ReadTenants | None = None
        maybe_applied = False
        attempts = SHARE_KEY_ATTEMPTS_MAX if self._config.is_by_key else SHARE_ACQUIRE_ATTEMPTS_MAX
        for attempt in range(attempts):
            if state is not None and self._config.is_by_key:
                window, state = self._window(partition, state, window)
            if state is not None and self._config.is_fair:
                tenants, state = self._tenants(partition, state)
            if state is None:
                self._acknowledge_only(key, None)
                return
            if window is not None and not window.covers(first_fresh(partition, state)):
                continue  # others have taken all of it meanwhile
            # The last try takes records in order, because that disturbs no other acquire.
            is_fair = tenants is not None and attempt + 1 < attempts
            plan = self._plan(partition, state, window, tenants if is_fair else None)
            batches = (window or tenants or _NOTHING_READ).batches
            if plan.is_alone and self.look.taken:
                break  # its records may kill the worker: another acquire takes them, alone
            if plan.update is None:
                self._applied(partition, state, plan, batches)
                return
            first = first_fresh(partition, state)
            end = state.position + plan.update.advance
            expired = 0 if window is None else window.expired_between(first, end)
            with errors_maybe_applied(has_begun=maybe_applied):
                update = replace(plan.update, expired=plan.update.expired + expired)
                outcome = self._instance.stores.share.update(key, update)
            if outcome.after is not None:
                count_expired(self._instance, expired)
                if plan.passed_over:
                    self._instance.telemetry.count("share_records_passed_over", plan.passed_over)
                self.look.woken += [key] * outcome.took_waiter
                self._applied(partition, outcome.after, plan, batches)
                return
            state, maybe_applied = outcome.before, maybe_applied or outcome.maybe_applied
        self._acknowledge_only(key, state)
        self.look.note_available(0)
        self._last_topic = partition.topic

    def _begun(self, key: ShareKey) -> ShareState:
        """A new state at the beginning of the partition. Raises UNKNOWN_SHARE_GROUP if the group is gone by now."""
        state = self._instance.stores.share.begin_state(self._group.name, key, Offset(0))
        if state is None:
            self._instance.share_group_cache.forget(self._group.name)
            raise PenstockError(
                ErrorCode.UNKNOWN_SHARE_GROUP, f"share group {self._group.name!r} was deleted: create it again"
            )
        return state

    def _window(
        self, partition: SharePartition, state: ShareState, known: FreshWindow | None
    ) -> tuple[FreshWindow, ShareState | None]:
        """The fresh records, and the state as it is once they are read.

        The read of records takes longer than all else before the update. Without the second read of the state, other
        acquires would have moved the position by then, and a refused update costs more than ten times that read.
        """
        if known is not None and known.covers(first_fresh(partition, state)):
            return known, state
        window = fresh_window(self._instance, self._config, partition, state, self._budget)
        if not window.batches:
            return window, state
        return window, self._instance.stores.share.find_states([partition.key]).get(partition.key)

    def _tenants(self, partition: SharePartition, state: ShareState) -> tuple[ReadTenants, ShareState | None]:
        """The tenants that are known, and the state as it is once they are read, as in `_window`."""
        read = read_tenants(self._instance, self._config, partition, state, self._budget)
        if not read.batches:
            return read, state
        return read, self._instance.stores.share.find_states([partition.key]).get(partition.key)

    def _plan(
        self, partition: SharePartition, state: ShareState, window: FreshWindow | None, tenants: ReadTenants | None
    ) -> AcquirePlan:
        """The plan on that state, with what was read: fresh records with order by key, or tenants."""
        head = partition.head
        log = LogBounds.of(head)
        acknowledgements = self._acknowledgements(partition.key)
        if window is not None:
            records_max = 0 if partition.held.is_all else self._records_left
            request = replace(self._request, records_max=records_max)
            hashes = window.hashes_from(first_fresh(partition, state))
            return plan_read_first(state, self._config, log, request, hashes, acknowledgements, partition.held.keys)
        if tenants is not None:
            request = replace(self._request, records_max=self._records_left)
            return plan_fair(state, self._config, log, request, tenants.known, acknowledgements, self._bytes_left)
        count = self._records_left * self._reach
        bytes_max = self._bytes_left if self._wanted is None else SHARE_READ_BYTES_MAX // 2
        request = replace(self._request, records_max=records_within(head, state.position, bytes_max, count))
        return plan_acquire(state, self._config, log, request, acknowledgements)

    def _applied(
        self, partition: SharePartition, state: ShareState, plan: AcquirePlan, batches: Sequence[StoredBatch]
    ) -> None:
        """Note what the plan has brought, and make the acknowledgements that it had no room for."""
        key = partition.key
        self.look.outcomes += answered(self._entries, self._places.get(key, ()), plan.answers, LocksNow(key, state))
        if plan.is_blocked:
            self.look.blocked.add(key.partition_key)
        if plan.planned < len(self._acknowledgements(key)):
            with errors_maybe_applied():
                state = self._acknowledge_only(key, state, plan.planned) or state
        found = grants(state, self._request.nonce)
        # What is left may be due to acknowledgements that took the room. Without these, nothing could be taken.
        if self._group.order and (found or self._acknowledgements(key)) and self._has_more(partition, state, plan):
            self._last_topic = partition.topic
        if not found:
            self._note_idle(partition, state, plan, batches)
            return
        # A plan that takes nothing asks nothing of the nonce. So another try of the acquire may have come before it,
        # and `batches` may not be those of its locks.
        taken = {} if plan.update is None else plan.update.locks
        is_repeat = plan.is_repeat or any(taken.get(each.lock_id) is None for each in found)
        if self._config.is_fair:  # they were read for tenants, too
            batches = [each for each in batches if _holds_some(found, each)]
        self.look.taken.append(
            Taken(
                partition=partition,
                state=state,
                grants=found,
                batches=() if is_repeat else batches,
                is_repeat=is_repeat,
            )
        )
        self.look.is_alone |= plan.is_alone
        count = sum(each.records.count for each in found)
        self._records_left -= count
        if not is_repeat:
            self._instance.telemetry.count("share_records_acquired", count)

    def _note_idle(
        self, partition: SharePartition, state: ShareState, plan: AcquirePlan, batches: Sequence[StoredBatch]
    ) -> None:
        """Note that the plan has taken nothing, and when the partition is worth another look."""
        has_moved = partition.state is None or state.position > partition.state.position
        has_fresh = first_fresh(partition, state) < partition.head.next_offset
        if has_moved and has_fresh:
            self.look.has_passed = True
            self._last_topic = partition.topic
        if has_moved:
            self.look.passed_bytes[partition.topic] += sum(len(batch.data) for batch in batches)
        self.look.idle.append(replace(partition, state=state))
        self.look.note_available(next_available_ms(state, self._config, self._request.now_ms, partition.held))
        if partition.held:
            self.look.note_available(self._older.again_ms(partition.held))
        if has_fresh and not plan.is_blocked:
            self.look.note_available(SHARE_UNREAD_PAUSE_MS)  # they cannot be read now

    def _has_more(self, partition: SharePartition, state: ShareState, plan: AcquirePlan) -> bool:
        """True if the plan has left something of the partition that an acquire may take."""
        has_fresh = first_fresh(partition, state) < partition.head.next_offset and not plan.is_blocked
        return has_fresh or has_available(state, self._config, self._request.now_ms, partition.held)

    def _acknowledge_only(self, key: ShareKey, state: ShareState | None, begin: int = 0) -> ShareState | None:
        """Make the acknowledgements of the partition from place `begin` on. Returns the state after them, if known."""
        acknowledgements = self._acknowledgements(key)[begin:]
        if not acknowledgements:
            return state
        done = acknowledge_partition(self._instance, self._config, key, acknowledgements, state)
        now = LocksNow(key, done.state)
        self.look.outcomes += answered(self._entries, self._places[key][begin:], done.answers, now)
        if done.must_wake:
            self.look.woken.append(key)
        return done.state

    def _acknowledgements(self, key: ShareKey) -> Sequence[Acknowledgement]:
        return [self._entries[place].acknowledgement for place in self._places.get(key, ())]
