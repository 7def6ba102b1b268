"""`penstock prove`: its report in each form, its files, its exit codes, and a stage of its own."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli import prove as command
from penstock.cli import proven
from penstock.deployed.aws import Aws
from penstock.prove.leftovers import FILE_NAME, Leftovers
from penstock.prove.own_stage import stack_of
from penstock.prove.proof import Proof, ProofRow, Ruling
from penstock.prove.prove_report import UNPROVEN
from penstock.prove.proven_stage import ProvenStage
from penstock.prove.rows import loads, records
from penstock.testing import MemoryPenstock
from penstock_cdk.settings import settings_of, stack_name
from penstock_core.errors import ErrorCode, PenstockError
from tests.sdk.cli.command import run
from tests.sdk.prove.stubbed_stage import ACCOUNT, CannedAws, DeployedTransport, refusal, stack
from tests.support.deadlines import until

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
    assert result.exit_code == UNPROVEN, result.output
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "found" / "prove.json").read_text())
    verdicts = {each["name"]: each["verdict"] for each in report["rows"]}
    assert verdicts["latency of an append"] == verdicts["pollers"] == "only on AWS"
    assert verdicts["a zone shut off"] == "left out"
    assert report["is_proven"] is False, "without AWS, nothing is shown"
    assert 0 < report["usd_max"] < 1
    page = (tmp_path / "found" / "prove.md").read_text().splitlines()
    assert page[4:6] == ["| row | verdict | expected | measured | calls |", "| --- | --- | --- | --- | --- |"]
    assert len([line for line in page if line.startswith("| ")]) == len(report["rows"]) + 2
    assert [each.name for each in service.admin().list_topics()] == ["orders"]
    assert sorted(each.name for each in (tmp_path / "found").iterdir()) == ["prove.json", "prove.md"]


def test_prove_shows_a_table_of_80_columns_and_its_progress_on_stderr(deployed: DeployedTransport) -> None:
    result = run(deployed, "prove", *FAST)
    assert result.exit_code == UNPROVEN, result.output
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
        ("--deploy", "--dollars-max", "0.06"),
        ("--profile", "express2"),
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
        self.folder, self.log, self.destroyed = folder, folder / "npx.log", folder / "destroyed"
        self.fails("none")

    def fails(self, name: str) -> None:
        script = self.folder / "npx"
        script.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(self.log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
            f"if sys.argv[2] == {name!r}: sys.exit(3)\n"
            f"if sys.argv[2] == 'destroy': open({str(self.destroyed)!r}, 'w')\n"
        )
        script.chmod(0o755)

    def called(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


class FakeAccount:
    """An account with the stack that `npx` has deployed. `stage` is the stage that its template tells."""

    def __init__(self, npx: "FakeNpx") -> None:
        self.canned, self.account, self.stage = CannedAws(), ACCOUNT, "penstock-prove-1f2e3d"
        self.npx = npx
        self.canned.answers |= {
            "sts.GetCallerIdentity": lambda _: {"Account": self.account},
            "cloudformation.DescribeStacks": lambda _: (
                {"Stacks": [stack()]} if self._has_stack() else "ValidationError"
            ),
            "cloudformation.GetTemplate": lambda _: {
                "TemplateBody": json.dumps({"Metadata": {"Penstock": json.dumps({"name": self.stage})}})
            },
        }

    def _has_stack(self) -> bool:
        return not self.npx.destroyed.exists()


@pytest.fixture
def npx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNpx:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(command, "new_nonce", lambda: "1f2e3d4c5b")
    return FakeNpx(folder)


@pytest.fixture
def account(npx: FakeNpx, monkeypatch: pytest.MonkeyPatch) -> FakeAccount:
    made = FakeAccount(npx)
    for module in (command, proven):
        monkeypatch.setattr(module, "calls_of", lambda _: Aws(made.canned.client))
    return made


PLACE = {"profile": "standard1", "region": "us-east-1", "account": ACCOUNT}
CONTEXT = "-c stage=prove-1f2e3d -c base=dev -c profile=standard1 -c region=us-east-1"
DEPLOYED, DESTROYED = f"cdk deploy {CONTEXT} --require-approval never", f"cdk destroy {CONTEXT} --force"


def test_stack_and_tag_of_a_stage_of_its_own_are_those_of_the_app() -> None:
    settings = settings_of("prove-1f2e3d", "dev")
    assert stack_of("prove-1f2e3d") == stack_name(settings) == settings.name
    assert not settings.keeps_data_on_delete
    assert settings.log_level == "DEBUG"


def test_deploy_makes_a_stage_takes_its_stack_and_removes_it(
    service: MemoryPenstock,
    deployed: DeployedTransport,
    account: FakeAccount,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    npx = account.npx
    made = proven.stage_of
    asked: list[Any] = []

    def stage(_: Any, options: Any, leftovers: Any, began_at_ms: int) -> Any:
        asked.append(options["stack"])
        assert json.loads((tmp_path / FILE_NAME).read_text())["entries"] == [
            {"kind": "stack", "name": "prove-1f2e3d", **PLACE}
        ]
        return made(deployed, options, leftovers, began_at_ms)

    monkeypatch.setattr(command, "stage_of", stage)
    monkeypatch.setattr(proven, "sleep", lambda _: None)
    refusals = iter([refusal(403, None), refusal(404, None)])
    deployed.instead = lambda *_: next(refusals, None)  # a new API has no rights at first
    result = run(None, "prove", "--deploy", "--profile", "standard1", *FAST, "--json")
    assert asked == ["penstock-prove-1f2e3d"], result.output
    assert npx.called() == [DEPLOYED, DESTROYED]
    report = json.loads(result.stdout)
    assert report["is_own"] is True
    assert report["usd_max"] > 0.05
    assert not (tmp_path / FILE_NAME).exists()


def test_deployment_that_fails_is_removed_and_told(
    service: MemoryPenstock, account: FakeAccount, tmp_path: Path
) -> None:
    npx = account.npx
    npx.fails("deploy")
    result = run(None, "prove", "--deploy", "--profile", "standard1")
    assert result.exit_code == 1
    assert "`npx cdk deploy` of prove-1f2e3d failed" in result.stderr
    assert npx.called() == [DEPLOYED, DESTROYED]
    assert not (tmp_path / FILE_NAME).exists()


def test_stage_that_cannot_be_removed_is_told_and_removed_by_the_next_run(
    service: MemoryPenstock, deployed: DeployedTransport, account: FakeAccount, tmp_path: Path
) -> None:
    npx = account.npx
    npx.fails("destroy")
    Leftovers(tmp_path / FILE_NAME, "", {}).note("stack", "prove-1f2e3d", **PLACE)
    result = run(deployed, "prove", *FAST, "--yes")
    assert result.exit_code == 1
    assert "could not be put back: stack prove-1f2e3d" in result.stderr
    npx.fails("none")
    refused = run(deployed, "prove", *FAST, stdin=b"n\n")
    assert (refused.exit_code, f"Remove the stage prove-1f2e3d of account {ACCOUNT}" in refused.stderr) == (1, True)
    assert npx.called() == [DESTROYED], "nothing is removed by a file without a yes"
    assert run(deployed, "prove", *FAST, stdin=b"y\n").exit_code == UNPROVEN
    assert npx.called() == [DESTROYED] * 2
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [({"account": "210987654321"}, "your credentials are of 210987654321"), ({"stage": "team"}, "of the stage 'team'")],
)
def test_stage_that_a_file_names_is_not_removed_from_another_account_nor_another_stage(
    service: MemoryPenstock, deployed: DeployedTransport, account: FakeAccount, change: dict[str, str], told: str
) -> None:
    Leftovers(Path(FILE_NAME), "", {}).note("stack", "prove-1f2e3d", **PLACE)
    for name, value in change.items():
        setattr(account, name, value)
    result = run(deployed, "prove", *FAST, "--yes")
    assert (result.exit_code, told in result.stderr, account.npx.called()) == (1, True, [])


def test_stack_that_is_there_after_the_removal_stays_in_the_file(
    service: MemoryPenstock, deployed: DeployedTransport, account: FakeAccount, tmp_path: Path
) -> None:
    Leftovers(tmp_path / FILE_NAME, "", {}).note("stack", "prove-1f2e3d", **PLACE)
    account.canned.answers["cloudformation.DescribeStacks"] = {"Stacks": [stack()]}
    result = run(deployed, "prove", *FAST, "--yes")
    assert (result.exit_code, "is still there" in result.stderr) == (1, True)
    assert (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize("lacks", ["checkout", "npx"])
def test_deploy_without_checkout_or_npx_leaves_the_folder_usable(
    service: MemoryPenstock, account: FakeAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacks: str
) -> None:
    def none() -> Path:
        raise click.ClickException("not in a checkout")

    if lacks == "checkout":
        monkeypatch.setattr(command, "find_checkout", none)
    else:
        monkeypatch.setenv("PATH", "")
    result = run(None, "prove", "--deploy")
    assert (result.exit_code, lacks in result.stderr) == (1, True)
    assert not (tmp_path / FILE_NAME).exists()


def test_terminated_deployment_ends_with_its_children_and_is_removed(
    service: MemoryPenstock, account: FakeAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    script = tmp_path / "bin" / "npx"
    before = script.read_text()
    script.write_text(
        f"#!{sys.executable}\nimport pathlib, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(began)!r}).write_text(str(child.pid))\nchild.wait()\n"
    )

    def terminate() -> None:
        until(lambda: began.exists() and began.read_text() != "", deadline_s=20)
        script.write_text(before)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    result = run(None, "prove", "--deploy", "--profile", "standard1")
    assert result.exit_code == 1
    assert account.npx.called() == [DESTROYED]
    assert not (tmp_path / FILE_NAME).exists()
    state = Path(f"/proc/{began.read_text()}/status")
    assert not state.exists() or "State:\tZ" in state.read_text(), "the child of npx is dead"


def test_prove_refuses_a_stack_of_another_url(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    told = stack()
    told["Outputs"].append({"OutputKey": "ApiUrl", "OutputValue": "https://prod.example/"})
    canned = CannedAws()
    canned.answers["cloudformation.DescribeStacks"] = {"Stacks": [told]}
    monkeypatch.setattr(proven, "_clients", lambda *_: canned.client)
    result = run(None, "prove", "--url", "https://dev.example", "--region", "us-east-1", "--stack", "Prod")
    assert (result.exit_code, "the stack Prod has the URL https://prod.example/" in result.stderr) == (1, True)
    assert not (tmp_path / "prove.json").exists()


def _answer(ruling: Ruling, _: ProvenStage) -> Proof:
    return Proof(ruling=ruling, fact="so")


@pytest.mark.parametrize(
    ("rulings", "exit_code"),
    [
        ((Ruling.HOLDS, Ruling.LEFT_OUT, Ruling.ONLY_ON_AWS), 0),
        ((Ruling.HOLDS, Ruling.UNKNOWN), 3),
        ((Ruling.LEFT_OUT, Ruling.ONLY_ON_AWS), 3),
        ((), 3),
        ((Ruling.DOES_NOT_HOLD, Ruling.UNKNOWN), 1),
    ],
)
def test_exit_code_tells_proven_from_not_shown(
    deployed: DeployedTransport, monkeypatch: pytest.MonkeyPatch, rulings: tuple[Ruling, ...], exit_code: int
) -> None:
    rows = [
        ProofRow(name=f"row {number}", expects="so", ask=partial(_answer, ruling))
        for number, ruling in enumerate(rulings)
    ]
    monkeypatch.setattr(command, "all_rows", lambda _: [rows])
    result = run(deployed, "prove", "--json")
    assert (result.exit_code, json.loads(result.stdout)["is_proven"]) == (exit_code, exit_code == 0)


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
