"""`penstock prove` against the deployed functions: each row is answered, or marked as AWS's alone."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from localstack.clients import ROOT_KEY
from penstock import Admin
from penstock.cli import main
from penstock.prove.all_rows import all_rows
from penstock.prove.rows import records
from tests.end_to_end.local_stack import Stack

pytestmark = pytest.mark.stack
SECONDS_MAX = 180
_ROWS = {row.name: row for phase in all_rows(120_000) for row in phase}


@pytest.fixture
def folder(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user who has started the stack there."""
    (tmp_path / ".penstock").mkdir(mode=0o700)
    variables = {
        "AWS_ENDPOINT_URL": stack.endpoint_url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": ROOT_KEY,
        "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
    }
    jobs = tmp_path / ".penstock" / "jobs.env"
    jobs.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    jobs.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", stack.url)
    monkeypatch.setenv("AWS_REGION", stack.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", stack.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", stack.secret_access_key)
    return tmp_path


def _rows(folder: Path, *options: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["prove", "--json", *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (folder / "prove.md").exists()
    assert not (folder / "prove.undo.json").exists()
    assert report["stage"] == "penstock"
    rows = {each["name"]: each for each in report["rows"]}
    assert rows.keys() == _ROWS.keys()
    for name, row in rows.items():
        assert row["verdict"] in ("holds", "only on AWS", "left out"), row
        assert row["usd_max"] <= _ROWS[name].usd_max, row
    return rows


def test_prove_answers_each_row_on_the_emulator_or_says_that_only_aws_can(
    stack: Stack, folder: Path, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("_APPENDS", "_APPENDS_TO_ALL", "_SMALL_APPENDS", "_LATE_TOPICS", "_DELAYED", "_WAKE_UPS")
    for name, value in {**dict.fromkeys(few, 1), "_DELAY_MS": 500, "_ASLEEP_MS": 700}.items():
        monkeypatch.setattr(records, name, value)
    rows = _rows(folder, "--idle", "1s")
    agreed = {name for name, row in rows.items() if row["fact"].startswith("the emulator agrees")}
    assert agreed >= {
        "puts into the zones",
        "limits of a body",
        "late zones",
        "delayed records",
        "wake-ups",
        "calls of each noun",
        "calls without a right signature",
        "policies of clients",
        "principals of one policy",
        "denied calls in the logs",
        "idle minutes",
    }
    assert rows["pollers"]["verdict"] == rows["stream of the log table"]["verdict"] == "holds"
    assert {name for name, row in rows.items() if row["verdict"] == "left out"} == {
        "a hot partition",
        "a zone shut off",
        "releases",
        "alarms",
    }
    assert not [each.name for each in admin.list_topics() if each.name.startswith("penstock-prove-")]


@pytest.mark.minutes
def test_prove_answers_all_rows_that_disturb_in_three_minutes(stack: Stack, folder: Path, admin: Admin) -> None:
    began = time.monotonic()
    rows = _rows(folder, "--may-disturb")
    assert time.monotonic() - began < SECONDS_MAX
    assert rows["a hot partition"]["figures"]["wrong"] == 0
    assert rows["a zone shut off"]["figures"]["appended"] == 10
    assert {each.state for each in admin.list_zones()} == {"in_sync"}
