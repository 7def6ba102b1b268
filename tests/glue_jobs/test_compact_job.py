"""The job `compact` on real storage calls, with Spark's tasks and without Spark."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.ref import Tier
from penstock_service.adapters.aws import Storage
from penstock_service.instance.instance import Instance
from penstock_spark.scripts import compact
from tests.glue_jobs.conftest import RunScript
from tests.support.service import key_of, new_topic, read_all, send

RunJob = Callable[..., dict[str, Any]]
APPENDS = 2 * TAIL_ROLL_REFS + 3


@pytest.fixture
def run_job(run_script: RunScript) -> RunJob:
    """Run the script as `--local` does, and return its result."""
    return lambda *options: run_script(compact.main, *options)[-1]


@pytest.fixture
def topic(instance: Instance) -> str:
    name = new_topic(instance, f"compacted-{instance.entropy.random_bytes(4).hex()}", partitions=2)
    for partition in range(2):
        for number in range(APPENDS):
            send(instance, name, f"{partition}-{number}", partition=partition)
    return name


def tiers(instance: Instance, topic: str, partition: int) -> set[Tier]:
    pages = instance.stores.log.pages(key_of(instance, topic, partition), Offset(0), 100)
    return {ref.tier for page in pages for ref in page.refs}


@pytest.mark.parametrize("how", [[], ["--no-spark"]])
def test_every_partition_is_merged_and_reads_as_before(
    run_job: RunJob, instance: Instance, topic: str, how: list[str]
) -> None:
    before = [read_all(instance, topic, partition) for partition in range(2)]
    dry = run_job("--topic", topic, "--age-ms-min", "0", "--dry-run", *how)
    assert (dry["runs"], dry["refs_before"], dry["is_dry_run"]) == (2, 4 * TAIL_ROLL_REFS, True)
    assert tiers(instance, topic, 0) == {Tier.ZONAL}
    done = run_job("--topic", topic, "--age-ms-min", "0", *how)
    assert (done["partitions"], done["runs"], done["refs_after"], done["failures"]) == (2, 2, 2, 0)
    assert tiers(instance, topic, 0) == tiers(instance, topic, 1) == {Tier.ARCHIVE}
    assert [read_all(instance, topic, partition) for partition in range(2)] == before
    assert run_job("--topic", topic, "--age-ms-min", "0", *how)["runs"] == 0


def test_one_partition_alone_is_merged_when_asked_for(run_job: RunJob, instance: Instance, topic: str) -> None:
    run_job("--topic", topic, "--partition", "1", "--age-ms-min", "0", "--no-spark")
    assert (tiers(instance, topic, 0), tiers(instance, topic, 1)) == ({Tier.ZONAL}, {Tier.ARCHIVE})


def test_young_segments_are_left(run_job: RunJob, topic: str) -> None:
    assert run_job("--topic", topic, "--no-spark")["runs"] == 0


def test_run_fails_with_the_errors_of_its_partitions_when_one_fails(
    run_job: RunJob, storage: Storage, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_spark.job.find_storage", lambda given: replace(storage, archive="no-such-bucket"))
    with pytest.raises(PenstockError, match="2 runs of pages failed"):
        run_job("--topic", topic, "--age-ms-min", "0", "--no-spark")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--topic", "unknown"], ErrorCode.UNKNOWN_TOPIC),
        (["--partition", "999"], ErrorCode.INVALID_REQUEST),
    ],
)
def test_topic_or_partition_is_refused_when_it_does_not_exist(
    run_job: RunJob, topic: str, options: list[str], code: ErrorCode
) -> None:
    with pytest.raises(PenstockError) as raised:
        run_job("--no-spark", *options)
    assert raised.value.code is code


@pytest.mark.parametrize(
    "options",
    [["--refs-min", "0"], ["--age-ms-min", "-1"], ["--dirty-share-min", "2"], ["--keys-max", "x"], ["--what"]],
)
def test_bad_option_is_refused(run_job: RunJob, options: list[str]) -> None:
    with pytest.raises(SystemExit):
        run_job(*options)
