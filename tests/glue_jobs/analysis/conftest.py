"""Fixtures of the tests in this folder."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock_service.adapters.aws import Storage
from penstock_spark.scripts import analyze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from tests.glue_jobs.analysis.sent_records import RunJob


@pytest.fixture
def run_job(
    storage: Storage,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunJob:
    """Run the script as `--local` does, and return its result."""
    monkeypatch.setattr("penstock_spark.job.find_storage", lambda given: storage)

    def run(*options: str, output: str = str(tmp_path / "out")) -> dict[str, Any]:
        analyze.main(["--output", output, *options])
        return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))

    return run
