"""The alarms on lost segments and on zones that stay behind watch metrics that the functions emit."""

from typing import Any

import pytest

from penstock_cdk.alarms.zone_alarms import ZoneAlarms
from penstock_cdk.settings import STAGES
from penstock_core.log.repair import NamedRef, encode_message, repairs_due
from penstock_core.zones.zone_state import Acks, ZoneStatus
from penstock_handlers.replicate import serve
from penstock_handlers.upkeep import run_recover_zones
from penstock_service.segments.move_zone import move_zone_by_operator
from tests.infra.conftest import Resources
from tests.infra.templates import functions_in, of_type
from tests.support.service import key_of, new_topic, patient_instance, refs_of, send, zone_of

pytestmark = pytest.mark.synth


def zone_alarms(resources: Resources) -> dict[str, dict[str, Any]]:
    found = of_type(resources, "AWS::CloudWatch::Alarm").items()
    return {alarm["AlarmName"]: alarm for name, alarm in found if name.startswith(ZoneAlarms.__name__)}


def test_alarm_rings_at_once_when_a_segment_is_lost_and_after_an_hour_when_a_zone_is_behind(
    zoned_resources: Resources, zoned_stage: str
) -> None:
    name = STAGES[zoned_stage].name
    rings_after_s = {
        alarm_name: alarm["Period"] * alarm["EvaluationPeriods"]
        for alarm_name, alarm in zone_alarms(zoned_resources).items()
    }
    expected = {f"{name}-segment-lost": 300, f"{name}-zone-behind": 3600}
    assert rings_after_s == (expected if STAGES[zoned_stage].has_alarms else {})


def test_alarms_watch_metrics_that_functions_of_their_stage_emit(zoned_resources: Resources) -> None:
    emitted = set()
    for function in functions_in(zoned_resources).values():
        variables = function["Environment"]["Variables"]
        emitted.add((variables["POWERTOOLS_METRICS_NAMESPACE"], variables["POWERTOOLS_SERVICE_NAME"]))
    for alarm_name, alarm in zone_alarms(zoned_resources).items():
        [dimension] = alarm["Dimensions"]
        assert dimension["Name"] == "service"
        assert (alarm["Namespace"], dimension["Value"]) in emitted
        assert (alarm["MetricName"], alarm["Statistic"]) == (
            ("zones_behind", "Minimum") if alarm_name.endswith("zone-behind") else ("segment_lost", "Sum")
        )
        assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "GreaterThanOrEqualToThreshold")
        assert alarm["TreatMissingData"] == "notBreaching"


def test_recover_zones_emits_the_metrics_that_are_watched() -> None:
    instance = patient_instance()
    send(instance, new_topic(instance), "x", acks=Acks.ALL)
    assert run_recover_zones(instance)["zones_behind"] == 0
    move_zone_by_operator(instance, "b", ZoneStatus.CATCHING_UP, "look it over")
    for zone in range(3):
        zone_of(instance, zone).segments.clear()
    assert run_recover_zones(instance)["zones_behind"] == 1
    assert instance.telemetry.take()[0]["segment_lost"] == 1


def test_replicate_emits_segment_lost_when_no_zone_has_a_copy() -> None:
    instance = patient_instance()
    topic = new_topic(instance)
    zone_of(instance, 2).is_down = True
    send(instance, topic, "x")
    zone_of(instance, 2).is_down = False
    for zone in range(3):
        zone_of(instance, zone).segments.clear()
    [located] = refs_of(instance, key_of(instance, topic))
    named = NamedRef(key=key_of(instance, topic), located=located)
    [repair] = repairs_due([named], instance.stores.zone_names, 0b111)
    body = encode_message(repair)
    answer = serve({"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": body}]}, instance)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "1"}]}
    assert instance.telemetry.take()[0]["segment_lost"] == 1
