"""Reads of data that is damaged, moved or gone: it is found elsewhere, left out, or the read fails."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.log.ref import Ref, Tier
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import delete_topic
from tests.glue_jobs.decode.topic_reading import Plan, fill, options, plan, read
from tests.support.service import (
    Intercepted,
    key_of,
    new_topic,
    patient_instance,
    with_stores,
    zone_of,
)


@pytest.fixture
def instance() -> Instance:
    return patient_instance()


def test_a_bad_copy_is_passed_over_and_reported(instance: Instance) -> None:
    new_topic(instance)
    expected = fill(instance, 3)
    planned = plan(instance)
    for segment_id in segments_of(planned):
        zone_of(instance, 0).delete([segment_id])
        body = zone_of(instance, 1).get_whole(segment_id)
        assert body is not None
        zone_of(instance, 1).overwrite(segment_id, body.replace(b"v", b"w"), 0)

    assert read(instance, planned) == expected
    assert instance.telemetry.take()[0]["copies_reported"] > 0


def test_a_segment_that_moved_to_the_archive_is_read_there(instance: Instance) -> None:
    new_topic(instance)
    expected = fill(instance, 20)
    planned = plan(instance)
    merged = with_all_in_the_archive(instance, planned)
    remove_objects_below(instance, planned, 20)

    assert read(merged, planned) == expected
    assert read(merged, plan(merged)) == expected


def test_removed_offsets_fail_the_read_or_are_left_out(instance: Instance) -> None:
    new_topic(instance)
    expected = fill(instance, 20)
    planned = plan(instance)
    instance.stores.log.raise_log_start(key_of(instance, "orders"), expected[12][1])  # type: ignore[arg-type]
    assert read(instance, planned) == expected, "the snapshot holds while its objects do"
    remove_objects_below(instance, planned, 12)

    with pytest.raises(PenstockError, match=r"partition 0 of topic 'orders' are not all there: it holds \[12, 20\)"):
        read(instance, planned)
    assert read(instance, planned, options(failOnDataLoss="false")) == expected[12:]


def test_offsets_below_the_log_start_fail_the_plan_or_are_left_out(instance: Instance) -> None:
    new_topic(instance)
    expected = fill(instance, 10)
    instance.stores.log.raise_log_start(key_of(instance, "orders"), 4)  # type: ignore[arg-type]
    given = {"startingOffsets": '{"orders": {"0": 2}}', "endingOffsets": '{"orders": {"0": 99}}'}

    with pytest.raises(PenstockError, match=r"offsets \[2, 99\) .* it holds \[4, 10\)") as raised:
        plan(instance, options(**given))
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    tolerant = options(**given, failOnDataLoss="false")
    assert read(instance, plan(instance, tolerant), tolerant) == expected[4:]


def test_a_topic_deleted_meanwhile_fails_the_read_or_is_left_out(instance: Instance) -> None:
    new_topic(instance)
    fill(instance, 3)
    planned = plan(instance)
    key = key_of(instance, "orders")
    delete_topic(instance, "orders")
    instance.stores.log.delete_head(key)
    remove_objects_below(instance, planned, 3)

    with pytest.raises(PenstockError, match="it is deleted"):
        read(instance, planned)
    assert read(instance, planned, options(failOnDataLoss="false")) == []


def test_read_raises_when_every_copy_is_gone_whatever_failondataloss_says(instance: Instance) -> None:
    new_topic(instance)
    fill(instance, 3)
    planned = plan(instance)
    remove_objects_below(instance, planned, 3)

    with pytest.raises(PenstockError, match="no zone could serve segment"):
        read(instance, planned, options(failOnDataLoss="false"))


def segments_of(planned: Plan) -> list[Any]:
    return [located.ref.segment_id for task in planned for each in task for located in each.located()]


def remove_objects_below(instance: Instance, planned: Plan, offset: int) -> None:
    for task in planned:
        for each in task:
            for located in each.located():
                if located.end_offset <= offset:
                    for index in range(len(instance.stores.zones)):
                        zone_of(instance, index).delete([located.ref.segment_id])


def with_all_in_the_archive(instance: Instance, planned: Plan) -> Instance:
    """The service after compaction moved all refs to segments of the archive tier, which have ids of their own."""
    for segment_id in segments_of(planned):
        body = zone_of(instance, 0).get_whole(segment_id)
        assert body is not None
        instance.stores.archive.put(archived_id(segment_id), body, 0)

    def moved(ref: Ref) -> Ref:
        return replace(ref, segment_id=archived_id(ref.segment_id), tier=Tier.ARCHIVE)

    def heads(original: Any, keys: Any) -> Any:
        return {key: replace(head, tail=tuple(map(moved, head.tail))) for key, head in original(keys).items()}

    def pages(original: Any, *arguments: Any) -> Any:
        return [replace(page, refs=tuple(map(moved, page.refs))) for page in original(*arguments)]

    log: Any = Intercepted(instance.stores.log, heads=heads, pages=pages)
    return with_stores(instance, log=log)


def archived_id(segment_id: SegmentId) -> SegmentId:
    return SegmentId(segment_id[:6] + bytes(10 - len(b"merged")) + segment_id[-6:])
