"""The search for the storage: options before the environment, before the stack's outputs; else the local stack."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.stack_outputs import storage_variables
from penstock_service.adapters.aws import Storage, ZoneBucket
from penstock_spark.storage import find_storage, open_instance

ENVIRON = {
    "PENSTOCK_TOPICS_TABLE": "topics",
    "PENSTOCK_LOG_TABLE": "log",
    "PENSTOCK_GROUPS_TABLE": "groups",
    "PENSTOCK_REPAIR_QUEUE_URL": "http://queue",
    "PENSTOCK_ZONES": "a=bucket-a,b=bucket-b",
    "PENSTOCK_ARCHIVE": "archive",
}
OUTPUTS = {
    "TopicsTable": "topics",
    "LogTable": "log",
    "GroupsTable": "groups",
    "RepairQueueUrl": "http://queue",
    "ZoneBuckets": "a=bucket-a,b=bucket-b",
    "ArchiveBucket": "archive",
}
STORAGE = Storage(
    topics_table="topics",
    log_table="log",
    groups_table="groups",
    repair_queue_url="http://queue",
    zones=(ZoneBucket(name="a", bucket="bucket-a"), ZoneBucket(name="b", bucket="bucket-b")),
    archive="archive",
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a local stack."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_local_stack(folder: Path) -> None:
    lines = ENVIRON | {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:4566",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "hidden",
    }
    (folder / ".penstock").mkdir(mode=0o700)
    path = folder / ".penstock" / "jobs.env"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    path.chmod(0o600)


def stub_outputs(monkeypatch: pytest.MonkeyPatch, stack: str, outputs: dict[str, str]) -> Stubber:
    """boto3.client answers one DescribeStacks for that stack."""
    client = boto3.client("cloudformation", region_name="us-east-1")
    stubber = Stubber(client)
    found: dict[str, Any] = {"StackName": stack, "CreationTime": 0, "StackStatus": "CREATE_COMPLETE"}
    found["Outputs"] = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    stubber.add_response("describe_stacks", {"Stacks": [found]}, {"StackName": stack})
    monkeypatch.setattr(boto3, "client", lambda service, **_: {"cloudformation": client}[service])
    stubber.activate()
    return stubber


def test_environment_names_the_storage() -> None:
    assert find_storage(environ=ENVIRON) == STORAGE


def test_options_go_before_the_environment_in_any_case() -> None:
    found = find_storage({"LOGTABLE": "other", "endpointurl": "http://here", "topic": "orders"}, environ=ENVIRON)
    assert (found.log_table, found.topics_table, found.endpoint_url) == ("other", "topics", "http://here")


def test_local_stack_is_found_from_below_with_its_keys_when_nothing_is_given(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_local_stack(elsewhere)
    (elsewhere / "below").mkdir()
    monkeypatch.chdir(elsewhere / "below")
    found = find_storage(environ={"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "mine"})
    assert (found.zones, found.region, found.access_key) == (STORAGE.zones, "us-east-1", "test")
    assert "hidden" not in repr(found)


def test_local_stack_is_not_looked_at_when_anything_is_given(elsewhere: Path) -> None:
    write_local_stack(elsewhere)
    assert find_storage(environ=ENVIRON).endpoint_url is None


def test_outputs_of_the_stack_fill_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    stubber = stub_outputs(monkeypatch, "Penstock", OUTPUTS)
    found = find_storage({"stack": "Penstock"}, environ={"PENSTOCK_LOG_TABLE": "other"})
    assert (found.log_table, found.zones) == ("other", STORAGE.zones)
    stubber.assert_no_pending_responses()


def test_outputs_have_the_environment_s_names() -> None:
    assert storage_variables(OUTPUTS | {"ApiUrl": "https://api"}) == ENVIRON


@pytest.mark.parametrize("given", [{}, {"PENSTOCK_TOPICS_TABLE": "topics"}])
def test_error_names_the_options_and_the_ways_out_when_they_are_missing(given: dict[str, str]) -> None:
    with pytest.raises(PenstockError, match=r"logTable.*PENSTOCK_LOG_TABLE.*penstock local up") as caught:
        find_storage(environ=given)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_zones_are_refused_when_they_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PenstockError, match="'bucket-b' in 'a=bucket-a,bucket-b' is no zone"):
        find_storage(environ=ENVIRON | {"PENSTOCK_ZONES": "a=bucket-a,bucket-b"})


def test_storage_goes_to_other_processes_and_a_process_opens_one_instance_on_it() -> None:
    storage = find_storage({"region": "us-east-1"}, environ=ENVIRON)
    sent = pickle.loads(pickle.dumps(storage))
    assert sent == storage
    assert open_instance(sent) is open_instance(storage)
    assert open_instance(storage).stores.zone_names == ("a", "b")


@pytest.mark.parametrize(("catalog", "found"), [("glue:penstock", "glue:penstock"), ("none", None)])
def test_results_and_catalog_may_be_given_too(catalog: str, found: str | None) -> None:
    storage = find_storage({"catalog": catalog}, environ=ENVIRON | {"PENSTOCK_RESULTS": "results"})

    assert storage == replace(STORAGE, results="results", catalog=found)


def test_secret_of_a_registry_may_be_given_too() -> None:
    assert find_storage({"registrySecret": "shop/registry"}, environ=ENVIRON) == replace(
        STORAGE, registry_secret="shop/registry"
    )
    assert find_storage({}, environ=ENVIRON | {"PENSTOCK_REGISTRY_SECRET": "r"}).registry_secret == "r"


def test_a_job_on_the_local_stack_may_be_given_a_catalog(elsewhere: Path) -> None:
    write_local_stack(elsewhere)

    storage = find_storage({"catalog": "glue:own"}, environ={"PENSTOCK_RESULTS": "a bucket of AWS"})

    assert (storage.catalog, storage.results) == ("glue:own", None)
