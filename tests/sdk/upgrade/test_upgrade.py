"""`penstock upgrade`: what a deployment would change, whether it may be made, and the removal of old versions."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import Result

from localstack.places import CHECKOUT
from penstock_core.log.inline import BOUNDS_OF_PROFILES
from penstock_core.release import METADATA_KEY, own_facts, parse_facts
from penstock_core.version import VERSION
from tests.sdk.cli.command import run
from tests.support.deployed_stage import REGION, DeployedStage, deployed_stage, write_assembly

pytestmark = [pytest.mark.slow, pytest.mark.synth]

PRODUCE, GROUPS = "penstock-produce", "penstock-groups"


@pytest.fixture
def deployed(template: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeployedStage]:
    """A stage of this release, and a working directory without an app."""
    for name, value in {
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with deployed_stage(template) as deployed:
        monkeypatch.setattr("penstock.deployed.aws.client", deployed.client)
        yield deployed


@pytest.fixture
def synthesizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, Any]], list[list[str]]]:
    """Lets the app of the working directory synthesize a template. Gives the commands that asked for it."""

    def give(template: dict[str, Any]) -> list[list[str]]:
        ran: list[list[str]] = []

        def synth(command: list[str], **_: Any) -> Any:
            ran.append(command)
            write_assembly(command, template)
            return type("Done", (), {"returncode": 0})

        (tmp_path / "cdk.json").touch()
        monkeypatch.setattr("penstock.deployed.synthesis.subprocess.run", synth)
        return ran

    return give


def check(*arguments: str, may_deploy: bool = True) -> dict[str, dict[str, str]]:
    """The findings by check."""
    result = run(None, "upgrade", "--check", "--json", *arguments)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["may_deploy"]) == (0 if may_deploy else 1, may_deploy), result.output
    return {each["check"]: each for each in document["findings"]}


def tell_release(deployed: DeployedStage, **changes: Any) -> None:
    """Lets the stack tell another release."""
    deployed.template["Metadata"][METADATA_KEY] = json.dumps(own_facts().to_json() | changes)


def publish(function: str, count: int) -> None:
    """Publishes versions of a function."""
    client = boto3.client("lambda", region_name=REGION)
    for number in range(count):
        client.update_function_configuration(FunctionName=function, Description=f"release {number}")
        client.publish_version(FunctionName=function, Description=f"release {number}")


def versions(function: str) -> list[str]:
    listed = boto3.client("lambda", region_name=REGION).list_versions_by_function(FunctionName=function)["Versions"]
    return [each["Version"] for each in listed if each["Version"] != "$LATEST"]


def clean(*arguments: str) -> Result:
    result = run(None, "upgrade", "--clean", "--yes", *arguments)
    assert result.exit_code == 0, result.output
    return result


def test_same_release_may_be_deployed_and_says_what_a_package_does_not_know(deployed: DeployedStage) -> None:
    facts = parse_facts(json.loads(deployed.template["Metadata"][METADATA_KEY]))
    assert facts == own_facts(BOUNDS_OF_PROFILES["standard1"])
    found = check()
    assert found["release"]["fact"] == f"{VERSION} -> {VERSION}: no release between them"
    assert found["formats"]["fact"].startswith("all ")
    assert found["settings"]["fact"] == "none new, none gone"
    assert (found["resources"]["verdict"], "no cdk.json" in found["resources"]["fact"]) == ("unknown", True)
    text = run(None, "upgrade", "--check")
    assert (text.exit_code, text.stdout.splitlines()[-1]) == (0, "may be deployed")
    assert all(len(line) <= 80 for line in text.stdout.splitlines())


def test_skipped_release_is_refused_with_those_between(
    deployed: DeployedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_core.release.VERSION", "0.4.0")
    monkeypatch.setattr("penstock.upgrade.check.RELEASES", ("0.1.0", "0.2.0", "0.3.0", "0.4.0"))
    found = check(may_deploy=False)
    assert found["release"]["remedy"] == "the stage runs 0.1.0: deploy 0.2.0, then 0.3.0 before 0.4.0"
    tell_release(deployed, release="9.0.0")
    assert "9.0.0, which 0.4.0 does not know" in check(may_deploy=False)["release"]["remedy"]


def test_stack_that_tells_no_release_takes_the_first_one_only(
    deployed: DeployedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    del deployed.template["Metadata"][METADATA_KEY]
    assert check()["release"]["verdict"] == "unknown"
    monkeypatch.setattr("penstock_core.release.VERSION", "0.2.0")
    assert check(may_deploy=False)["release"]["remedy"] == "deploy 0.1.0 first"


@pytest.mark.parametrize(
    ("kind", "version", "read"), [("topic", 2, [1, 3]), ("topic", 3, [1, 2]), ("head", 2, [1]), ("share_group", 2, [1])]
)
def test_way_back_to_a_release_that_does_not_read_what_users_may_have_asked_for_is_refused(
    deployed: DeployedStage,
    synthesizes: Callable[[dict[str, Any]], list[list[str]]],
    kind: str,
    version: int,
    read: list[int],
) -> None:
    older = copy.deepcopy(deployed.template)
    facts = own_facts().to_json()
    older["Metadata"][METADATA_KEY] = json.dumps(facts | {"formats": facts["formats"] | {kind: [[1], read]}})
    synthesizes(older)
    assert f"writes {kind} of format {version}, which" in check(may_deploy=False)["formats"]["fact"]


@pytest.mark.parametrize(
    ("told", "writer"),
    [([[9], [1, 9]], "0.1.0 writes head of format 9"), ([[1], [9]], "0.1.0 writes head of format 1")],
)
def test_format_that_one_of_both_does_not_read_is_refused(
    deployed: DeployedStage, told: list[list[int]], writer: str
) -> None:
    tell_release(deployed, formats=own_facts().to_json()["formats"] | {"head": told})
    assert writer in check(may_deploy=False)["formats"]["fact"]


def test_stage_whose_release_reads_no_item_with_a_ttl_takes_it_in_two_steps(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    new = copy.deepcopy(deployed.template)
    new["Metadata"][METADATA_KEY] = json.dumps(own_facts(BOUNDS_OF_PROFILES["express3"]).to_json())
    synthesizes(new)
    formats = own_facts().to_json()["formats"] | {"ref": [[1, 2, 3], [1, 2, 3, 4, 5, 8]]}
    tell_release(deployed, formats=formats)
    found = check(may_deploy=False)["formats"]
    assert "writes ref of format 6, which 0.1.0 does not read" in found["fact"]
    assert found["remedy"].startswith("deploy with -c inline_bytes_max=0, and change that once")
    new["Metadata"][METADATA_KEY] = json.dumps(own_facts().to_json())  # as with inline_bytes_max=0
    assert check()["formats"]["verdict"] == "ok"


def test_format_that_both_read_is_told(deployed: DeployedStage) -> None:
    formats = own_facts().to_json()["formats"]
    tell_release(deployed, formats=formats | {"ref": [[1], [1, 2, 3, 4, 5, 6, 7, 8]], "late": [[1], [1]]})
    found = check()["formats"]
    assert (found["fact"], found["remedy"]) == ("late: gone; ref: writes 1 -> 8", "")


def test_format_that_is_written_on_demand_comes_after_the_upgrade_and_bars_the_way_back(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    new = copy.deepcopy(deployed.template)
    facts = own_facts().to_json()
    new["Metadata"][METADATA_KEY] = json.dumps(facts)
    synthesizes(new)
    tell_release(deployed, formats=facts["formats"] | {"share_group": [[1], [1]]})
    assert check()["formats"]["remedy"].startswith("move no topic, and set no retention=acknowledged, topic_order")
    new["Metadata"][METADATA_KEY] = json.dumps(facts | {"formats": facts["formats"] | {"share_group": [[1], [1]]}})
    tell_release(deployed, formats=facts["formats"])
    assert "writes share_group of format 2, which" in check(may_deploy=False)["formats"]["fact"]


def test_moved_routes_tell_what_direct_clients_must_do(deployed: DeployedStage) -> None:
    functions = own_facts().to_json()["functions"]
    moved = functions.pop("admin")
    tell_release(deployed, functions=functions | {"topics": moved})
    settings = json.loads(deployed.template["Metadata"]["Penstock"])
    assert "transport='http'" in check()["functions"]["remedy"]  # in clients of `lambda`
    deployed.template["Metadata"]["Penstock"] = json.dumps(settings | {"direct": False})
    assert check()["functions"] | {"check": ""} == {
        "check": "",
        "verdict": "ok",
        "fact": f"{len(moved)} routes of topics go to admin",
        "remedy": "",
    }


def test_direct_calls_that_are_turned_on_are_told_with_what_to_do(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    new = copy.deepcopy(deployed.template)
    assert check()["direct calls"]["fact"] == "as before"
    del deployed.template["Outputs"]["FunctionsArn"]
    told = check()["direct calls"]  # without an app: by the default of the package
    assert "turned on" in told["fact"]
    assert "lambda:InvokeFunction" in told["remedy"]
    synthesizes(new)
    assert check()["direct calls"] == told
    synthesizes(copy.deepcopy(deployed.template))
    assert check()["direct calls"] == {"check": "direct calls", "verdict": "ok", "fact": "as before", "remedy": ""}
    page = (CHECKOUT / "docs/how-to/upgrade.md").read_text(encoding="utf-8")
    anchor = told["remedy"].rpartition("#")[2].rstrip(")")
    assert f"## {anchor.replace('-', ' ').capitalize()}\n" in page


def test_settings_that_are_new_or_gone_are_told(deployed: DeployedStage) -> None:
    settings = json.loads(deployed.template["Metadata"]["Penstock"])
    settings["colour"] = settings.pop("direct")
    deployed.template["Metadata"]["Penstock"] = json.dumps(settings)
    assert check()["settings"]["fact"] == "new: direct; gone: colour"


def test_app_of_the_folder_tells_removed_and_replaced_resources(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    new = copy.deepcopy(deployed.template)
    deployed.create_only = ["/properties/FunctionName", "/properties/LogGroupName"]
    function = next(name for name, each in new["Resources"].items() if each["Type"] == "AWS::Lambda::Function")
    group = next(name for name, each in new["Resources"].items() if each["Type"] == "AWS::Logs::LogGroup")
    new["Resources"][function]["Properties"]["MemorySize"] = 2_048
    del new["Resources"][group]
    ran = synthesizes(new)
    found = check("-c", "account_concurrency=1000")
    assert found["resources"]["fact"] == f"AWS::Logs::LogGroup {group} is removed"
    assert "logs" in found["resources"]["remedy"]
    assert ran[0][-4:] == ["-c", "stage=prod", "-c", "account_concurrency=1000"]
    new["Resources"][function]["Properties"]["FunctionName"] = "other"
    synthesizes(new)
    assert f"{function} is made anew (FunctionName)" in check()["resources"]["fact"]


def test_type_that_aws_does_not_tell_is_unknown_and_a_lost_table_is_refused_all_the_same(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    new = copy.deepcopy(deployed.template)
    deployed.denied = {"cloudformation:DescribeType"}
    resources = deployed.template["Resources"]
    function = next(name for name, each in resources.items() if each["Type"] == "AWS::Lambda::Function")
    table = next(name for name, each in resources.items() if each["Type"] == "AWS::DynamoDB::Table")
    new["Resources"][function]["Properties"]["MemorySize"] = 2_048
    synthesizes(new)
    assert "AWS::Lambda::Function" in check()["made anew"]["fact"]
    new["Resources"][table]["Properties"]["TableName"] = "other"
    synthesizes(new)
    assert "AWS::DynamoDB::Table" in check(may_deploy=False)["made anew"]["fact"]
    del new["Resources"][table]
    synthesizes(new)
    assert f"{table} is removed" in check(may_deploy=False)["records"]["fact"]


@pytest.mark.parametrize("how", ["removed", "made anew"])
def test_deployment_that_loses_a_table_is_refused(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]], how: str
) -> None:
    new = copy.deepcopy(deployed.template)
    deployed.create_only = ["/properties/TableName"]
    table = next(name for name, each in new["Resources"].items() if each["Type"] == "AWS::DynamoDB::Table")
    if how == "removed":
        del new["Resources"][table]
    else:
        new["Resources"][table]["Properties"]["TableName"] = "other"
    synthesizes(new)
    assert f"{table} is {how}" in check(may_deploy=False)["records"]["fact"]


def test_deployment_that_forgets_the_restored_tables_is_refused(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    synthesizes(copy.deepcopy(deployed.template))
    settings = json.loads(deployed.template["Metadata"]["Penstock"])
    deployed.template["Metadata"]["Penstock"] = json.dumps(settings | {"restored_tables": True})
    assert "empty" in check(may_deploy=False)["restored tables"]["fact"]


def test_check_that_aws_throttles_ends_with_an_error_and_not_with_a_yes(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    new = copy.deepcopy(deployed.template)
    table = next(name for name, each in new["Resources"].items() if each["Type"] == "AWS::DynamoDB::Table")
    new["Resources"][table]["Properties"]["TableName"] = "other"
    synthesizes(new)
    deployed.busy = {"cloudformation:DescribeType": ["Throttling"] * 9}
    result = run(None, "upgrade", "--check")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Throttling" in result.stderr


def test_deployment_onto_other_restored_tables_is_refused(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    tell_settings(deployed.template, restored_tables=True)
    resources = deployed.template["Resources"]
    deployed.template["Resources"] = {k: v for k, v in resources.items() if v["Type"] != "AWS::DynamoDB::Table"}
    deployed.template["Outputs"]["LogTable"] = {"Value": "log-restored-2"}
    new = copy.deepcopy(deployed.template)
    synthesizes(new)
    assert "tables" not in check()
    new["Outputs"]["LogTable"] = {"Value": "log-restored-1"}
    synthesizes(new)
    found = check(may_deploy=False)["tables"]
    assert found["fact"] == "the stage would use other tables: LogTable: log-restored-2 -> log-restored-1"


def tell_settings(template: dict[str, Any], **changes: Any) -> None:
    """Changes the settings that a template tells."""
    template["Metadata"]["Penstock"] = json.dumps(json.loads(template["Metadata"]["Penstock"]) | changes)


def encrypt(template: dict[str, Any], kind: str, path: tuple[str, ...], key: str) -> None:
    """Gives each resource of a type a key."""
    for each in template["Resources"].values():
        if each["Type"] == kind:
            place = each["Properties"]
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = key


KEY = "arn:aws:kms:us-east-1:123456789012:key/one"
OF_TABLES = ("AWS::DynamoDB::Table", ("SSESpecification", "KMSMasterKeyId"))
OF_ZONES = ("AWS::S3Express::DirectoryBucket", ("BucketEncryption", "KMSMasterKeyID"))


def test_deployment_that_forgets_the_key_is_refused(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    synthesizes(copy.deepcopy(deployed.template))
    encrypt(deployed.template, *OF_TABLES, KEY)
    tell_settings(deployed.template, kms_key=True)
    found = check(may_deploy=False)
    assert found["key"]["fact"] == f"3 resources: {KEY} -> none"
    assert "-c kms_key=" in found["key"]["remedy"]
    assert (found["settings"]["fact"], found["settings"]["remedy"]) == ("none new, none gone", "")


def test_other_key_is_told_and_refused_where_a_directory_bucket_has_one(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    deployed.template["Resources"]["ZoneA"] = {"Type": OF_ZONES[0], "Properties": {}}
    new = copy.deepcopy(deployed.template)
    encrypt(new, *OF_TABLES, KEY)
    encrypt(new, *OF_ZONES, KEY)
    synthesizes(new)
    assert check()["key"]["fact"] == f"4 resources: none -> {KEY}", "a stage without a key may take one"
    encrypt(deployed.template, *OF_TABLES, "arn:other")
    synthesizes(new)
    found = check()["key"]
    assert (f"arn:other -> {KEY}" in found["fact"], "keep the key of before" in found["remedy"]) == (True, True)
    encrypt(deployed.template, *OF_ZONES, "arn:other")
    assert "one key for its life" in check(may_deploy=False)["key"]["remedy"]


def test_app_that_tells_no_release_is_not_taken_for_this_package(
    deployed: DeployedStage, synthesizes: Callable[[dict[str, Any]], list[list[str]]]
) -> None:
    new = copy.deepcopy(deployed.template)
    del new["Metadata"][METADATA_KEY]
    synthesizes(new)
    assert "before 0.1.0" in check(may_deploy=False)["release"]["fact"]
    del deployed.template["Metadata"][METADATA_KEY]
    assert check()["release"]["verdict"] == "unknown"


def test_alarm_that_would_stop_the_canary_is_refused_and_another_is_told(deployed: DeployedStage) -> None:
    alarms = [name for name, each in deployed.template["Resources"].items() if each["Type"] == "AWS::CloudWatch::Alarm"]
    deployed.physical |= {name: name for name in alarms}
    stopping = json.dumps(
        [each for each in deployed.template["Resources"].values() if "DeploymentGroup" in each["Type"]]
    )
    stops = next(name for name in alarms if name in stopping)
    deployed.ringing = [next(name for name in alarms if name not in stopping)]
    assert "stops no deployment" in check()["alarms"]["fact"]
    deployed.ringing = [stops]
    assert "-c canary=off" in check(may_deploy=False)["alarms"]["remedy"]


@pytest.mark.parametrize(
    "status", ["UPDATE_ROLLBACK_FAILED", "ROLLBACK_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"]
)
def test_stack_that_takes_no_deployment_is_refused(deployed: DeployedStage, status: str) -> None:
    deployed.status = status
    assert check(may_deploy=False)["stack"]["verdict"] == "mend"
    result = run(None, "upgrade", "--clean", "--yes")
    assert (result.exit_code, status in result.stderr) == (1, True)


def test_storage_tells_what_clean_would_free_and_refuses_a_release_without_room(deployed: DeployedStage) -> None:
    publish(PRODUCE, 5)
    assert "--clean removes 2 of them" in check()["code storage"]["remedy"]
    deployed.code_bytes_max = 10_000_000_001
    assert check(may_deploy=False)["code storage"]["verdict"] == "mend"


def test_stage_without_versions_says_so(deployed: DeployedStage) -> None:
    assert "has no versions" in check()["code storage"]["fact"]
    assert clean().stdout == "removed: 0 of 0 versions, 0 MB\n"


def test_check_that_is_denied_names_the_action_and_is_unknown(deployed: DeployedStage) -> None:
    deployed.denied = {"cloudwatch:DescribeAlarms"}
    found = check()["alarms"]
    assert (found["verdict"], "cloudwatch:DescribeAlarms" in found["remedy"]) == ("unknown", True)


def test_clean_keeps_the_newest_and_what_an_alias_names_with_the_one_before(deployed: DeployedStage) -> None:
    client = boto3.client("lambda", region_name=REGION)
    publish(PRODUCE, 9)
    publish(GROUPS, 2)
    client.create_alias(FunctionName=PRODUCE, Name="live", FunctionVersion="4")
    weights = {"AdditionalVersionWeights": {"1": 0.1}}
    client.create_alias(FunctionName=PRODUCE, Name="direct-produce", FunctionVersion="6", RoutingConfig=weights)
    shown = json.loads(clean("--dry-run", "--json").stdout)
    assert [(each["function"], each["version"]) for each in shown["removed"]] == [(PRODUCE, 2)]
    assert len(versions(PRODUCE)) == 9
    assert "removed penstock-produce:2" in clean("--keep", "2").stderr
    assert versions(PRODUCE) == ["1", "3", "4", "5", "6", "8", "9"]
    assert versions(GROUPS) == ["1", "2"]
    assert client.get_function(FunctionName=PRODUCE)["Configuration"]["FunctionName"] == PRODUCE
    assert "0 of" in clean("--keep", "2").stdout, "a repeat finds nothing"


def test_clean_asks_first_and_a_denied_removal_is_named(deployed: DeployedStage) -> None:
    publish(PRODUCE, 5)
    assert run(None, "upgrade", "--clean", stdin=b"n\n").exit_code == 1
    deployed.denied = {"lambda:DeleteFunction"}
    result = run(None, "upgrade", "--clean", "--yes")
    assert (result.exit_code, "lambda:DeleteFunction on penstock-produce:1" in result.stderr) == (1, True)
    assert len(versions(PRODUCE)) == 5


@pytest.mark.parametrize(
    "arguments",
    [(), ("--check", "--clean"), ("--clean", "-c", "stage=prod"), ("--check", "--dry-run"), ("--clean", "--keep", "0")],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(None, "upgrade", *arguments).exit_code == 2
