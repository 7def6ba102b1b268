"""Who is told when records are lost or a zone does not come back, by metrics that the functions really emit."""

from typing import Any

import pytest

from handlers.keeper import run
from handlers.replicate import serve
from infra.settings import STAGES
from infra.zone_alarms import ZoneAlarms
from penstock_broker.move_zone import move_zone_by_operator
from penstock_core.quorum import Acks
from penstock_core.repair import NamedRef, encode_repair, repairs_due
from penstock_core.zone_state import ZoneStatus
from tests.broker.setting import key_of, new_topic, patient_broker, refs_of, send, zone_of
from tests.infra.conftest import Resources
from tests.infra.reading import of_type

pytestmark = pytest.mark.synth


def zone_alarms(resources: Resources) -> dict[str, dict[str, Any]]:
    found = of_type(resources, "AWS::CloudWatch::Alarm").items()
    return {alarm["AlarmName"]: alarm for name, alarm in found if name.startswith(ZoneAlarms.__name__)}


def test_lost_segments_ring_at_once_and_a_zone_that_is_behind_after_an_hour(resources: Resources, stage: str) -> None:
    name = STAGES[stage].name
    rings_after_s = {
        alarm_name: alarm["Period"] * alarm["EvaluationPeriods"] for alarm_name, alarm in zone_alarms(resources).items()
    }
    lost = {f"{name}-segment-lost-{function}": 300 for function in ("keeper", "replicate", "scrub")}
    expected = {**lost, f"{name}-zone-behind": 3600}
    assert rings_after_s == (expected if STAGES[stage].has_alarms else {})


def test_alarms_watch_what_their_own_stage_s_functions_emit(resources: Resources) -> None:
    emitted = set()
    for function in of_type(resources, "AWS::Lambda::Function").values():
        variables = function["Environment"]["Variables"]
        emitted.add((variables["POWERTOOLS_METRICS_NAMESPACE"], variables["POWERTOOLS_SERVICE_NAME"]))
    for alarm_name, alarm in zone_alarms(resources).items():
        [dimension] = alarm["Dimensions"]
        assert dimension["Name"] == "service"
        assert (alarm["Namespace"], dimension["Value"]) in emitted
        watched = "keeper" if alarm_name.endswith("zone-behind") else alarm_name.rpartition("-")[2]
        assert dimension["Value"].endswith(f"-{watched}")
        assert (alarm["MetricName"], alarm["Statistic"]) == (
            ("zones_behind", "Minimum") if alarm_name.endswith("zone-behind") else ("segment_lost", "Sum")
        )
        assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "GreaterThanOrEqualToThreshold")
        assert alarm["TreatMissingData"] == "notBreaching"


def test_keeper_emits_the_metrics_that_are_watched() -> None:
    broker = patient_broker()
    send(broker, new_topic(broker), "x", acks=Acks.ALL)
    assert run(broker)["zones_behind"] == 0
    move_zone_by_operator(broker, "b", ZoneStatus.CATCHING_UP, "look it over")
    for zone in range(3):
        zone_of(broker, zone).segments.clear()
    assert run(broker)["zones_behind"] == 1
    assert broker.events.take()[0]["segment_lost"] == 1


def test_replicate_tells_of_a_segment_that_is_lost() -> None:
    broker = patient_broker()
    topic = new_topic(broker)
    zone_of(broker, 2).is_down = True
    send(broker, topic, "x")
    zone_of(broker, 2).is_down = False
    for zone in range(3):
        zone_of(broker, zone).segments.clear()
    [located] = refs_of(broker, key_of(broker, topic))
    named = NamedRef(key=key_of(broker, topic), located=located)
    [repair] = repairs_due([named], broker.zone_names, 0b111)
    body = encode_repair(repair)
    answer = serve({"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": body}]}, broker)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "1"}]}
    assert broker.events.take()[0]["segment_lost"] == 1
