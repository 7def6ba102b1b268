from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import SHARE_ENTRIES_MAX, SHARE_REASON_KEPT_BYTES, SHARE_REASON_RANGES_MAX, SHARE_REASONS_MAX
from penstock_core.share.acknowledge import Acknowledgement, AckType, plan_acknowledge, plan_blind
from penstock_core.share.draft import apply
from penstock_core.share.reasons import Reason, fewer, reason_for, reason_of, with_reason
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_codec import encode_reason
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait, lock_id
from tests.core.share.share_samples import NONCE

CONFIG = ShareGroupConfig()
HELD = lock_id(NONCE, 0)
EVERY = ((0, 2**40),)


def state_of(records: RecordSet, reasons: Sequence[Reason] = ()) -> ShareState:
    return ShareState(
        position=Offset(records.end),
        open=records.count,
        locks={HELD: Lock(Offset(0), 50, 1, records)},
        reasons=reasons,
    )


def release(offset: int, reason: str) -> Acknowledgement:
    return Acknowledgement(lock_id=HELD, type=AckType.RELEASE, offsets=((offset, offset + 1),), reason=reason)


def test_reason_is_cut_at_a_character_when_it_is_long() -> None:
    assert reason_for("ä" * 100, ((0, 1),)).text == "ä" * (SHARE_REASON_KEPT_BYTES // 2)
    assert reason_for("x" + "ä" * 100, ((0, 1),)).text == "x" + "ä" * (SHARE_REASON_KEPT_BYTES // 2 - 1)


def test_reason_of_a_record_is_the_newest_one() -> None:
    reasons = [Reason("old", ((0, 9),)), Reason("new", ((3, 5), (7, 8)))]
    assert [reason_of(reasons, offset) for offset in (2, 3, 5, 7, 9)] == ["old", "new", "old", "new", ""]


def test_equal_reasons_of_one_update_are_one_while_their_ranges_are_few() -> None:
    reasons: list[Reason] = []
    for offset in range(0, 12, 2):
        reasons = with_reason(reasons, Reason("full", ((offset, offset + 1),)))
    assert [len(each.ranges) for each in reasons] == [SHARE_REASON_RANGES_MAX, 6 - SHARE_REASON_RANGES_MAX]
    assert with_reason([Reason("full", ((0, 1),))], Reason("full", ((1, 4),))) == [Reason("full", ((0, 4),))]
    assert len(with_reason([Reason("full", ((0, 1),))], Reason("empty", ((1, 4),)))) == 2


def test_full_list_forgets_finished_records_first_then_the_oldest() -> None:
    reasons = [Reason(f"reason {index}", ((index, index + 1),)) for index in range(SHARE_REASONS_MAX)]
    unfinished = ((2, 3), (5, SHARE_REASONS_MAX))
    kept = fewer(reasons, unfinished)
    assert [each.text for each in kept] == [
        f"reason {index}" for index in range(SHARE_REASONS_MAX - SHARE_REASONS_MAX // 2, SHARE_REASONS_MAX)
    ]
    assert fewer(reasons, ((2, 3), (5, 6))) == [reasons[2], reasons[5]]


def test_full_list_makes_equal_texts_one() -> None:
    reasons = [Reason("full", ((index, index + 1),)) for index in range(5)] + [Reason("bad", ((7, 8),))]
    assert fewer(reasons, EVERY) == [Reason("full", ((0, 5),)), Reason("bad", ((7, 8),))]


@given(st.lists(st.tuples(st.integers(0, 2**33), st.text(max_size=300)), max_size=3 * SHARE_REASONS_MAX))
def test_reasons_stay_below_two_kib_and_the_last_one_stays(releases: list[tuple[int, str]]) -> None:
    state = state_of(RecordSet(((0, 2**34),)))
    for offset, text in releases:
        plan = plan_acknowledge(state, CONFIG, [release(offset, text)], 5)
        if plan.update is None:  # the record was released before
            continue
        after = apply(state, plan.update)
        assert after is not None
        assert reason_of(after.reasons, offset) == (reason_for(text, ()).text if text else "")
        state = after
        assert len(state.reasons) <= SHARE_REASONS_MAX
        assert sum(len(encode_reason(each)) for each in state.reasons) <= 2048


def test_one_update_with_many_reasons_keeps_the_last_ones() -> None:
    state = state_of(RecordSet(((0, 100),)))
    plan = plan_acknowledge(state, CONFIG, [release(offset, f"no {offset}") for offset in range(0, 100, 3)], 5)
    assert plan.update is not None
    after = apply(state, plan.update)
    assert after is not None
    assert plan.planned <= SHARE_ENTRIES_MAX * 3
    assert reason_of(after.reasons, 3 * (plan.planned - 1)) == f"no {3 * (plan.planned - 1)}"


def test_release_without_a_read_adds_its_reason_and_is_refused_by_a_full_list() -> None:
    state = state_of(RecordSet(((0, 4),)))
    lock = state.locks[HELD]
    given = Acknowledgement(lock_id=HELD, type=AckType.RELEASE, reason="full", handed_out=lock, generation=0)
    plan = plan_blind(CONFIG, [given], 5)
    assert plan is not None
    assert plan.update is not None
    after = apply(state, plan.update)
    assert after is not None
    assert after.reasons == (Reason("full", ((0, 4),)),)
    full = state_of(RecordSet(((0, 4),)), (Reason("old", ((9, 10),)),) * SHARE_REASONS_MAX)
    assert apply(full, plan.update) is None
    read = plan_acknowledge(full, CONFIG, [given], 5)
    assert read.update is not None
    after = apply(full, read.update)
    assert after is not None
    assert after.reasons == (Reason("full", ((0, 4),)),)


def test_list_that_is_written_anew_is_refused_when_another_reason_came() -> None:
    full = state_of(RecordSet(((0, 4),)), (Reason("old", ((0, 1),)),) * SHARE_REASONS_MAX)
    plan = plan_acknowledge(full, CONFIG, [release(0, "new")], 5)
    assert plan.update is not None
    shorter = state_of(RecordSet(((0, 4),)), full.reasons[1:])
    assert apply(shorter, plan.update) is None


def test_reasons_split_no_waits() -> None:
    state = state_of(RecordSet(((0, 3),)))
    plan = plan_acknowledge(state, CONFIG, [release(offset, f"no {offset}") for offset in range(3)], 5)
    assert plan.update is not None
    after = apply(state, plan.update)
    assert after is not None
    assert len(after.waits) == 1
    [wait] = after.waits.values()
    assert wait.records == RecordSet(((0, 3),))
    assert not wait.reason


def test_last_release_and_a_release_without_words_keep_no_reason() -> None:
    config = ShareGroupConfig(deliveries_max=1)
    state = state_of(RecordSet(((0, 3),)))
    last = plan_acknowledge(state, config, [release(0, "bad")], 5)
    assert last.update is not None
    assert not last.update.adds_reasons
    assert [wait.reason for wait in last.update.waits.values() if isinstance(wait, Wait)] == ["deliveries: bad"]
    silent = plan_acknowledge(state, CONFIG, [release(0, "")], 5)
    assert silent.update is not None
    assert not silent.update.adds_reasons
