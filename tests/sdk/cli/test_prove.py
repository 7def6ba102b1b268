"""`penstock prove`: its report in each form, its files, its exit codes, and a stage of its own."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli import prove as command
from penstock.prove.leftovers import FILE_NAME, Leftovers
from penstock.prove.own_stage import stack_of
from penstock.prove.rows import loads, records
from penstock.testing import MemoryPenstock
from penstock_cdk.settings import settings_of, stack_name
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.cli.command import run
from tests.sdk.prove.stubbed_stage import DeployedTransport, refusal

FAST = ("--idle", "1s")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPenstock]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "_DELAY_MS", 10)
    monkeypatch.setattr(records, "_DELAYED", 1)
    monkeypatch.setattr(loads, "HOT_APPENDS_MAX", 20)
    monkeypatch.setattr(loads, "_SYNC_MS", 50)
    with MemoryPenstock() as made:
        yield made


@pytest.fixture
def deployed(service: MemoryPenstock) -> DeployedTransport:
    return DeployedTransport(service.transport)


def test_prove_writes_json_and_markdown_and_leaves_nothing_behind(
    service: MemoryPenstock, deployed: DeployedTransport, tmp_path: Path
) -> None:
    service.create_topic("orders")
    result = run(deployed, "prove", *FAST, "--out", "found", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "found" / "prove.json").read_text())
    verdicts = {each["name"]: each["verdict"] for each in report["rows"]}
    assert verdicts["latency of an append"] == verdicts["pollers"] == "only on AWS"
    assert verdicts["a zone shut off"] == "left out"
    assert report["is_proven"] is True
    assert 0 < report["usd_max"] < 1
    page = (tmp_path / "found" / "prove.md").read_text().splitlines()
    assert page[4:6] == ["| row | verdict | expected | measured | calls |", "| --- | --- | --- | --- | --- |"]
    assert len([line for line in page if line.startswith("| ")]) == len(report["rows"]) + 2
    assert [each.name for each in service.admin().list_topics()] == ["orders"]
    assert sorted(each.name for each in (tmp_path / "found").iterdir()) == ["prove.json", "prove.md"]


def test_prove_shows_a_table_of_80_columns_and_its_progress_on_stderr(deployed: DeployedTransport) -> None:
    result = run(deployed, "prove", *FAST)
    assert result.exit_code == 0, result.output
    *table, summary = result.stdout.splitlines()
    assert max(map(len, table)) == 80
    assert "left out; " in summary
    assert "$0.0" in summary
    assert "puts into the zones: only on AWS" in result.stderr


def test_prove_exits_with_1_if_something_does_not_hold(deployed: DeployedTransport) -> None:
    deployed.instead = lambda _, path, body: (
        refusal(413, None) if path == "/v1/produce" and len(body) > 3_000_000 else None
    )
    result = run(deployed, "prove", *FAST, "--json")
    assert result.exit_code == 1
    [found] = [each for each in json.loads(result.stdout)["rows"] if each["verdict"] == "does not hold"]
    assert found["name"] == "limits of a body"


def test_prove_stops_before_its_dollars_and_minutes_end(deployed: DeployedTransport) -> None:
    result = run(deployed, "prove", *FAST, "--minutes-max", "0.5", "--json")
    rows = {each["name"]: each for each in json.loads(result.stdout)["rows"]}
    assert rows["wake-ups"]["verdict"] == "left out"
    assert rows["wake-ups"]["fact"].startswith("it may take 90 s, and ")
    result = run(deployed, "prove", *FAST, "--dollars-max", "0.02", "--json")
    assert (
        "and $0.00"
        in next(each for each in json.loads(result.stdout)["rows"] if each["name"] == "limits of a body")["fact"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--nonsense",),
        ("--dollars-max", "0"),
        ("--deploy", "--stack", "Shop"),
        ("--deploy", "--url", "https://one"),
        ("bill",),
        ("bill", "missing.json"),
    ],
)
def test_prove_exits_with_2_for_a_wrong_option(arguments: tuple[str, ...]) -> None:
    assert run(None, "prove", *arguments).exit_code == 2


def test_prove_without_a_service_says_how_to_name_one(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    result = run(None, "prove")
    assert result.exit_code == 1
    assert "NOT_CONFIGURED" in result.stderr


def test_prove_refuses_a_token(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "token")
    result = run(None, "prove", "--url", "https://127.0.0.1:9")
    assert result.exit_code == 1
    assert "this needs AWS keys" in result.stderr


def test_interrupted_run_puts_back_and_writes_what_it_has(
    service: MemoryPenstock, deployed: DeployedTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(records, "_appended", interrupt)
    result = run(deployed, "prove", *FAST)
    assert result.exit_code == 1
    assert "interrupted" in result.stderr
    assert {each["verdict"] for each in json.loads((tmp_path / "prove.json").read_text())["rows"]} == {"left out"}
    assert service.admin().list_topics() == []
    assert not (tmp_path / FILE_NAME).exists()


def test_run_puts_back_what_a_killed_one_left_before_it_begins(
    service: MemoryPenstock, deployed: DeployedTransport, tmp_path: Path
) -> None:
    service.create_topic("penstock-prove-killed")
    Leftovers(tmp_path / FILE_NAME, "", {}).note("topic", "penstock-prove-killed")
    result = run(deployed, "prove", *FAST)
    assert "putting 1 things back" in result.stderr
    assert service.admin().list_topics() == []


class FakeNpx:
    """An `npx` on the PATH that notes its arguments, and fails for the command that a test names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "npx.log"
        self.fails("none")

    def fails(self, name: str) -> None:
        script = self.folder / "npx"
        script.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(self.log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
            f"sys.exit(3 if sys.argv[2] == {name!r} else 0)\n"
        )
        script.chmod(0o755)

    def called(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def npx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNpx:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(command, "new_nonce", lambda: "1f2e3d4c5b")
    return FakeNpx(folder)


CONTEXT = "-c stage=prove-1f2e3d -c base=dev -c profile=standard1 -c region=eu-west-1"
DEPLOYED, DESTROYED = f"cdk deploy {CONTEXT} --require-approval never", f"cdk destroy {CONTEXT} --force"


def test_stack_and_tag_of_a_stage_of_its_own_are_those_of_the_app() -> None:
    settings = settings_of("prove-1f2e3d", "dev")
    assert stack_of("prove-1f2e3d") == stack_name(settings) == settings.name
    assert not settings.keeps_data_on_delete
    assert settings.log_level == "DEBUG"


def test_deploy_makes_a_stage_takes_its_stack_and_removes_it(
    service: MemoryPenstock, deployed: DeployedTransport, npx: FakeNpx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = command._stage
    asked: list[Any] = []

    def stage(_: Any, options: Any, leftovers: Any, began_at_ms: int) -> Any:
        asked.append(options["stack"])
        assert json.loads((tmp_path / FILE_NAME).read_text())["entries"][0]["name"] == "prove-1f2e3d"
        return made(deployed, options, leftovers, began_at_ms)

    monkeypatch.setattr(command, "_stage", stage)
    monkeypatch.setattr(command, "sleep", lambda _: None)
    refusals = iter([refusal(403, None), refusal(404, None)])
    deployed.instead = lambda *_: next(refusals, None)  # a new API has no rights at first
    result = run(None, "prove", "--deploy", "--profile", "standard1", "--region", "eu-west-1", *FAST, "--json")
    assert asked == ["penstock-prove-1f2e3d"], result.output
    assert npx.called() == [DEPLOYED, DESTROYED]
    report = json.loads(result.stdout)
    assert report["is_own"] is True
    assert report["usd_max"] > 0.05
    assert not (tmp_path / FILE_NAME).exists()


def test_deployment_that_fails_is_removed_and_told(service: MemoryPenstock, npx: FakeNpx, tmp_path: Path) -> None:
    npx.fails("deploy")
    result = run(None, "prove", "--deploy", "--profile", "standard1", "--region", "eu-west-1")
    assert result.exit_code == 1
    assert "`npx cdk deploy` of prove-1f2e3d failed" in result.stderr
    assert npx.called() == [DEPLOYED, DESTROYED]
    assert not (tmp_path / FILE_NAME).exists()


def test_stage_that_cannot_be_removed_is_told_and_removed_by_the_next_run(
    service: MemoryPenstock, deployed: DeployedTransport, npx: FakeNpx, tmp_path: Path
) -> None:
    npx.fails("destroy")
    Leftovers(tmp_path / FILE_NAME, "", {}).note("stack", "prove-1f2e3d", profile="standard1", region="eu-west-1")
    result = run(deployed, "prove", *FAST)
    assert result.exit_code == 1
    assert "could not be put back: stack prove-1f2e3d" in result.stderr
    npx.fails("none")
    assert run(deployed, "prove", *FAST).exit_code == 0
    assert npx.called() == [DESTROYED] * 2
    assert not (tmp_path / FILE_NAME).exists()


def test_bill_names_the_right_that_cost_explorer_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prove.json"
    for text, told in (("[]", "it is no JSON object"), ("{}", "this is no prove.json")):
        path.write_text(text)
        result = run(None, "prove", "bill", str(path))
        assert result.exit_code == 1
        assert told in result.stderr


def test_error_of_the_service_is_told_as_json(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PenstockError(ErrorCode.INVALID_CONFIG, "no such stack")

    monkeypatch.setattr(command, "_proven", fail)
    result = run(None, "prove", "--json")
    assert json.loads(result.stderr)["error"]["message"] == "no such stack"
    assert isinstance(command.prove, click.Group)
