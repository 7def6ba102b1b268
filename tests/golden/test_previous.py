"""The previous release works on what this one stores: the other half of a canary, and of an upgrade taken back.

Its files come from git: the newest tag below HEAD. As long as nothing is tagged, they are those from before the last
change of the recorded stores: HEAD's parent would mostly store what HEAD stores. `git archive` copies them, so that no
worktree stays behind. They run the upgrade tests of their own time, on a store recorded now.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from penstock_core.version import VERSION
from tests.golden.record import recorded

pytestmark = pytest.mark.minutes
CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("functions", "sdk", "glue_jobs")


def git(*arguments: str) -> bytes | None:
    """What git says in this checkout, None if it fails, as in a shallow clone or a source archive."""
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def previous_revision() -> str:
    """The newest tag below HEAD, or the commit before the last one that recorded a store anew."""
    tag = git("describe", "--tags", "--abbrev=0", "HEAD^")
    if tag is not None:
        return tag.decode().strip()
    recording = git("log", "-1", "--format=%H", "--", "tests/golden/*/stored.json") or b"HEAD"
    return f"{recording.decode().strip()}^"


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The files of the previous release."""
    packed = git("archive", previous_revision(), *PACKAGES, "tests", "pyproject.toml")
    if packed is None:
        pytest.skip("this checkout lacks the previous commit: fetch more of its history")
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(tmp_path, filter="data")
    return tmp_path


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on the code of `place`, and on no other code of Penstock."""
    path = os.pathsep.join([str(place), *(str(place / each) for each in PACKAGES)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_previous_release_works_on_what_this_one_stores(previous: Path) -> None:
    told = run(previous, "-c", "import penstock, penstock_handlers as h; print(penstock.__file__, h.__file__)")
    assert [Path(each).is_relative_to(previous) for each in told.stdout.split()] == [True, True], told.stderr
    golden = previous / "tests" / "golden"
    for old in golden.glob("*/stored.json"):
        old.unlink()
    (golden / VERSION).mkdir(exist_ok=True)
    (golden / VERSION / "stored.json").write_text(json.dumps(recorded()))
    done = run(previous, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/golden/test_upgrade.py")
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
