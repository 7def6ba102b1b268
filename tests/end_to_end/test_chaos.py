"""Short chaos runs: one that must find no violation, and three against builds with a defect on purpose."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localstack.places import CHECKOUT
from tests.chaos.push.subscriptions import DRAINED

pytestmark = [pytest.mark.stack, pytest.mark.chaos]
_COPIED = ("app.py", "cdk.json", "functions", "infra", "localstack", "requirements")
_LINKED = (".penstock", "node_modules")  # built once, and needed to synthesize


def run_chaos(keep: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Returns the exit code and the report."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--json", "--keep", str(keep), *options],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((".", "functions", "sdk", "infra"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def broken_checkout(folder: Path, module: str, right: str, wrong: str) -> Path:
    """Makes a copy of the deployed sources, with one defect in one module of functions/."""
    folder.mkdir()
    for name in _COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    for name in _LINKED:
        (folder / name).symlink_to(CHECKOUT / name)
    path = folder / "functions" / module
    text = path.read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, wrong))
    return folder


def test_every_promise_holds_while_storage_functions_and_connections_fail(tmp_path: Path) -> None:
    code, report = run_chaos(tmp_path / "kept", "--seconds", "20", "--seed", "3")
    assert report["violations"] == []
    assert code == 0
    assert report["figures"]["acknowledged records"] > 0
    assert (report["figures"]["lost"], report["figures"]["duplicates"]) == (0, 0)
    for worked in ("records handed out by share groups", "acceptances of share groups", "dead letters"):
        assert report["figures"][worked] > 0, worked
    assert report["figures"]["delayed records that came"] > 0
    for name in DRAINED:
        assert report["history"]["subscriptions"][name]["records"] > 0, name
    assert any(kind.startswith("zone") for kind in report["injected"])
    assert any(kind.startswith("function killed") for kind in report["injected"])
    assert any(kind.endswith("applied") for kind in report["injected"])
    assert not (tmp_path / "kept").exists()


def test_run_fails_and_keeps_its_history_when_appends_heed_no_sequence(tmp_path: Path) -> None:
    right, wrong = "if ref.sequence is not None:", "if False:"
    checkout = broken_checkout(tmp_path / "broken", "penstock_service/records/append.py", right, wrong)
    code, report = run_chaos(tmp_path / "kept", "--seconds", "20", "--seed", "3", "--checkout", str(checkout))
    assert code == 1
    assert set(report["history"]["anomalies"]) == {"duplicate"}
    assert report["violations"] == [f"duplicate: {report['history']['anomalies']['duplicate']:,}"]
    [kept] = (tmp_path / "kept").iterdir()
    assert (kept / "history.jsonl").exists()


def test_run_fails_when_compaction_takes_the_newest_record_for_superseded(tmp_path: Path) -> None:
    right, wrong = "self._offsets.get(_name(key), -1) > offset", "self._offsets.get(_name(key), -1) >= offset"
    checkout = broken_checkout(tmp_path / "broken", "penstock_core/compaction/cleaning.py", right, wrong)
    code, report = run_chaos(tmp_path / "kept", "--seconds", "20", "--seed", "3", "--checkout", str(checkout))
    assert code == 1
    assert report["history"]["anomalies"] == {}
    assert any("did not find the newest records" in violation for violation in report["violations"])


def test_run_fails_when_deliveries_take_named_records_for_handled(tmp_path: Path) -> None:
    right, wrong = "if isinstance(answer, Answered) and not answer.failed:", "if isinstance(answer, Answered):"
    checkout = broken_checkout(tmp_path / "broken", "penstock_service/push/deliver_ordered.py", right, wrong)
    options = "--only", "push", "--seconds", "20", "--seed", "3", "--checkout", str(checkout)
    code, report = run_chaos(tmp_path / "kept", *options)
    assert code == 1
    assert report["history"]["anomalies"]["unhandled"] > 0
    for name in ("in-order", "endpoint"):  # ordered mode alone is broken
        assert report["history"]["subscriptions"][name]["records"] > 0
