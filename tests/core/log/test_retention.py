"""Retention by a model: nothing unexpired is hidden, all that may go goes, and a second look changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset
from penstock_core.limits import ACKNOWLEDGED_MS_MIN, APPEND_MS_MAX, UNLIMITED
from penstock_core.log.index import EMPTY_HEAD, Head, Page, appended, safe_log_start
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.retention import TIMESTAMP_AHEAD_MS_MAX, Expiry, expire, passed, searched_ms, written_ms
from penstock_core.log.roll import is_roll_due, next_page, shortened
from penstock_core.log.topic import TopicConfig
from tests.support.refs import ref_at

NOW_MS = 10_000_000
FOREVER = TopicConfig(retention_ms=UNLIMITED, retention_bytes=UNLIMITED)


def ref(timestamp_ms: int, *, length: int = 10, span: int = 1, stored_ms: int = NOW_MS, tier: Tier = Tier.ZONAL) -> Ref:
    return ref_at(timestamp_ms, stored_ms=stored_ms, length=length, span=span, tier=tier)


def log_of(refs: list[Ref], log_start: int = 0, rolls_to: int | None = None) -> tuple[Head, list[Page]]:
    """The head and pages after appends of the refs; rolls fail from the ref `rolls_to` on."""
    head, pages = EMPTY_HEAD, []
    for number, each in enumerate(refs):
        head = appended(head, each)
        page = next_page(head) if is_roll_due(head) else None
        if page is not None and (rolls_to is None or number < rolls_to):
            pages.append(page)
            after = shortened(head, page)
            assert after is not None
            head = after
    return replace(head, log_start_offset=Offset(log_start)), pages


def covering(pages: list[Page], head: Head) -> list[Page]:
    return [page for page in pages if page.end_offset > head.log_start_offset]


REFS = st.lists(
    st.builds(
        ref,
        st.one_of(st.integers(-1, 2 * NOW_MS), st.just(-1), st.integers(2**50, 2**62)),
        length=st.integers(1, 100),
        span=st.integers(1, 5),
        stored_ms=st.integers(0, NOW_MS),
        tier=st.sampled_from(Tier),
    ),
    max_size=80,
)
CONFIGS = st.builds(
    TopicConfig,
    retention_ms=st.one_of(st.just(UNLIMITED), st.integers(0, NOW_MS)),
    retention_bytes=st.one_of(st.just(UNLIMITED), st.integers(0, 4_000)),
)


@given(refs=REFS, config=CONFIGS, data=st.data())
def test_expire_hides_all_that_may_go_and_nothing_that_must_stay(
    refs: list[Ref], config: TopicConfig, data: st.DataObject
) -> None:
    end = sum(each.offset_span for each in refs)
    log_start = data.draw(st.integers(0, end))
    head, pages = log_of(refs, log_start, rolls_to=data.draw(st.integers(0, 80)))
    found = expire(head, covering(pages, head), config, NOW_MS)

    base, expected, count = 0, log_start, 0
    for number, each in enumerate(refs):
        base += each.offset_span
        if base <= log_start:
            continue
        behind = sum(other.length for other in refs[number + 1 :])
        is_old = config.retention_ms != UNLIMITED and NOW_MS - APPEND_MS_MAX - written_ms(each) > config.retention_ms
        is_beyond = config.retention_bytes != UNLIMITED and behind >= config.retention_bytes
        if not (is_old or is_beyond):
            break
        expected, count = base, count + 1
    assert found == Expiry(log_start_offset=Offset(expected), refs=count)

    again = replace(head, log_start_offset=found.log_start_offset)
    assert expire(again, covering(pages, again), config, NOW_MS).refs == 0, "a second look changes nothing"
    later = data.draw(st.integers(NOW_MS, 3 * NOW_MS))
    assert expire(head, covering(pages, head), config, later).log_start_offset >= expected, "time only lets go of more"


@given(refs=REFS, config=CONFIGS, taken=st.integers(0, 5))
def test_expire_of_the_first_pages_only_is_lower_never_higher(refs: list[Ref], config: TopicConfig, taken: int) -> None:
    head, pages = log_of(refs)
    whole = expire(head, pages, config, NOW_MS).log_start_offset
    part = expire(head, pages[:taken], config, NOW_MS).log_start_offset
    reached = pages[taken - 1].end_offset if 0 < taken <= len(pages) else None
    assert part <= whole
    assert taken >= len(pages) or part <= (reached or 0)


def test_expire_takes_no_more_pages_than_up_to_what_must_stay() -> None:
    head, pages = log_of([ref(0, stored_ms=0) for _ in range(20)] + [ref(NOW_MS) for _ in range(60)])
    taken: list[Page] = []

    def watched() -> object:
        for page in pages:
            taken.append(page)
            yield page

    assert expire(head, watched(), TopicConfig(retention_ms=1_000), NOW_MS).refs == 20  # type: ignore[arg-type]
    assert len(taken) == 2


def test_expire_keeps_for_ever_when_both_are_unlimited() -> None:
    head, pages = log_of([ref(0, stored_ms=0) for _ in range(40)])
    assert expire(head, pages, FOREVER, 2**60).refs == 0


def test_expire_by_size_keeps_at_least_so_much() -> None:
    head, pages = log_of([ref(NOW_MS, length=10) for _ in range(40)])
    for size, refs in [(400, 0), (391, 0), (390, 1), (11, 38), (10, 39), (1, 39), (0, 40)]:
        config = TopicConfig(retention_ms=UNLIMITED, retention_bytes=size)
        assert expire(head, pages, config, NOW_MS).refs == refs


def test_expire_can_empty_a_partition() -> None:
    head, pages = log_of([ref(NOW_MS, span=3, stored_ms=0) for _ in range(20)])
    assert expire(head, pages, TopicConfig(retention_ms=1), NOW_MS) == Expiry(log_start_offset=Offset(60), refs=20)


@pytest.mark.parametrize(
    ("timestamp_ms", "written"),
    [
        (-1, 5_000_000),
        (0, 0),
        (4_000_000, 4_000_000),
        (5_000_000 + TIMESTAMP_AHEAD_MS_MAX, 5_000_000 + TIMESTAMP_AHEAD_MS_MAX),
        (5_000_001 + TIMESTAMP_AHEAD_MS_MAX, 5_000_000),
        (2**62, 5_000_000),
    ],
)
def test_ref_that_an_old_release_rewrote_counts_from_a_timestamp_that_can_be_believed(
    timestamp_ms: int, written: int
) -> None:
    assert written_ms(ref(timestamp_ms, stored_ms=5_000_000, tier=Tier.ARCHIVE)) == written


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 4_000_000, 2**62])
@pytest.mark.parametrize("tier", [Tier.ZONAL, Tier.INLINE])
def test_ref_counts_from_its_append_whatever_its_timestamp_says(tier: Tier, timestamp_ms: int) -> None:
    appended = ref(timestamp_ms, stored_ms=5_000_000, tier=tier)
    assert written_ms(appended) == 5_000_000
    rewritten = replace(appended, segment_id=ref(0).segment_id, tier=Tier.ARCHIVE, appended_ms=5_000_000)
    assert (written_ms(rewritten), searched_ms(rewritten)) == (5_000_000, timestamp_ms)
    head, pages = log_of([appended, rewritten])
    assert expire(head, pages, TopicConfig(retention_ms=1_000), 5_001_000 + APPEND_MS_MAX).refs == 0
    assert expire(head, pages, TopicConfig(retention_ms=1_000), 5_001_001 + APPEND_MS_MAX).refs == 2


def test_delayed_records_count_from_their_delivery() -> None:
    delayed = replace(ref(0, stored_ms=0), appended_ms=NOW_MS - 100, is_delayed=True)
    assert (written_ms(delayed), searched_ms(delayed)) == (NOW_MS - 100, NOW_MS - 100)
    head, pages = log_of([delayed, ref(0, stored_ms=0)])
    assert expire(head, pages, TopicConfig(retention_ms=100), NOW_MS + APPEND_MS_MAX).refs == 0
    assert expire(head, pages, TopicConfig(retention_ms=99), NOW_MS + APPEND_MS_MAX).refs == 2


def test_expire_is_not_held_up_for_ever_by_a_timestamp_in_the_far_future() -> None:
    refs = [ref(2**60, stored_ms=0), ref(0, stored_ms=0), ref(-1, stored_ms=0), ref(NOW_MS)]
    head, pages = log_of(refs)
    assert expire(head, pages, TopicConfig(retention_ms=NOW_MS - 1), NOW_MS + APPEND_MS_MAX).refs == 3


@pytest.mark.parametrize(("now_ms", "settled"), [(1_000, 0), (1_059, 0), (1_060, 7), (10**9, 7)])
def test_log_start_settles_when_it_has_been_there_for_the_grace(now_ms: int, settled: int) -> None:
    head = replace(EMPTY_HEAD, noted_log_start=Offset(7), log_start_noted_ms=1_000)
    assert safe_log_start(head, now_ms, 60) == settled


@given(REFS, st.integers(0, 300), st.integers(0, 300), st.integers(0, NOW_MS))
def test_passed_refs_are_whole_old_and_below_the_place(refs: list[Ref], start: int, place: int, late_ms: int) -> None:
    now_ms = NOW_MS + late_ms
    head, pages = log_of(refs)
    head = replace(head, log_start_offset=Offset(min(start, head.next_offset)))
    found = passed(head, covering(pages, head), Offset(place), now_ms)
    located = [*(each for page in pages for each in page.located()), *head.located_tail()]
    may_go = [
        each.end_offset <= place and now_ms - written_ms(each.ref) > ACKNOWLEDGED_MS_MIN + APPEND_MS_MAX
        for each in located
        if each.end_offset > head.log_start_offset
    ]
    ends = [each.end_offset for each in located if each.end_offset > head.log_start_offset]
    count = may_go.index(False) if False in may_go else len(may_go)
    assert found == Expiry(log_start_offset=Offset(ends[count - 1]) if count else head.log_start_offset, refs=count)


def test_what_a_mirror_brought_is_not_passed() -> None:
    head, pages = log_of([ref(1, stored_ms=0)] * 3)
    promoted = replace(head, promoted_at=Offset(2))
    now_ms = 10 * NOW_MS
    assert passed(promoted, pages, Offset(3), now_ms).refs == 0
    behind = replace(promoted, log_start_offset=Offset(2))
    assert passed(behind, pages, Offset(3), now_ms) == Expiry(log_start_offset=Offset(3), refs=1)
