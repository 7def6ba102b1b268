from pathlib import Path

import pytest

from penstock_spark.archive.archive_table import TableKind
from tests.glue_jobs.archived_topic import ArchivedTopic
from tests.glue_jobs.replay.replays import NOW_MS
from tests.support.service import (
    SteppedClock,
    patient_instance,
)


@pytest.fixture
def clock() -> SteppedClock:
    clock = SteppedClock()
    clock.time_ms = float(NOW_MS)
    return clock


@pytest.fixture(params=TableKind)
def archived(request: pytest.FixtureRequest, tmp_path: Path, clock: SteppedClock) -> ArchivedTopic:
    """An archived topic of two partitions."""
    archived = ArchivedTopic(folder=tmp_path, kind=request.param, instance=patient_instance(clock))
    archived.fill()
    archived.archive()
    return archived


@pytest.fixture
def parquet(tmp_path: Path, clock: SteppedClock) -> ArchivedTopic:
    archived = ArchivedTopic(folder=tmp_path, kind=TableKind.PARQUET, instance=patient_instance(clock))
    archived.fill()
    archived.archive()
    return archived


@pytest.fixture
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_spark.replay.replay_lane.REQUEST_BYTES", 300)
