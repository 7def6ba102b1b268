"""The sources of `replicate`, its retries, and its dead letters."""

import json
from typing import Any

import pytest

from penstock_cdk.settings import STAGES
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.log.index import EMPTY_HEAD, Page
from penstock_core.storage.head_item import head_item
from penstock_core.storage.item import number
from penstock_core.storage.page_item import page_item
from tests.infra.conftest import Resources, entry_of
from tests.infra.stream_filter import matches
from tests.infra.templates import name_of, of_type
from tests.support.refs import ref_at

pytestmark = pytest.mark.synth

KEY = PartitionKey(TopicId("t1"), Partition(0))


@pytest.fixture
def mappings(zoned_resources: Resources) -> dict[str, dict[str, Any]]:
    """The event source mappings by the queue or stream that they read, without that of `dispatch` (test_push.py)."""
    found = of_type(zoned_resources, "AWS::Lambda::EventSourceMapping").items()
    return {name_of(mapping["EventSourceArn"]): mapping for name, mapping in found if not name.startswith("Push")}


def test_replicate_is_woken_by_the_logs_stream_and_the_repair_queue_and_promote_by_its_own(
    mappings: dict[str, Any], zoned_stage: str
) -> None:
    entry = entry_of(zoned_stage, "Replicate")
    named = entry if STAGES[zoned_stage].canary is None else f"{entry}[:6]:live"  # name and alias, from the ARN
    assert {source: name_of(mapping["FunctionName"]) for source, mapping in mappings.items()} == {
        "<TablesLog.StreamArn>": named,
        "<RepairQueuesRepairs>": named,
        "<TimersSeconds>": named.replace(entry, entry_of(zoned_stage, "Promote")),
    }
    assert all(mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for mapping in mappings.values())


def test_batch_of_the_stream_is_retried_in_halves_and_becomes_a_dead_letter_when_all_attempts_fail(
    mappings: dict[str, Any],
) -> None:
    stream = mappings["<TablesLog.StreamArn>"]
    assert stream["BisectBatchOnFunctionError"] is True
    assert stream["MaximumRetryAttempts"] == 5
    assert stream["MaximumRecordAgeInSeconds"] == 3600
    assert stream["MaximumBatchingWindowInSeconds"] == 10
    assert stream["StartingPosition"] == "TRIM_HORIZON"
    assert name_of(stream["DestinationConfig"]["OnFailure"]["Destination"]) == "<PushDead>"


def test_only_heads_with_an_unconfirmed_zone_pass_the_filter(mappings: dict[str, Any]) -> None:
    [criteria] = mappings["<TablesLog.StreamArn>"]["FilterCriteria"]["Filters"]
    pattern = json.loads(criteria["Pattern"])
    ref = ref_at(1, zones=0b011)
    head = head_item(KEY, EMPTY_HEAD)
    page = page_item(KEY, Page(base_offset=Offset(0), refs=(ref,), max_timestamp_ms=1))
    assert not matches(pattern, {"dynamodb": {"NewImage": head}})
    assert not matches(pattern, {"dynamodb": {"NewImage": page}})
    assert not matches(pattern, {"dynamodb": {"OldImage": head}})
    owing = head | {"under_replicated": number(4)}
    assert not matches(pattern, {"dynamodb": {"OldImage": owing, "NewImage": head}}), "arming clears the debt"
    for zones in range(1, 8):
        assert matches(pattern, {"dynamodb": {"NewImage": head | {"under_replicated": number(zones)}}})


def test_queues_keep_what_fails_for_two_weeks_encrypted(zoned_resources: Resources) -> None:
    found = of_type(zoned_resources, "AWS::SQS::Queue")
    queues = {name: queue for name, queue in found.items() if name.startswith("RepairQueues")}
    assert set(queues) == {"RepairQueuesRepairs"}
    for queue in queues.values():
        assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600
        assert queue["SqsManagedSseEnabled"] is True
    redrive = queues["RepairQueuesRepairs"]["RedrivePolicy"]
    assert (name_of(redrive["deadLetterTargetArn"]), redrive["maxReceiveCount"]) == ("<TimersDead>", 50)


def test_repair_is_retried_only_after_the_timeout_of_the_function(zoned_resources: Resources, zoned_stage: str) -> None:
    visible_s = of_type(zoned_resources, "AWS::SQS::Queue")["RepairQueuesRepairs"]["VisibilityTimeout"]
    timeout_s = STAGES[zoned_stage].function_sizes["replicate"].timeout_s
    assert visible_s == STAGES[zoned_stage].repair_retry_s >= timeout_s
    assert zoned_stage == "local" or visible_s >= 6 * timeout_s
