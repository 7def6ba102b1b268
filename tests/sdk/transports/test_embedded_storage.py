from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from penstock import Admin
from penstock.errors import NotConfiguredError
from penstock.transports.embedded_storage import find_embedded_stage
from penstock_core.log.inline import NO_ITEMS, InlineBounds
from penstock_core.stack_outputs import STORAGE_OUTPUTS

STORAGE = {
    "PENSTOCK_TOPICS_TABLE": "topics",
    "PENSTOCK_LOG_TABLE": "log",
    "PENSTOCK_GROUPS_TABLE": "groups",
    "PENSTOCK_ZONES": "a=zone-a",
    "PENSTOCK_ARCHIVE": "archive",
    "PENSTOCK_WAKE_UPS": "events.host,realtime.host",
    "AWS_REGION": "eu-west-1",
}
VARIABLES = {**STORAGE, "PENSTOCK_ACL_DEFAULT": "allow"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_storage_is_that_of_the_functions_variables() -> None:
    found = find_embedded_stage(environ=VARIABLES).storage
    assert (found.log_table, found.archive, found.region) == ("log", "archive", "eu-west-1")
    assert found.wake_ups == ("events.host", "realtime.host")
    assert [zone.bucket for zone in found.zones] == ["zone-a"]
    assert found.small == NO_ITEMS


def test_program_that_embeds_the_service_puts_inline_what_the_stage_puts_inline() -> None:
    found = find_embedded_stage(environ={**VARIABLES, "PENSTOCK_INLINE_BYTES_MAX": "960"})
    assert found.storage.small == InlineBounds(swept_bytes=960)
    with pytest.raises(NotConfiguredError, match="give 0 to 5120 bytes"):
        find_embedded_stage(environ={**VARIABLES, "PENSTOCK_INLINE_BYTES_MAX": "5121"})


def test_argument_tells_the_region_when_the_environment_has_another() -> None:
    assert find_embedded_stage("us-east-2", environ=VARIABLES).storage.region == "us-east-2"


def test_missing_variable_is_named_when_others_are_there() -> None:
    without = {name: value for name, value in VARIABLES.items() if name != "PENSTOCK_ARCHIVE"}
    with pytest.raises(NotConfiguredError, match="the environment names no PENSTOCK_ARCHIVE"):
        find_embedded_stage(environ=without)


def test_wrong_variable_is_refused_with_its_value() -> None:
    with pytest.raises(NotConfiguredError, match="'zone-a' in 'zone-a' is no zone"):
        find_embedded_stage(environ={**VARIABLES, "PENSTOCK_ZONES": "zone-a"})


def test_storage_and_keys_are_those_of_the_local_stack_when_the_environment_has_none(folder: Path) -> None:
    (folder / ".penstock").mkdir(mode=0o700)
    path = folder / ".penstock" / "jobs.env"
    own = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    path.write_text("".join(f"{name}={value}\n" for name, value in {**VARIABLES, **own}.items()))
    path.chmod(0o600)
    found = find_embedded_stage(environ={"AWS_ENDPOINT_URL": "https://elsewhere"}).storage
    assert (found.endpoint_url, found.access_key, found.secret_key) == ("http://127.0.0.1:9", "k", "s")


def test_ways_out_are_named_when_there_is_no_storage() -> None:
    with pytest.raises(NotConfiguredError, match="set PENSTOCK_STACK to the deployed stack"):
        find_embedded_stage(environ={})


def _stack_answers(monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    """CloudFormation tells the outputs of a stack with this storage."""
    outputs = {STORAGE_OUTPUTS[name]: value for name, value in STORAGE.items() if name in STORAGE_OUTPUTS} | more
    described = [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()]

    class CloudFormation:
        def describe_stacks(self, **names: str) -> dict[str, Any]:
            assert names == {"StackName": "Queue"}
            return {"Stacks": [{"Outputs": described}]}

    monkeypatch.setattr(boto3, "client", lambda *names, **options: CloudFormation())


def test_stack_that_denies_by_default_denies_in_the_program_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _stack_answers(monkeypatch, AclDefault="deny", SuperPrincipals='["arn:aws:iam::1:role/ops"]')
    found = find_embedded_stage(environ={"PENSTOCK_STACK": "Queue"})
    assert not found.acls.allows_by_default
    assert [str(each) for each in found.acls.super_principals] == ["arn:aws:iam::1:role/ops"]


def test_environment_goes_before_the_stack_where_no_rule_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    _stack_answers(monkeypatch, AclDefault="allow")
    assert find_embedded_stage(environ={"PENSTOCK_STACK": "Queue"}).acls.allows_by_default
    assert not find_embedded_stage(
        environ={"PENSTOCK_STACK": "Queue", "PENSTOCK_ACL_DEFAULT": "deny"}
    ).acls.allows_by_default


@pytest.mark.parametrize("source", [STORAGE, {"PENSTOCK_STACK": "Queue"}])
def test_stage_whose_default_is_not_known_is_not_open(
    monkeypatch: pytest.MonkeyPatch, source: Mapping[str, str]
) -> None:
    _stack_answers(monkeypatch)
    with pytest.raises(NotConfiguredError, match="PENSTOCK_ACL_DEFAULT=None: must be allow or deny"):
        find_embedded_stage(environ=source)


def test_wrong_default_is_refused_when_the_transport_is_opened() -> None:
    with pytest.raises(NotConfiguredError, match="PENSTOCK_ACL_DEFAULT='Deny': must be allow or deny"):
        find_embedded_stage(environ={**VARIABLES, "PENSTOCK_ACL_DEFAULT": "Deny"})


def test_call_without_a_region_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name: value for name, value in VARIABLES.items() if name != "AWS_REGION"}
    for name, value in {**names, "AWS_CONFIG_FILE": "none", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NotConfiguredError, match="Set AWS_REGION"):
        Admin(transport="embedded").list_topics()
