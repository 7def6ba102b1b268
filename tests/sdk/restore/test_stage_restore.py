"""`penstock restore --to TIME`: its steps on a deployed stage, processes that die between two calls, and the undo."""

import copy
import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import Result

from localstack.places import CHECKOUT
from penstock.deployed.aws import aws_of
from penstock.deployed.stack import read_stack
from penstock.restore.heads import RestoredHeads
from penstock.restore.note import NOTE_KEY
from penstock.restore.opening import open_restore
from penstock.restore.progress import STEPS
from penstock.restore.stage_restore import Pace, StageRestore
from penstock.transports.embedded_storage import storage_of_outputs
from penstock_cdk import settings_of_app
from penstock_cdk.service.tasks import TASKS
from penstock_core.errors import ErrorCode
from penstock_service.adapters.aws import aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from tests.sdk.cli.command import run
from tests.sdk.restore.conftest import IS_WHOLE
from tests.support.deployed_stage import REGION, DeployedStage, is_missing, write_assembly
from tests.support.refusals import refused
from tests.support.service import Killed, SteppedClock, ask, batch, head_of, new_topic, send, values_of

pytestmark = [pytest.mark.slow, pytest.mark.synth]

TO = "2027-01-15T07:00:00Z"
RESTORED = {name: f"penstock-{name}-restored-20270115t070000z" for name in ("topics", "log", "groups")}
READERS = {"penstock-fetch", "penstock-dispatch"}


class App:
    """The app of a folder, as `npx cdk` runs it."""

    def __init__(self, deployed: DeployedStage) -> None:
        self.template = copy.deepcopy(deployed.template)
        self.ran: list[list[str]] = []
        self.after_synth: Callable[[], object] = lambda: None
        self._deployed = deployed

    def run(self, command: list[str], **_: Any) -> Any:
        """Takes `synth` and `deploy`."""
        self.ran.append(command)
        if command[2] == "synth":
            write_assembly(command, self.template)
            self.after_synth()
        else:
            self._deployed.deploy(
                next(each for each in command if each.startswith("restored_tables=")).split("=", 1)[1]
            )
        return type("Done", (), {"returncode": 0})


def go_on(*arguments: str) -> Result:
    """The command, which goes on until it has to be deployed, or to its end."""
    return run(None, "restore", "--to", TO, "--yes", *arguments)


def restored_tables(result: Result) -> str:
    """The tables that the command says to deploy."""
    assert result.exit_code == 0, result.output
    return [word.split("=", 1)[1] for word in result.stdout.split() if word.startswith("restored_tables=")][-1]


def steps(*arguments: str) -> dict[str, str]:
    """The state of each step, by a dry run."""
    result = run(None, "restore", "--to", TO, "--dry-run", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return {each["step"]: each["state"] for each in json.loads(result.stdout)["steps"]}


def restore_all(deployed: DeployedStage) -> None:
    """A whole restore."""
    deployed.deploy(restored_tables(go_on()))
    result = go_on("--sweep")
    assert result.exit_code == 0, result.output


def has_note(deployed: DeployedStage) -> bool:
    return not is_missing(lambda: deployed.stage.s3.get_object(Bucket="archive", Key=NOTE_KEY))


def check_restored(deployed: DeployedStage, before: dict[str, Any]) -> None:
    """Everything is as it was, the tables have all settings, and the log goes on behind what was given."""
    assert deployed.states() == before
    assert not has_note(deployed)
    log, topics = deployed.table(RESTORED["log"]), deployed.table(RESTORED["topics"])
    assert log.stream_specification == {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert log.ttl["AttributeName"] == deployed.table(RESTORED["groups"]).ttl["AttributeName"] == "expires_at_s"
    for table in (log, topics):
        recovery = table.continuous_backups["PointInTimeRecoveryDescription"]
        assert (recovery["PointInTimeRecoveryStatus"], recovery["RecoveryPeriodInDays"]) == ("ENABLED", 20)
        assert table.deletion_protection_enabled
        assert {"Key": "penstock:stage", "Value": "penstock"} in table.tags
    restored = aws_instance(storage_of_outputs(deployed.outputs, REGION), StorageCalls())
    assert values_of(ask(restored, "orders"), 0) == [(0, "0"), (1, "1"), (2, "2")]
    error = refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: ask(restored, "orders", 5))
    assert error.facts["to"] == 1_008, "behind offset 7, which was given before the restore"
    assert send(restored, "orders", "new").base_offset == 1_008


@IS_WHOLE
def test_writers_are_the_functions_whose_roles_may_write(deployed: DeployedStage) -> None:
    stack = read_stack(aws_of(REGION), "Penstock")
    assert {each.name for each in stack.functions() if not each.writes} == READERS
    assert {each.handler for each in stack.functions()} >= {"produce", "fetch", "admin", "upkeep", "sweep", "groups"}


@IS_WHOLE
def test_dry_run_shows_what_each_step_would_change_and_changes_nothing(deployed: DeployedStage) -> None:
    before = deployed.states()
    result = run(None, "restore", "--to", TO, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "function penstock-produce: reserved concurrency 225 -> 0" in result.stdout, result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if "npx" not in line)
    assert steps() == dict.fromkeys(STEPS, "to do")
    assert (deployed.states(), has_note(deployed)) == (before, False)
    assert {call for call in deployed.calls if "Put" in call or "Update" in call} == set()


@IS_WHOLE
def test_restore_stops_deploys_and_puts_everything_back(deployed: DeployedStage) -> None:
    before = deployed.states()
    result = go_on()
    stopped = {name for name, state in deployed.states().items() if state == 0}
    assert stopped == {name for name in before if name.startswith("penstock-")} - READERS
    on = {name for name, state in deployed.states().items() if state in ("ENABLED", "Enabled")}
    assert on == {"rule penstock-job-runs-failed", "mapping PushSourceStream0470EBAD"}, "they start no writer"
    assert result.stdout.splitlines()[-1].startswith("npx cdk deploy -c stage=prod -c restored_tables=topics=")
    assert "-c canary=off" in result.stdout
    assert "reserved_concurrency=admin=0,deliver=0" in result.stdout
    assert steps()["deploy"] == "to do"
    deployed.deploy(restored_tables(result))
    assert go_on().exit_code == 0
    changed = {name for name, state in deployed.states().items() if state != before[name]}
    assert changed == {"penstock-sweep", "rule penstock-sweep"}, "the sweep waits until you are sure"
    assert steps() == {step: "to do" if step == "sweep" else "done" for step in STEPS}
    restored = aws_instance(storage_of_outputs(deployed.outputs, REGION), StorageCalls())
    new_topic(restored, "made-since")
    assert go_on("--sweep").exit_code == 0
    assert send(restored, "made-since", "first").base_offset == 0, "a topic of later days does not jump"
    check_restored(deployed, before)


def test_expiry_of_the_log_table_is_off_until_the_jump_has_kept_small_appends(
    deployed: DeployedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiries: list[list[bool]] = []
    make = RestoredHeads.make

    def watched(self: RestoredHeads, *given: Any) -> Any:
        yield from make(self, *given)
        expiries.append(["AttributeName" in deployed.table(RESTORED[each]).ttl for each in ("log", "groups")])

    monkeypatch.setattr(RestoredHeads, "make", watched)
    result = go_on()
    assert expiries == [[False, True]]
    assert deployed.table(RESTORED["log"]).ttl["AttributeName"] == "expires_at_s"
    assert result.stderr.index("step jump") < result.stderr.index("step expiry")
    assert steps()["expiry"] == "done"


def test_restore_that_dies_after_any_call_goes_on(deployed: DeployedStage) -> None:
    """Each process makes one change, and dies."""
    before, deaths = deployed.states(), 0
    deployed.kill_after = lambda _: True

    def until_it_lives(*arguments: str) -> Result:
        nonlocal deaths
        while True:
            try:
                return go_on(*arguments)
            except Killed:
                deaths += 1

    deployed.deploy(restored_tables(until_it_lives()))
    done = until_it_lives("--sweep")
    assert "it is done" in done.stderr, "the last call that a process died behind has removed the note"
    check_restored(deployed, before)
    assert deaths > 2 * len([name for name, state in before.items() if state != "DISABLED"]), deaths


def test_denied_call_is_named_and_the_restore_goes_on_once_it_is_allowed(deployed: DeployedStage) -> None:
    before = deployed.states()
    for action in (
        "cloudformation:GetTemplate",
        "s3:PutObject",
        "events:DisableRule",
        "scheduler:UpdateSchedule",
        "lambda:PutFunctionConcurrency",
        "dynamodb:RestoreTableToPointInTime",
        "dynamodb:TagResource",
        "dynamodb:UpdateContinuousBackups",
        "dynamodb:UpdateTable",
        "dynamodb:UpdateTimeToLive",
    ):
        deployed.denied = {action}
        result = go_on()
        assert (result.exit_code, action in result.stderr) == (1, True), (action, result.stderr)
    deployed.denied = set()
    restore_all(deployed)
    check_restored(deployed, before)


@IS_WHOLE
def test_denied_call_of_the_way_back_is_named(deployed: DeployedStage) -> None:
    before = deployed.states()
    deployed.deploy(restored_tables(go_on()))
    for action in ("lambda:DeleteFunctionConcurrency", "lambda:UpdateEventSourceMapping", "events:EnableRule"):
        deployed.denied = {action}
        result = go_on("--sweep")
        assert (result.exit_code, action in result.stderr) == (1, True), result.stderr
    deployed.denied = set()
    assert go_on("--sweep").exit_code == 0
    check_restored(deployed, before)


def test_another_time_is_refused_while_one_is_under_way(deployed: DeployedStage) -> None:
    go_on()
    result = run(None, "restore", "--to", "2027-01-15T06:00:00Z", "--yes")
    assert result.exit_code == 1
    assert f"penstock restore --to {TO}" in result.stderr
    assert "penstock restore --undo" in result.stderr
    assert deployed.states()["penstock-produce"] == 0


def test_time_out_of_the_window_is_refused_and_nothing_stops(deployed: DeployedStage) -> None:
    before = deployed.states()
    assert run(None, "restore", "--to", "2027-01-16T00:00:00Z", "--dry-run").exit_code == 1
    result = run(None, "restore", "--to", "2027-01-16T00:00:00Z", "--yes")
    assert (result.exit_code, "give a time from 1970-01-01T00:00:00Z to 2027-01-15T08:00:00Z" in result.stderr) == (
        1,
        True,
    )
    assert (deployed.states(), has_note(deployed)) == (before, False)


@pytest.mark.parametrize(
    "last",
    [
        *(pytest.param(each, marks=pytest.mark.minutes) for each in ("PutObject", "PutFunctionConcurrency")),
        "RestoreTableToPointInTime",
        pytest.param("TagResource", marks=pytest.mark.minutes),
        "",
    ],
)
def test_undo_puts_everything_back_from_any_step(deployed: DeployedStage, last: str) -> None:
    before = deployed.states()
    deployed.kill_after = lambda action: bool(last) and action.endswith(last)
    with suppress(Killed):
        go_on()
    deployed.kill_after = lambda _: False
    assert has_note(deployed)
    result = run(None, "restore", "--undo", "--yes", "--json")
    assert result.exit_code == 0, result.output
    left = json.loads(result.stdout)["tables_left"]
    assert (deployed.states(), has_note(deployed)) == (before, False)
    assert left == (
        [] if last.startswith("Put") else [RESTORED["topics"]] if last.startswith("Restore") else [*RESTORED.values()]
    )
    again = go_on()
    assert again.exit_code == (1 if left else 0), "a left table has jumped already, behind fewer offsets"
    assert all(table in again.stderr for table in left[:1])


def test_undo_is_refused_once_the_stack_uses_the_tables_and_without_a_restore(deployed: DeployedStage) -> None:
    none = run(None, "restore", "--undo", "--yes")
    assert (none.exit_code, "no restore of stack Penstock is under way" in none.stderr) == (1, True)
    deployed.deploy(restored_tables(go_on()))
    late = run(None, "restore", "--undo", "--yes")
    assert (late.exit_code, "uses the restored tables already" in late.stderr) == (1, True)


def test_jump_waits_for_functions_that_ran_and_refuses_while_a_job_runs(
    deployed: DeployedStage, clock: SteppedClock
) -> None:
    deployed.running = [{"Id": "jr_1", "JobRunState": "RUNNING"}]
    result = go_on()
    assert (result.exit_code, "penstock-compact (jr_1) on Glue" in result.stderr) == (1, True)
    assert steps()["jump"] == "to do"
    deployed.running = []
    before_ms = clock.now_ms()
    assert go_on().exit_code == 0
    assert clock.now_ms() - before_ms >= 900_000, "the longest timeout of a function that writes"


def test_table_that_is_busy_is_asked_again(deployed: DeployedStage) -> None:
    before = deployed.states()
    deployed.busy = {
        "dynamodb:UpdateContinuousBackups": ["ContinuousBackupsUnavailableException"] * 3,
        "dynamodb:UpdateTable": ["ResourceInUseException"],
        "lambda:UpdateEventSourceMapping": ["ResourceInUseException"],
    }
    restore_all(deployed)
    check_restored(deployed, before)


def test_topic_that_cannot_be_read_keeps_the_writers_stopped(deployed: DeployedStage) -> None:
    s3 = deployed.stage.s3
    deployed.deploy(restored_tables(go_on()))
    for each in s3.list_objects_v2(Bucket="zone-a")["Contents"]:
        s3.delete_object(Bucket="zone-a", Key=each["Key"])
    result = go_on()
    assert (result.exit_code, "cannot be read, orders first" in result.stderr) == (1, True)
    assert deployed.states()["penstock-produce"] == 0
    answers = run(None, "restore", "--to", TO, stdin=b"y\ny\n")
    assert (answers.exit_code, has_note(deployed)) == (0, False), answers.output


def writers(reserved: int | None) -> None:
    """Lets produce run again, as a rollback of CloudFormation does, or stops it."""
    client = boto3.client("lambda", region_name=REGION)
    if reserved is None:
        client.delete_function_concurrency(FunctionName="penstock-produce")
    else:
        client.put_function_concurrency(FunctionName="penstock-produce", ReservedConcurrentExecutions=reserved)


def append_many(deployed: DeployedStage) -> None:
    """1,600 records on the harmed tables: more than the margin of a jump."""
    for _ in range(16):
        assert deployed.stage.service.produce(("orders", 0, batch(*map(str, range(100))))).status == 200


def next_offset(deployed: DeployedStage) -> int:
    restored = aws_instance(storage_of_outputs(deployed.outputs, REGION), StorageCalls())
    return send(restored, "orders", "new").base_offset


def test_look_reads_the_newest_record_of_each_partition(deployed: DeployedStage) -> None:
    s3 = deployed.stage.s3
    before = {each["Key"] for each in s3.list_objects_v2(Bucket="zone-a")["Contents"]}
    assert deployed.stage.service.produce(("orders", 1, batch("a"))).status == 200
    [of_1] = {each["Key"] for each in s3.list_objects_v2(Bucket="zone-a")["Contents"]} - before
    deployed.snapshot()
    deployed.deploy(restored_tables(go_on()))
    s3.delete_object(Bucket="zone-a", Key=of_1)
    result = go_on()
    assert (result.exit_code, "the newest record of 1 of 2 reads, 1 FAIL" in result.stderr) == (1, True), result.stderr


def test_function_that_runs_again_behind_the_jump_is_stopped_and_the_log_jumps_anew(deployed: DeployedStage) -> None:
    go_on()
    writers(225)
    append_many(deployed)
    result = go_on()
    assert result.exit_code == 0, result.output
    assert deployed.states()["penstock-produce"] == 0
    deployed.deploy(restored_tables(result))
    assert go_on("--sweep").exit_code == 0
    assert next_offset(deployed) == 2_608, "behind offset 1607, which was given after the first jump"


def test_rollback_and_a_second_deployment_give_no_offset_twice(deployed: DeployedStage, clock: SteppedClock) -> None:
    """The rollback starts the writers on the harmed tables; the second deployment stops them again."""
    result = go_on()
    append_many(deployed)
    deployed.deploy(restored_tables(result))
    before_ms = clock.now_ms()
    end = go_on("--sweep")
    assert (end.exit_code, "jumps once more" in end.stderr) == (0, True), end.output
    assert clock.now_ms() - before_ms >= 900_000, "functions that ran may still write"
    assert next_offset(deployed) == 2_608


def test_undo_is_refused_while_the_stack_changes(deployed: DeployedStage) -> None:
    go_on()
    deployed.status = "UPDATE_IN_PROGRESS"
    result = run(None, "restore", "--undo", "--yes")
    assert (result.exit_code, "UPDATE_IN_PROGRESS" in result.stderr) == (1, True)
    assert (deployed.states()["penstock-produce"], has_note(deployed)) == (0, True)


@pytest.mark.parametrize("what", ["writers", "undone", "deploying", "job"])
def test_what_happens_while_the_tables_come_back_keeps_the_log_from_jumping(
    deployed: DeployedStage, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Hours pass between the stop and the jump."""
    settle = StageRestore.settle

    def slow(self: StageRestore) -> None:
        settle(self)
        monkeypatch.setattr(StageRestore, "settle", settle)
        match what:
            case "writers":
                writers(225)
            case "undone":
                assert run(None, "restore", "--undo", "--yes").exit_code == 0
            case "deploying":
                deployed.status = "UPDATE_IN_PROGRESS"
            case "job":
                deployed.running = [{"Id": "jr_1", "JobRunState": "RUNNING"}]

    monkeypatch.setattr(StageRestore, "settle", slow)
    told = {
        "writers": "penstock-produce may run again",
        "undone": "another machine has gone on",
        "deploying": "UPDATE_IN_PROGRESS",
        "job": "jr_1",
    }[what]
    result = go_on()
    assert (result.exit_code, told in result.stderr) == (1, True), result.output
    assert has_note(deployed) == (what != "undone")
    restored = replace(storage_of_outputs(deployed.outputs, REGION), log_table=RESTORED["log"])
    assert head_of(aws_instance(restored, StorageCalls()), "orders").jumps == ()
    if what == "writers":
        assert go_on().exit_code == 0
        assert deployed.states()["penstock-produce"] == 0


def test_writer_that_comes_back_during_the_jump_leaves_it_unnoted(
    deployed: DeployedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = RestoredHeads.make

    def slow(self: RestoredHeads, *arguments: Any) -> Any:
        yield from make(self, *arguments)
        monkeypatch.setattr(RestoredHeads, "make", make)
        writers(225)
        append_many(deployed)

    monkeypatch.setattr(RestoredHeads, "make", slow)
    result = go_on()
    assert (result.exit_code, "penstock-produce may run again" in result.stderr) == (1, True)
    deployed.deploy(restored_tables(go_on()))
    assert go_on("--sweep").exit_code == 0
    assert next_offset(deployed) == 2_608


def test_machine_that_slept_until_the_restore_was_over_changes_nothing(deployed: DeployedStage) -> None:
    aws = aws_of(REGION)
    pace = Pace(now_ms=lambda: 10**15, sleep_ms=lambda _: None, tell=lambda _: None)
    result = go_on()
    asleep = open_restore(aws, read_stack(aws, "Penstock"), None, pace, RestoredHeads(REGION))
    deployed.deploy(restored_tables(result))
    assert go_on("--sweep").exit_code == 0
    live = aws_instance(storage_of_outputs(deployed.outputs, REGION), StorageCalls())
    new_topic(live, "made-since")
    before = deployed.states()
    for act in (asleep.jump, asleep.stop, asleep.release, asleep.undo):
        refused(ErrorCode.INVALID_CONFIG, act)
        assert (deployed.states(), has_note(deployed)) == (before, False)
    assert send(live, "made-since", "first").base_offset == 0


def test_contexts_are_those_of_the_command_and_never_those_of_the_note(deployed: DeployedStage) -> None:
    given = go_on("-c", "profile=standard1", "-c", "account_concurrency=1000").stdout
    assert "-c profile=standard1 -c account_concurrency=1000 -c restored_tables=" in given
    forge(deployed, contexts=["super_principals=*"])
    assert "super_principals" not in go_on().stdout


def test_function_that_has_gone_needs_nothing(deployed: DeployedStage) -> None:
    before = deployed.states()
    deployed.deploy(restored_tables(go_on()))
    boto3.client("lambda", region_name=REGION).delete_function(FunctionName="penstock-share")
    result = go_on("--sweep")
    assert result.exit_code == 0, result.output
    produce = boto3.client("lambda", region_name=REGION).get_function_concurrency(FunctionName="penstock-produce")
    assert produce["ReservedConcurrentExecutions"] == before["penstock-produce"]


def forge(deployed: DeployedStage, **fields: Any) -> None:
    """Changes the note, as anybody may who writes the archive bucket."""
    place = {"Bucket": "archive", "Key": NOTE_KEY}
    note = json.loads(deployed.stage.s3.get_object(**place)["Body"].read())
    deployed.stage.s3.put_object(**place, Body=json.dumps(note | fields))


def test_note_that_names_other_tables_is_refused(deployed: DeployedStage) -> None:
    go_on()
    forge(deployed, tables={name: {"harmed": name, "restored": f"evil-{name}"} for name in RESTORED})
    for arguments in (("--undo",), ("--to", TO)):
        result = run(None, "restore", *arguments, "--yes")
        assert (result.exit_code, "evil-log" in result.stderr) == (1, True)
    assert deployed.states()["penstock-produce"] == 0


def test_note_switches_only_what_the_stack_has(deployed: DeployedStage) -> None:
    go_on()
    client = boto3.client("lambda", region_name=REGION)
    switch = {"kind": "function", "label": "penstock-produce", "before": 7, "handler": "produce"}
    forge(deployed, switches=[switch | {"name": "somebody-elses"}, switch | {"name": "penstock-produce"}])
    deployed.calls.clear()
    result = run(None, "restore", "--undo", "--yes")
    assert result.exit_code == 0, result.output
    assert deployed.calls.count("lambda:PutFunctionConcurrency") == 1
    assert client.get_function_concurrency(FunctionName="penstock-produce")["ReservedConcurrentExecutions"] == 7


def test_second_operator_begins_no_second_restore(deployed: DeployedStage) -> None:
    aws = aws_of(REGION)
    stack, pace = read_stack(aws, "Penstock"), Pace(now_ms=lambda: 0, sleep_ms=lambda _: None, tell=lambda _: None)
    first, second = (open_restore(aws, stack, to_s, pace, RestoredHeads(REGION)) for to_s in (1_000, 2_000))
    first.begin()
    error = refused(ErrorCode.INVALID_CONFIG, second.begin)
    assert "another restore" in error.message
    assert open_restore(aws, stack, None, pace, RestoredHeads(REGION)).note.to_s == 1_000
    assert deployed.states()["penstock-produce"] == 225


def test_what_hangs_on_a_table_from_outside_is_left_to_you(deployed: DeployedStage) -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    deployed.stage.dynamodb.put_resource_policy(ResourceArn=deployed.table("groups").table_arn, Policy=policy)
    result = go_on()
    assert result.exit_code == 0, result.output
    assert "left to you: groups has a resource policy" in result.stderr
    assert result.stderr.count("left to you") == 1


def test_deployment_that_still_runs_keeps_the_writers_stopped(deployed: DeployedStage) -> None:
    deployed.deploy(restored_tables(go_on()))
    deployed.status = "UPDATE_ROLLBACK_IN_PROGRESS"
    result = go_on()
    assert (result.exit_code, deployed.status in result.stderr) == (1, True)
    assert deployed.states()["penstock-produce"] == 0


@IS_WHOLE
def test_deployment_of_the_plan_is_one_that_the_app_takes(deployed: DeployedStage) -> None:
    words = shlex.split(go_on("-c", "account_concurrency=1000", "-c", "super_principals=*").stdout.splitlines()[-1])
    contexts = dict(each.split("=", 1) for each in words[words.index("-c") :] if each != "-c")
    settings = settings_of_app(contexts, REGION)
    assert settings.restored_tables is not None
    assert (settings.name, settings.restored_tables.log) == ("penstock", RESTORED["log"])
    assert settings.canary is not None
    assert not settings.canary.is_gradual
    stopped = {name for name, instances in settings.reserved_concurrency.items() if instances == 0}
    assert {f"penstock-{name}" for name in stopped} == {name for name, state in deployed.states().items() if state == 0}
    assert settings.reserved_concurrency["fetch"] > 0, "readers keep theirs"


def test_deployment_without_a_cdk_app_here_is_refused(
    deployed: DeployedStage, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    result = go_on("--deploy")
    assert (result.exit_code, "has no cdk.json" in result.stderr) == (1, True)


@pytest.fixture
def app(deployed: DeployedStage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> App:
    """The app of the working directory. It synthesizes what the stack has, until a test changes that."""
    made = App(deployed)
    (tmp_path / "cdk.json").touch()
    monkeypatch.setattr("penstock.cli.restore.subprocess.run", made.run)
    return made


def test_deployment_runs_the_command_of_the_plan_with_your_contexts(deployed: DeployedStage, app: App) -> None:
    before = deployed.states()
    result = go_on("--deploy", "--sweep", "-c", "account_concurrency=1000")
    assert result.exit_code == 0, result.output
    contexts = ["-c", "stage=prod", "-c", "account_concurrency=1000"]
    *synths, command = app.ran
    assert command[:7] == ["npx", "cdk", "deploy", *contexts]
    assert [each[2:4] + each[-4:] for each in synths] == [["synth", "--quiet", *contexts]] * 2
    check_restored(deployed, before)


@pytest.mark.parametrize("arguments", [(), ("--dry-run",), ("--deploy",)])
def test_app_that_would_change_more_than_the_tables_is_refused_before_anything_stops(
    deployed: DeployedStage, app: App, arguments: Sequence[str]
) -> None:
    before = deployed.states()
    [log] = [name for name in app.template["Resources"] if name.startswith("TablesLog")]
    app.template["Resources"][log]["Properties"]["BillingMode"] = "PROVISIONED"
    app.template["Metadata"]["Penstock"] = "{}"
    result = go_on(*arguments)
    assert result.exit_code == 1
    assert f"Resources.{log}.Properties.BillingMode: PAY_PER_REQUEST -> PROVISIONED" in result.stderr
    assert "Metadata.Penstock: " in result.stderr
    assert (deployed.states(), has_note(deployed), len(app.ran)) == (before, False, 1)


def test_app_is_compared_again_before_it_is_deployed(deployed: DeployedStage, app: App) -> None:
    """The checkout has changed while the tables came back."""
    app.after_synth = lambda: app.template["Outputs"].pop("ApiUrl", None)
    result = go_on("--deploy")
    assert (result.exit_code, "Outputs.ApiUrl would go" in result.stderr) == (1, True), result.output
    assert [each[2] for each in app.ran] == ["synth", "synth"]
    assert deployed.states()["penstock-produce"] == 0


def test_folder_without_an_app_says_that_nothing_has_compared_the_deployment(deployed: DeployedStage) -> None:
    assert "Nothing here has compared this deployment with the stack" in go_on().stdout


def test_app_of_this_folder_needs_no_other_comparison(app: App) -> None:
    assert app.ran == []
    assert "Nothing here has compared" not in go_on().stdout


@IS_WHOLE
def test_policy_of_the_page_has_the_actions_of_a_whole_restore(deployed: DeployedStage) -> None:
    page = (CHECKOUT / "docs" / "how-to" / "restore.md").read_text()
    policy = json.loads(page.split("```json\n")[1].split("```")[0])
    allowed = {action for each in policy["Statement"] for action in each["Action"]}
    before = deployed.states()
    result = go_on()
    stopped = {name for name, state in deployed.states().items() if name.startswith("rule ") and state != before[name]}
    deployed.deploy(restored_tables(result))
    run(None, "restore", "--to", TO, "--dry-run")
    go_on("--sweep")
    assert set(deployed.calls) <= allowed
    of_dynamodb = ("GetItem", "BatchGetItem", "Query", "Scan", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem")
    more = {"iam:PassRole", "s3:ListBucket", *(f"dynamodb:{each}" for each in of_dynamodb)}
    assert allowed - set(deployed.calls) == more, (
        "what AWS asks for behind a call, and the reads and writes of the jump"
    )
    [rules] = [each["Resource"] for each in policy["Statement"] if each["Sid"] == "Rules"]
    named = {f"rule {each.rpartition('/')[2]}" for each in rules}
    assert named == {f"rule penstock-{task.replace('_', '-')}" for task in TASKS}
    assert stopped
    assert stopped <= named


@pytest.mark.parametrize(
    "arguments",
    [
        ("--to", TO, "--undo"),
        ("--to", TO, "--log-table", "log"),
        ("--undo", "--deploy"),
        ("--sweep",),
        ("--stack", "Penstock"),
        ("--to", "soon"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: Sequence[str]) -> None:
    assert run(None, "restore", *arguments).exit_code == 2
