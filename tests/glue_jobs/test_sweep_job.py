"""The job `sweep` by Spark's tasks on real storage calls: the objects that it removes, keeps and copies."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from localstack.clients import client
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, SegmentId, new_segment_id
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.inline import InlineBounds
from penstock_core.log.ref import DAY_MS
from penstock_core.storage.keys import KeyLayout, parse_segment_key, segment_key
from penstock_core.storage.page_item import page_item_key
from penstock_service.adapters.aws import Storage, format_zones
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import delete_topic
from penstock_spark.scripts import sweep
from penstock_spark.sweeping import _missing
from tests.glue_jobs.conftest import RunScript
from tests.service.retention.test_keep_items import remove_items
from tests.support.expiring import put
from tests.support.service import SteppedClock, another_instance, key_of, new_topic, read_all, send, with_stores

RunJob = Callable[..., dict[str, Any]]
APPENDS = TAIL_ROLL_REFS + 4  # makes a page and a tail


@pytest.fixture(params=KeyLayout)
def storage(request: pytest.FixtureRequest, storage: Storage) -> Storage:
    """Zones in ordinary buckets, and in stand-ins for directory buckets."""
    is_by_hour = request.param is KeyLayout.BY_HOUR
    return replace(storage, zones=tuple(replace(zone, has_keys_by_hour=is_by_hour) for zone in storage.zones))


@pytest.fixture
def arguments(storage: Storage) -> list[str]:
    return [
        "--topics-table", storage.topics_table, "--log-table", storage.log_table,
        "--groups-table", storage.groups_table, "--repair-queue-url", str(storage.repair_queue_url),
        "--archive", storage.archive,
        "--zones", format_zones(storage.zones), "--grace-ms", "0",
    ]  # fmt: skip


@pytest.fixture
def run_job(run_script: RunScript, arguments: list[str]) -> RunJob:
    """Run the script as `--local` does, and return its result."""
    return lambda *options: run_script(sweep.main, *arguments, *options)[-1]


def key_in(storage: Storage, segment_id: SegmentId) -> str:
    """The key of the segment in every zone."""
    return segment_key(segment_id, storage.zones[0].layout)


def objects(instance: Instance) -> list[set[SegmentId]]:
    """The list of each store."""
    return [
        {found for key in store.list_keys("", None).keys if (found := parse_segment_key(key, store.layout)) is not None}
        for store in (*instance.stores.zones, instance.stores.archive)
    ]


def garbage(instance: Instance, count: int) -> set[SegmentId]:
    """Objects in every zone, left by appends that died before their update."""
    ids = {new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(10)) for _ in range(count)}
    for zone in instance.stores.zones:
        for segment_id in ids:
            zone.put(segment_id, b"x", crc32c(b"x"))
    return ids


def named(instance: Instance, topic: str) -> set[SegmentId]:
    return {located.ref.segment_id for located in refs_of(instance.stores.log, key_of(instance, topic), 0)}


def test_sweep_removes_garbage_from_every_zone_and_keeps_named_segments(instance: Instance, run_job: RunJob) -> None:
    topic = new_topic(instance)
    put(instance, topic, APPENDS, instance.clock.now_ms())
    before = read_all(instance, topic)
    live, dead = named(instance, topic), garbage(instance, 3)
    assert len(live) == APPENDS

    result = run_job("--dry-run")
    assert (result["swept"]["deleted"], result["is_dry_run"]) == (9, True)
    assert objects(instance) == [live | dead] * 3 + [set()]

    result = run_job()
    assert result["swept"].pop("folders") > 1
    assert result["swept"] == {
        "live": APPENDS, "listed": 3 * (APPENDS + 3), "deleted": 9, "foreign": 0, "failures": 0,
    }  # fmt: skip
    assert objects(instance) == [live] * 3 + [set()]
    assert read_all(instance, topic) == before


def test_inline_segments_stay_or_go_and_no_zone_misses_them(instance: Instance, run_job: RunJob) -> None:
    topic = new_topic(instance)
    put(instance, topic, 2, instance.clock.now_ms())
    send(with_stores(instance, small=InlineBounds(swept_bytes=1_000)), topic, "small")
    [dead] = garbage(instance, 1)
    instance.stores.inline.put(dead, b"x", crc32c(b"x"))
    live = named(instance, topic)

    result = run_job()
    assert (result["swept"]["deleted"], result["swept"]["failures"], result["failures"]) == (4, 0, 0)
    assert "missing" not in result["swept"]
    assert list(instance.stores.inline.get_wholes([*live, dead])) == [max(live)]
    assert objects(instance) == [live - {max(live)}] * 3 + [set()]
    assert (2, "small") in read_all(instance, topic)


def test_expired_items_owe_no_copy_and_lost_ones_fail_the_scrub(instance: Instance, run_job: RunJob) -> None:
    small = with_stores(instance, small=InlineBounds.of_both(1_000))
    topic = new_topic(small, retention_ms=DAY_MS)
    earlier = SteppedClock()
    earlier.time_ms = instance.clock.now_ms() - 30 * DAY_MS
    for each in (small, another_instance(small, clock=earlier)):
        send(each, topic, "x")
    young, old = (each.ref.segment_id for each in refs_of(instance.stores.log, key_of(instance, topic), 0))
    remove_items(instance, [old])

    result = run_job("--checksums")
    assert (result["swept"]["failures"], result["swept"].get("missing", 0)) == (0, 0)
    assert (result["scrubbed"]["refs"], result["scrubbed"]["failures"]) == (2, 0)

    remove_items(instance, [young])
    assert run_job()["swept"]["failures"] == 0
    with pytest.raises(PenstockError, match="1 lists, deletes, copies or refs failed"):
        run_job("--checksums")


def test_topic_that_is_deleted_leaves_garbage_only(instance: Instance, run_job: RunJob) -> None:
    kept, gone = new_topic(instance, "kept"), new_topic(instance, "gone")
    put(instance, kept, 2, instance.clock.now_ms())
    put(instance, gone, 3, instance.clock.now_ms())
    live = named(instance, kept)
    delete_topic(instance, gone)
    assert run_job()["swept"]["deleted"] == 9
    assert objects(instance) == [live] * 3 + [set()]


def test_segment_stays_when_it_is_younger_than_the_grace(instance: Instance, run_job: RunJob) -> None:
    new_topic(instance)
    dead = garbage(instance, 2)
    assert run_job("--grace-ms", "3600000")["swept"]["deleted"] == 0
    assert objects(instance)[:3] == [dead] * 3


def test_nothing_goes_when_a_page_is_missing(
    instance: Instance, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 2 * TAIL_ROLL_REFS, instance.clock.now_ms())
    garbage(instance, 2)
    before = objects(instance)
    client("dynamodb", emulator_port).delete_item(
        TableName=storage.log_table, Key=page_item_key(key_of(instance, topic), Offset(TAIL_ROLL_REFS))
    )
    with pytest.raises(Exception, match="has no page for offset 0 below its tail"):
        run_job()
    assert objects(instance) == before


def test_copies_that_a_zone_misses_are_made_again(
    instance: Instance, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 5, instance.clock.now_ms())
    live = named(instance, topic)
    lost = sorted(live)[:2]
    for segment_id in lost:
        client("s3", emulator_port).delete_object(Bucket=storage.zones[1].bucket, Key=key_in(storage, segment_id))
    result = run_job()
    assert (result["swept"]["missing"], result["swept"]["copied"], result["failures"]) == (2, 2, 0)
    assert objects(instance)[:3] == [live] * 3


def test_segment_that_no_zone_has_fails_the_run(
    instance: Instance, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 2, instance.clock.now_ms())
    lost = min(named(instance, topic))
    for bucket in (zone.bucket for zone in storage.zones):
        client("s3", emulator_port).delete_object(Bucket=bucket, Key=key_in(storage, lost))
    with pytest.raises(PenstockError, match="1 lists, deletes, copies or refs failed"):
        run_job()


def test_zone_that_does_not_answer_fails_the_run_and_the_others_are_swept(
    instance: Instance, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    new_topic(instance)
    dead = garbage(instance, 1)
    s3 = client("s3", emulator_port)
    bucket = storage.zones[2].bucket
    for segment_id in dead:
        s3.delete_object(Bucket=bucket, Key=key_in(storage, segment_id))
    s3.delete_bucket(Bucket=bucket)
    with pytest.raises(PenstockError, match=r"[1-9][0-9]* lists"):
        run_job()
    assert not any(store.list_folders() for store in instance.stores.zones[:2])


def test_every_copy_is_read_once_and_a_bad_one_healed(
    instance: Instance, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(instance)
    put(instance, topic, 3, instance.clock.now_ms())
    before = read_all(instance, topic)
    bad = min(named(instance, topic))
    good = instance.stores.zones[0].get_whole(bad)
    client("s3", emulator_port).put_object(Bucket=storage.zones[1].bucket, Key=key_in(storage, bad), Body=b"rotten")
    scrubbed = run_job("--checksums")["scrubbed"]
    assert (scrubbed["refs"], scrubbed["segments"], scrubbed["healed"], scrubbed["failures"]) == (3, 3, 1, 0)
    assert instance.stores.zones[1].get_whole(bad) == good
    assert read_all(instance, topic) == before


def test_store_without_topics_is_swept_of_nothing(instance: Instance, run_job: RunJob) -> None:
    garbage(instance, 1)
    result = run_job()
    assert (result["swept"]["deleted"], result["swept"]["foreign"]) == (0, 3)


@pytest.mark.parametrize(
    ("held", "required", "expected"),
    [
        ([{1}, {1}, {1}, {2}], 0b111, {}),
        ([{1}, set(), {1}, {2}], 0b111, {1: 0b010}),
        ([{1}, set(), {1}, {2}], 0b101, {}),  # zone b is out
        ([{1}, None, set(), {2}], 0b111, {1: 0b100}),  # the list of zone b failed
        ([{1}, set(), {1}, None], 0b111, {}),  # the archive's list failed
    ],
)
def test_segment_is_missing_when_neither_its_zone_nor_the_archive_lists_it(
    held: list[Any], required: int, expected: dict[int, int]
) -> None:
    names = {1: SegmentId(b"1"), 2: SegmentId(b"2")}
    listed = [None if ids is None else frozenset(names[each] for each in ids) for ids in held]
    found = _missing(set(names.values()), listed, required)
    assert found == {names[number]: zones for number, zones in expected.items()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grace-ms", "-1"], "expected one argument"),
        (["--grace-ms", "1h"], "'1h' is no number of milliseconds"),
        (["--checksums", "--dry-run"], "give one of them"),
        (["--checksum"], "unrecognized arguments: --checksum"),
    ],
)
def test_bad_options_are_refused(
    options: list[str], message: str, run_job: RunJob, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_job(*options)
    assert ended.value.code == 2
