"""The job `sweep`: by Spark's tasks on real storage calls, what goes, what stays, and what is copied."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c

import sweep
from localstack.clients import client
from penstock_broker.adapters.aws import Storage
from penstock_broker.broker import Broker
from penstock_broker.delete_topic import delete_topic
from penstock_broker.walk_index import refs_of
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, SegmentId, new_segment_id
from penstock_core.items import page_item_key
from penstock_core.keys import parse_segment_key, segment_key
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_spark.sweeping import _missing
from tests.broker.expiring import put
from tests.broker.setting import key_of, new_topic, read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RunJob = Callable[..., dict[str, Any]]
APPENDS = TAIL_ROLL_REFS + 4  # so that there is a page, and a tail


@pytest.fixture
def arguments(storage: Storage) -> list[str]:
    return [
        "--topics-table", storage.topics_table, "--log-table", storage.log_table,
        "--groups-table", storage.groups_table, "--repair-queue-url", storage.repair_queue_url,
        "--archive", storage.archive,
        "--zones", ",".join("=".join(zone) for zone in storage.zones), "--grace-ms", "0",
    ]  # fmt: skip


@pytest.fixture
def run_job(
    storage: Storage,
    arguments: list[str],
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunJob:
    """Runs the script as `--local` does, and answers its result."""
    monkeypatch.setattr("penstock_spark.job.find_storage", lambda given: storage)

    def run(*options: str) -> dict[str, Any]:
        try:
            sweep.main([*arguments, *options])
        finally:
            lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return dict(lines[-1])

    return run


def objects(broker: Broker) -> list[set[SegmentId]]:
    """What each store lists."""
    return [
        {found for key in store.list_keys("", None).keys if (found := parse_segment_key(key)) is not None}
        for store in (*broker.zones, broker.archive)
    ]


def garbage(broker: Broker, count: int) -> set[SegmentId]:
    """Objects that appends left which died before their update, in every zone."""
    ids = {new_segment_id(broker.clock.now_ms(), broker.chance.random_bytes(10)) for _ in range(count)}
    for zone in broker.zones:
        for segment_id in ids:
            zone.put(segment_id, b"x", crc32c(b"x"))
    return ids


def named(broker: Broker, topic: str) -> set[SegmentId]:
    return {located.ref.segment_id for located in refs_of(broker, key_of(broker, topic), 0)}


def test_garbage_goes_from_every_zone_and_what_is_named_stays(broker: Broker, run_job: RunJob) -> None:
    topic = new_topic(broker)
    put(broker, topic, APPENDS, broker.clock.now_ms())
    before = read_all(broker, topic)
    live, dead = named(broker, topic), garbage(broker, 3)
    assert len(live) == APPENDS

    result = run_job("--dry-run")
    assert (result["swept"]["deleted"], result["is_dry_run"]) == (9, True)
    assert objects(broker) == [live | dead] * 3 + [set()]

    result = run_job()
    assert result["swept"] == {
        "prefixes": 256, "live": APPENDS, "listed": 3 * (APPENDS + 3), "deleted": 9, "foreign": 0,
    }  # fmt: skip
    assert objects(broker) == [live] * 3 + [set()]
    assert read_all(broker, topic) == before


def test_topic_that_is_deleted_leaves_garbage_only(broker: Broker, run_job: RunJob) -> None:
    kept, gone = new_topic(broker, "kept"), new_topic(broker, "gone")
    put(broker, kept, 2, broker.clock.now_ms())
    put(broker, gone, 3, broker.clock.now_ms())
    live = named(broker, kept)
    delete_topic(broker, gone)
    assert run_job()["swept"]["deleted"] == 9
    assert objects(broker) == [live] * 3 + [set()]


def test_what_is_younger_than_the_grace_stays(broker: Broker, run_job: RunJob) -> None:
    new_topic(broker)
    dead = garbage(broker, 2)
    assert run_job("--grace-ms", "3600000")["swept"]["deleted"] == 0
    assert objects(broker)[:3] == [dead] * 3


def test_nothing_goes_when_a_page_is_missing(
    broker: Broker, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 2 * TAIL_ROLL_REFS, broker.clock.now_ms())
    garbage(broker, 2)
    before = objects(broker)
    client("dynamodb", emulator_port).delete_item(
        TableName=storage.log_table, Key=page_item_key(key_of(broker, topic), Offset(TAIL_ROLL_REFS))
    )
    with pytest.raises(Exception, match="has no page for offset 0 below its tail"):
        run_job()
    assert objects(broker) == before


def test_copies_that_a_zone_misses_are_made_again(
    broker: Broker, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 5, broker.clock.now_ms())
    live = named(broker, topic)
    lost = sorted(live)[:2]
    for segment_id in lost:
        client("s3", emulator_port).delete_object(Bucket=dict(storage.zones)["b"], Key=segment_key(segment_id))
    result = run_job()
    assert (result["swept"]["missing"], result["swept"]["copied"], result["failures"]) == (2, 2, 0)
    assert objects(broker)[:3] == [live] * 3


def test_segment_that_no_zone_has_fails_the_run(
    broker: Broker, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 2, broker.clock.now_ms())
    lost = min(named(broker, topic))
    for _, bucket in storage.zones:
        client("s3", emulator_port).delete_object(Bucket=bucket, Key=segment_key(lost))
    with pytest.raises(PenstockError, match="1 lists, deletes, copies or refs failed"):
        run_job()


def test_zone_that_does_not_answer_fails_the_run_and_the_others_are_swept(
    broker: Broker, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    new_topic(broker)
    dead = garbage(broker, 1)
    s3 = client("s3", emulator_port)
    bucket = dict(storage.zones)["c"]
    for segment_id in dead:
        s3.delete_object(Bucket=bucket, Key=segment_key(segment_id))
    s3.delete_bucket(Bucket=bucket)
    with pytest.raises(PenstockError, match="256 lists"):
        run_job()
    assert not any(store.list_keys(f"{min(dead)[-1]:02x}/", None).keys for store in broker.zones[:2])


def test_every_copy_is_read_once_and_a_bad_one_healed(
    broker: Broker, run_job: RunJob, storage: Storage, emulator_port: int
) -> None:
    topic = new_topic(broker)
    put(broker, topic, 3, broker.clock.now_ms())
    before = read_all(broker, topic)
    bad = min(named(broker, topic))
    good = broker.zones[0].get_whole(bad)
    client("s3", emulator_port).put_object(Bucket=dict(storage.zones)["b"], Key=segment_key(bad), Body=b"rotten")
    scrubbed = run_job("--checksums")["scrubbed"]
    assert (scrubbed["refs"], scrubbed["segments"], scrubbed["healed"], scrubbed["failures"]) == (3, 3, 1, 0)
    assert broker.zones[1].get_whole(bad) == good
    assert read_all(broker, topic) == before


def test_store_without_topics_is_swept_of_nothing(broker: Broker, run_job: RunJob) -> None:
    garbage(broker, 1)
    result = run_job()
    assert (result["swept"]["deleted"], result["swept"]["foreign"]) == (0, 3)


@pytest.mark.parametrize(
    ("held", "wanted", "expected"),
    [
        ([{1}, {1}, {1}, {2}], 0b111, {}),
        ([{1}, set(), {1}, {2}], 0b111, {1: 0b010}),
        ([{1}, set(), {1}, {2}], 0b101, {}),  # b is out
        ([{1}, None, set(), {2}], 0b111, {1: 0b100}),  # b's list failed
        ([{1}, set(), {1}, None], 0b111, {}),  # what is archived is not known
    ],
)
def test_missing_is_what_zones_in_use_did_not_list_and_the_archive_neither(
    held: list[Any], wanted: int, expected: dict[int, int]
) -> None:
    names = {1: SegmentId(b"1"), 2: SegmentId(b"2")}
    listed = [None if ids is None else frozenset(names[each] for each in ids) for ids in held]
    found = _missing(set(names.values()), listed, wanted)
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
