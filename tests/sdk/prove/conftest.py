from pathlib import Path

import pytest

from tests.sdk.prove.stubbed_stage import CONFIGURATION, StubbedStage


@pytest.fixture
def stubbed(tmp_path: Path) -> StubbedStage:
    """A stage on AWS whose rows may disturb it."""
    return StubbedStage(tmp_path, configuration=CONFIGURATION, may_disturb=True)
