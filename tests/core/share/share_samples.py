"""States, requests and plans that the tests of share groups use, and Hypothesis strategies for entries."""

from collections.abc import Sequence

from hypothesis import strategies as st

from penstock_core.ids import LockId, LockNonce, Offset, TopicName
from penstock_core.share.acknowledge import Acknowledgement, AckResult, AckType, plan_acknowledge
from penstock_core.share.acquire import AcquirePlan, AcquireRequest, LogBounds, plan_acquire
from penstock_core.share.draft import apply
from penstock_core.share.record_set import RecordSet, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait, locks_of

NONCE, OTHER = LockNonce("nonce-01"), LockNonce("nonce-02")
NOW_MS, LOCK_MS = 1_000_000, 30_000
PLAIN = ShareGroupConfig()
WITH_DEAD_LETTERS = ShareGroupConfig(dead_letter_topic=TopicName("orders.dead"), deliveries_max=3)
NO_BACKOFF = ShareGroupConfig(retry_backoff_ms_min=0, retry_backoff_ms_max=0)
NEW = ShareState(position=Offset(0))

_RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=5).map(normalized)
RECORD_SETS = _RANGES.map(RecordSet)
HASHED_SETS = _RANGES.flatmap(
    lambda ranges: st.tuples(*[st.integers(0, 2**32 - 1)] * RecordSet(ranges).count).map(
        lambda hashes: RecordSet(ranges, hashes)
    )
)
ENTRY_SETS = st.one_of(RECORD_SETS, HASHED_SETS).filter(lambda records: bool(records.ranges))
LOCKS = st.builds(
    Lock, st.integers(0, 2**40).map(Offset), st.integers(0, 2**48 - 1), st.integers(0, 65_535), ENTRY_SETS
)
WAITS = st.builds(
    lambda time, deliveries, records, reason, flags: Wait(
        time, deliveries, records, reason is not None and not flags[0], reason or "", *flags
    ),
    st.integers(0, 2**48 - 1),
    st.integers(0, 65_535),
    ENTRY_SETS,
    st.none() | st.text(max_size=50),
    st.tuples(st.booleans(), st.booleans()),
)


def log(next_offset: int = 1_000, log_start: int = 0) -> LogBounds:
    return LogBounds(log_start=Offset(log_start), next_offset=Offset(next_offset))


def request(nonce: LockNonce = NONCE, records_max: int = 10, now_ms: int = NOW_MS) -> AcquireRequest:
    return AcquireRequest(nonce=nonce, records_max=records_max, lock_ms=LOCK_MS, now_ms=now_ms)


def applied(state: ShareState, plan: AcquirePlan) -> ShareState:
    """The state after a plan that changes something."""
    assert plan.update is not None
    after = apply(state, plan.update)
    assert after is not None
    check(after)
    return after


def acquired(
    state: ShareState,
    nonce: LockNonce = NONCE,
    records_max: int = 10,
    *,
    config: ShareGroupConfig = PLAIN,
    now_ms: int = NOW_MS,
    next_offset: int = 1_000,
) -> ShareState:
    """The state after an acquire."""
    return applied(state, plan_acquire(state, config, log(next_offset), request(nonce, records_max, now_ms)))


def ack(
    kind: AckType, *ranges: tuple[int, int], nonce: LockNonce = NONCE, index: int = 0, **changes: object
) -> Acknowledgement:
    """An acknowledgement of these ranges, or of the whole lock."""
    return Acknowledgement(lock_id=LockId(f"{nonce}.{index}"), type=kind, offsets=ranges or None, **changes)  # type: ignore[arg-type]  # fields of many types


def acknowledged(
    state: ShareState,
    *acknowledgements: Acknowledgement,
    config: ShareGroupConfig = PLAIN,
    now_ms: int = NOW_MS,
) -> tuple[ShareState, list[tuple[Sequence[tuple[int, int]], AckResult]]]:
    """The state after the acknowledgements, and the results of their ranges."""
    plan = plan_acknowledge(state, config, acknowledgements, now_ms)
    assert plan.planned == len(acknowledgements)
    after = state if plan.update is None else apply(state, plan.update)
    assert after is not None
    check(after)
    return after, [(answer.ranges, answer.result) for answer in plan.answers]


def held(state: ShareState, nonce: LockNonce = NONCE) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    """The ranges of the nonce's locks, and their deliveries."""
    return [(lock.held.ranges, lock.deliveries) for lock in locks_of(state, nonce).values()]


def check(state: ShareState) -> None:
    """The invariants of a state."""
    offsets = [offset for records in state.entries() for offset in records.offsets()]
    assert len(offsets) == len(set(offsets)) == state.open
    assert all(0 <= offset < state.position for offset in offsets)
    assert all(first == wait.records.start for first, wait in state.waits.items())
    assert all(records.ranges == normalized(records.ranges) for records in state.entries())
    assert state.start_offset == min(offsets, default=state.position)
