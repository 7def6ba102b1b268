"""What a killed run has left behind, put back by the next one."""

import json
from pathlib import Path

import pytest

from penstock.prove.leftovers import FILE_NAME, Leftovers
from penstock_core.errors import ErrorCode
from tests.sdk.prove.stubbed_stage import StubbedStage
from tests.support.refusals import refused

PLACE = {"profile": "express3", "region": "us-east-1", "account": "123456789012"}


def test_second_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    first = StubbedStage(tmp_path)
    topic = first.stage.new_topic()
    first.stage.leftovers.note("zone", "c")
    first.stage.admin.take_zone_out("c", "penstock prove")
    first.stage.leftovers.note("logging", "penstock-fetch", before={"LogFormat": "JSON", "LogGroup": "g"})
    # The process is killed here. The next one finds the file.
    second = StubbedStage(tmp_path)
    second.service.create_topic(topic)
    second.service.create_topic("orders")
    second.service.admin().take_zone_out("c", "penstock prove")
    second.aws.answers |= {
        "lambda.UpdateFunctionConfiguration": {},
        "lambda.GetFunctionConfiguration": {"LastUpdateStatus": "Successful"},
    }
    assert [each["kind"] for each in second.stage.leftovers.entries] == ["topic", "zone", "logging"]
    assert second.stage.leftovers.undo_all() == []
    assert second.topics() == ["orders"]
    assert [each.state for each in second.service.admin().list_zones()] == ["in_sync", "in_sync", "catching_up"]
    assert [params for name, params in second.aws.asked if name == "lambda.UpdateFunctionConfiguration"] == [
        {"FunctionName": "penstock-fetch", "LoggingConfig": {"LogFormat": "JSON", "LogGroup": "g"}}
    ]
    assert not (tmp_path / FILE_NAME).exists()


def test_zone_that_an_operator_took_out_stays_out(tmp_path: Path) -> None:
    stubbed = StubbedStage(tmp_path)
    stubbed.stage.leftovers.note("zone", "c")
    stubbed.service.admin().take_zone_out("c", "bucket policy changes")
    assert stubbed.stage.leftovers.undo_all() == []
    assert [each.state for each in stubbed.service.admin().list_zones()][-1] == "taken_out"


def test_topic_that_was_never_made_counts_as_undone(tmp_path: Path) -> None:
    stubbed = StubbedStage(tmp_path)
    stubbed.stage.leftovers.note("topic", "penstock-prove-none")
    assert stubbed.stage.leftovers.undo_all() == []


def test_entry_is_written_before_the_change(tmp_path: Path) -> None:
    leftovers = Leftovers(tmp_path / FILE_NAME, "https://one", {})
    leftovers.note("topic", "penstock-prove-1")
    assert json.loads((tmp_path / FILE_NAME).read_text()) == {
        "url": "https://one",
        "entries": [{"kind": "topic", "name": "penstock-prove-1"}],
    }


def test_file_of_another_stage_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    Leftovers(path, "https://one", {}).note("topic", "penstock-prove-1")
    error = refused(ErrorCode.INVALID_CONFIG, lambda: Leftovers(path, "https://two", {}))
    assert "penstock prove --url https://one" in error.message
    assert [each["name"] for each in Leftovers(path, "https://one", {}).entries] == ["penstock-prove-1"]


def test_stage_of_a_killed_run_is_removed_whatever_the_next_run_is_of(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    own = Leftovers(path, "", {})
    own.note("stack", "prove-1f", **PLACE)
    own.note("topic", "penstock-prove-1")
    removed: list[str] = []
    later = Leftovers(path, "https://two", {"stack": lambda entry: removed.append(entry["name"])})
    assert later.undo_all() == []
    assert removed == ["prove-1f"]
    assert not path.exists()


def test_stage_of_its_own_takes_all_others_with_it(tmp_path: Path) -> None:
    removed: list[str] = []
    own = Leftovers(tmp_path / FILE_NAME, "", {"stack": lambda entry: removed.append(entry["name"])})
    own.note("stack", "prove-1f", **PLACE)
    own.note("topic", "penstock-prove-1")
    assert own.undo_all() == []
    assert removed == ["prove-1f"]
    assert not (tmp_path / FILE_NAME).exists()


def test_function_of_another_stage_is_left_alone(tmp_path: Path) -> None:
    stubbed = StubbedStage(tmp_path)
    stubbed.stage.leftovers.note("logging", "payments-prod", before={"LogFormat": "JSON", "LogGroup": "/theirs"})
    [failure] = stubbed.stage.leftovers.undo_all()
    assert "no such function" in failure
    assert "lambda.UpdateFunctionConfiguration" not in [name for name, _ in stubbed.aws.asked]


@pytest.mark.parametrize("missing", sorted(PLACE))
def test_stack_without_its_place_is_refused(tmp_path: Path, missing: str) -> None:
    entry = {"kind": "stack", "name": "prove-1f", **PLACE}
    del entry[missing]
    (tmp_path / FILE_NAME).write_text(json.dumps({"url": "", "entries": [entry]}))
    error = refused(ErrorCode.INVALID_CONFIG, lambda: Leftovers(tmp_path / FILE_NAME, "", {}))
    assert "account and region" in error.message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": "u", "entries": 3}'])
def test_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(text)
    error = refused(ErrorCode.INVALID_CONFIG, lambda: Leftovers(path, "https://one", {}))
    assert "move it away" in error.message


@pytest.mark.parametrize(
    ("kind", "name"),
    [("topic", "orders"), ("group", "billing"), ("share_group", "packers"), ("stack", "prod"), ("bucket", "b")],
)
def test_file_that_names_what_no_run_has_made_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps({"url": "https://one", "entries": [{"kind": kind, "name": name}]}))
    refused(ErrorCode.INVALID_CONFIG, lambda: Leftovers(path, "https://one", {}))
