"""Copiers in transactions, killed with their gateway again and again: each record is in the target once."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.exactly_once.copying import COPIER_KINDS, PARTITIONS, Copying, copy_and_kill
from tests.support.child_process import child_process


@pytest.fixture(params=COPIER_KINDS)
def copying(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copying]:
    """Processes around `penstock dev`."""
    copier = COPIER_KINDS[request.param](tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "dev", "--port", "0", "--no-console"]
    copying = Copying(folder=tmp_path, copier=copier)
    topics = ["--topic", f"{copying.source}:{PARTITIONS}", "--topic", f"{copying.target}:{PARTITIONS}"]
    with (
        (tmp_path / "service.log").open("w") as log,
        child_process([*command, *topics, "--json"], deadline_s=900, stdout=-1, stderr=log, text=True) as service,
    ):
        assert service.stdout is not None
        assert service.stdout.readline()
        try:
            yield copying
        finally:
            copying.close()


@pytest.mark.minutes
def test_each_record_is_copied_once_when_copiers_and_gateway_are_killed(copying: Copying) -> None:
    copy_and_kill(copying)
