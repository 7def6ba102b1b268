"""A mirror knows what groups of the source have committed, whatever is lost, doubled, late or begun anew."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName
from penstock_core.limits import MIRROR_OFFSETS_GROUPS, MIRROR_OFFSETS_MS, MIRROR_OFFSETS_REST_MS
from penstock_core.mirror.group_offsets import OffsetsTelling
from penstock_core.mirror.push import MirrorPush
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.reset_offsets import ResetTo, reset_offsets
from penstock_service.mirror import tell_offsets
from penstock_service.mirror.append_push import append_push
from penstock_service.mirror.promote_topic import PromotedTopic, promote_topic, resync_topic
from penstock_service.push.look import look
from penstock_service.retention.retain import retain
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import ShareResetTo, reset_share_group
from tests.service.mirror.stages import Stages
from tests.service.share.sharing import GROUP, finish, new_group, take
from tests.support.refusals import refused
from tests.support.service import Intercepted, another_instance, key_of, new_topic, with_stores

REST_MS = MIRROR_OFFSETS_MS + MIRROR_OFFSETS_REST_MS


def commit(stages: Stages, group: str, offset: int, partition: int = 0) -> None:
    entry = CommitEntry(topic="orders", partition=partition, offset=offset)
    commit_offsets(stages.source.instance, group, [entry]).all_ok()


def told_of(stages: Stages) -> dict[str, dict[int, int]]:
    found = stages.mirror.stores.log.find_offsets(key_of(stages.mirror, "orders").topic_id)
    groups = {} if found is None else found.groups
    return {name: {number: each.offset for number, each in of.items()} for name, of in groups.items()}


def promoted(stages: Stages) -> dict[str, dict[int, int]]:
    groups = promote_topic(stages.mirror, "orders").offsets.groups
    return {name: {number: each.offset for number, each in of.items()} for name, of in groups.items()}


def look_later(stages: Stages) -> int:
    """Once the next telling is due, the look runs, and all that it starts. Gives how many messages that sent."""
    stages.clock.time_ms += REST_MS
    sent = look(stages.source.instance, budget_ms=10_000).messages
    stages.source.run(2 * REST_MS)
    return sent


def stages_with(group: str = "billing", offset: int = 1, partitions: int = 1) -> Stages:
    stages = Stages(partitions=partitions)
    stages.source.append("a", "b", "c")
    commit(stages, group, offset)
    stages.run()
    return stages


def test_promotion_tells_what_groups_had_committed() -> None:
    stages = stages_with()
    assert told_of(stages) == {"billing": {0: 1}}
    assert promoted(stages) == {"billing": {0: 1}}
    assert promoted(stages) == {"billing": {0: 1}}, "a repeat tells it again"


def test_offset_beyond_what_was_mirrored_stays_at_the_end() -> None:
    stages = stages_with(partitions=2)
    stages.source.append("x", partition=1)
    stages.source.append("d", "e")
    commit(stages, "billing", 5)
    stages.holds = {0}
    look_later(stages)
    assert told_of(stages) == {"billing": {0: 5}}
    assert promoted(stages) == {"billing": {0: 3}}


def places_of(found: PromotedTopic) -> dict[str, dict[int, int]]:
    """The share groups' places of a promotion."""
    groups = found.offsets.share_groups
    return {name: {number: each.offset for number, each in of.items()} for name, of in groups.items()}


def test_share_group_is_told_by_its_first_record_that_is_not_finished() -> None:
    stages = Stages(partitions=2)
    source = stages.source.instance
    stages.source.append("a", "b", "c", "d")
    new_group(source, start="earliest")
    new_topic(source, "elsewhere", 1)
    put_share_group(source, "other", ("elsewhere",), {})
    finish(source, take(source, 2))
    held = take(source, 1)
    finish(source, take(source, 1))
    stages.run()
    look_later(stages)
    assert places_of(promote_topic(stages.mirror, "orders", is_dry_run=True)) == {GROUP: {0: 2}}, "2 is locked"
    finish(source, held)
    look_later(stages)
    assert places_of(promote_topic(stages.mirror, "orders")) == {GROUP: {0: 4}}


def test_share_group_that_begins_again_is_told_at_its_new_place() -> None:
    stages = Stages()
    source = stages.source.instance
    stages.source.append("a", "b")
    new_group(source, start="earliest")
    finish(source, take(source))
    stages.run()
    look_later(stages)
    reset_share_group(source, GROUP, "orders", ShareResetTo(offset=0))
    look_later(stages)
    assert places_of(promote_topic(stages.mirror, "orders")) == {GROUP: {0: 0}}


def telling(push: MirrorPush, offsets: OffsetsTelling, data: bytes) -> MirrorPush:
    return replace(push, parts=(), producers={}, offsets=offsets, data=data)


def test_offsets_follow_without_pushes_until_they_rest() -> None:
    stages = Stages()
    stages.source.append("a", "b", "c")
    commit(stages, "billing", 1)
    stages.source.run(1)
    for offset in (2, 3):
        commit(stages, "billing", offset)
        stages.source.run(REST_MS + 1)
        assert told_of(stages) == {"billing": {0: offset}}
    stages.source.run(600_000)
    assert stages.source.queue.next_visible_ms is None, "at rest it costs nothing"
    assert stages.tellings == 1 + 2 + 2, (
        "one learns the number, and the first answer makes a version of the subscription"
    )
    commit(stages, "other", 1)
    stages.source.run(600_000)
    assert told_of(stages) == {"billing": {0: 3}}
    assert look_later(stages) == 1
    assert told_of(stages) == {"billing": {0: 3}, "other": {0: 1}}
    assert look(stages.source.instance, budget_ms=10_000).messages == 0, "it is not due"


def test_pushes_tell_offsets_now_and_then() -> None:
    stages = stages_with()
    stages.clock.time_ms += REST_MS
    before = stages.tellings
    for offset in range(2, 22):
        stages.source.append("d")
        commit(stages, "billing", offset)
        stages.source.run(1)
        stages.clock.time_ms += 1_000
    assert stages.tellings - before == 2


def test_stage_without_groups_tells_nothing() -> None:
    stages = Stages()
    stages.source.append("a")
    stages.run()
    assert stages.tellings == 0
    assert promoted(stages) == {}
    assert promote_topic(stages.mirror, "orders") == PromotedTopic(
        partitions=promote_topic(stages.mirror, "orders").partitions
    )


def test_reset_to_an_earlier_offset_comes_over() -> None:
    stages = stages_with(offset=3)
    reset_offsets(stages.source.instance, "billing", "orders", ResetTo(offsets={0: 0}))
    look_later(stages)
    assert told_of(stages) == {"billing": {0: 0}}


def test_late_and_doubled_tellings_change_nothing() -> None:
    stages = stages_with()
    first = telling(stages.pushes[0], OffsetsTelling(replaces=0, read_ms=1, left_out=0), b'[["billing",[[0,1]]]]')
    commit(stages, "billing", 2)
    look_later(stages)
    base = stages.mirror.topic_cache.read_through("orders").created_at_ms
    for replaces in (0, 1, base - 1, base, base + 1, base + 2, base + 5):
        late = replace(first, offsets=OffsetsTelling(replaces=replaces, read_ms=1, left_out=0))
        answer = append_push(stages.mirror, late)
        assert (answer.offsets_number, answer.is_offsets_kept) == (base + 3, False)
    assert told_of(stages) == {"billing": {0: 2}}


def test_answer_that_was_lost_is_told_again() -> None:
    stages = stages_with()
    commit(stages, "billing", 2)
    stages.loses_tellings = 1
    look_later(stages)
    assert told_of(stages) == {"billing": {0: 2}}
    commit(stages, "billing", 3)
    look_later(stages)
    assert told_of(stages) == {"billing": {0: 3}}


def test_offsets_that_go_back_after_an_answer_was_lost_are_told_again() -> None:
    stages = stages_with()
    commit(stages, "billing", 3)
    stages.loses_tellings = 1
    look_later(stages)
    reset_offsets(stages.source.instance, "billing", "orders", ResetTo(offsets={0: 1}))
    look_later(stages)
    assert told_of(stages) == {"billing": {0: 1}}, "the mirror had 3 in between"


def test_offsets_of_all_pages_of_leases_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tell_offsets, "GROUP_PAGE_MAX", 1)
    stages = stages_with(partitions=3)
    commit(stages, "billing", 0, partition=2)
    look_later(stages)
    assert told_of(stages) == {"billing": {0: 1, 2: 0}}


def test_offsets_go_with_the_topic() -> None:
    stages = stages_with()
    topic_id = key_of(stages.mirror, "orders").topic_id
    resync_topic(stages.mirror, "orders")
    for _ in range(4):
        retain(stages.mirror, budget_ms=10_000)
        stages.clock.time_ms += 24 * 3_600_000
    assert stages.mirror.stores.log.find_offsets(topic_id) is None


def test_mirror_that_began_anew_is_told_all_again() -> None:
    stages = stages_with()
    resync_topic(stages.mirror, "orders")
    stages.again()
    assert told_of(stages) == {"billing": {0: 1}}


def test_function_that_remembers_the_mirror_of_before_keeps_offsets_for_the_new_one() -> None:
    stages = stages_with()
    elsewhere = another_instance(stages.mirror)
    asks = telling(stages.pushes[0], OffsetsTelling(replaces=0, read_ms=1, left_out=0), b"[]")
    append_push(stages.mirror, asks)
    resync_topic(elsewhere, "orders")
    append_push(elsewhere, stages.pushes[0])
    assert append_push(stages.mirror, asks).topic_id == key_of(elsewhere, "orders").topic_id


def test_telling_of_the_mirror_before_it_began_anew_is_refused() -> None:
    stages = stages_with()
    asks = telling(stages.pushes[0], OffsetsTelling(replaces=0, read_ms=1, left_out=0), b'[["billing",[[0,0]]]]')
    known = append_push(stages.mirror, asks).offsets_number
    assert known is not None
    stages.clock.time_ms += 1_000
    resync_topic(stages.mirror, "orders")
    stages.again()
    for replaces in range(known - 2, known + 1):
        late = replace(asks, offsets=OffsetsTelling(replaces=replaces, read_ms=1, left_out=0))
        assert not append_push(stages.mirror, late).is_offsets_kept
    assert told_of(stages) == {"billing": {0: 1}}


def test_decided_promotion_takes_no_telling() -> None:
    stages = stages_with()
    late = telling(stages.pushes[0], OffsetsTelling(replaces=1, read_ms=1, left_out=0), b"[]")
    promote_topic(stages.mirror, "orders")
    refused(ErrorCode.TOPIC_EXISTS, lambda: append_push(stages.mirror, late))
    assert promoted(stages) == {"billing": {0: 1}}


def test_groups_that_cannot_be_read_hold_no_record_back() -> None:
    stages = Stages()
    stages.source.append("a")
    commit(stages, "billing", 1)
    whole = stages.source.instance
    groups = Intercepted(whole.stores.groups, lease_page=_down)
    stages.source.instance = with_stores(whole, groups=groups)
    stages.run()
    stages.source.instance = whole
    source, mirror = stages.logs()
    assert source == mirror
    look_later(stages)
    assert told_of(stages) == {"billing": {0: 1}}


def _down(*_: object) -> None:
    raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")


def test_groups_beyond_the_bound_are_counted() -> None:
    stages = Stages()
    stages.source.append("a")
    for number in range(MIRROR_OFFSETS_GROUPS + 2):
        stages.source.instance.stores.memberships.register(GroupName(f"g{number:04}"))
    commit(stages, "g0001", 1)
    stages.run()
    found = promote_topic(stages.mirror, "orders").offsets
    assert (found.left_out, {*found.groups}) == (2, {"g0001"})
    state = stages.source.state()
    assert state is not None
    assert state.offsets is not None
    assert state.offsets.next_ms - found.read_ms >= 100_000, "many groups are read less often"


def test_partitions_each_have_their_offsets() -> None:
    stages = stages_with(partitions=2)
    stages.source.append("x", "y", partition=1)
    commit(stages, "billing", 2, partition=1)
    look_later(stages)
    assert promoted(stages) == {"billing": {0: 1, 1: 2}}
