"""The injector strikes the planned calls as often as planned, and no others."""

import pytest

from tests.chaos.injector import Injector
from tests.chaos.plan import Plan, PlannedStrike, Strike, ZoneFault, ZoneOutage
from tests.end_to_end.fault_proxy import Answer, Call, Hang, Kill

BUCKETS = {"bucket-a": "a", "bucket-b": "b"}
UPDATE = Call(service="dynamodb", operation="UpdateItem")
PUT_A = Call(service="s3", operation="PutObject", bucket="bucket-a")
PUT_B = Call(service="s3", operation="PutObject", bucket="bucket-b")


def injector(*, strikes: tuple[PlannedStrike, ...] = (), outages: tuple[ZoneOutage, ...] = ()) -> Injector:
    return Injector(Plan(seed=0, seconds=1_000, outages=outages, strikes=strikes), BUCKETS)


def test_strike_hits_as_many_calls_of_its_operation_as_planned() -> None:
    found = injector(strikes=(PlannedStrike(strike=Strike.THROTTLED, operation="UpdateItem", at_s=0, count=2),))
    assert found.decide(UPDATE) is None  # not started
    found.start()
    assert found.decide(Call(service="dynamodb", operation="GetItem")) is None
    assert [isinstance(found.decide(UPDATE), Answer) for _ in range(3)] == [True, True, False]
    assert found.injected == {Strike.THROTTLED: 2}


def test_strike_waits_for_its_time() -> None:
    found = injector(strikes=(PlannedStrike(strike=Strike.KILL_AFTER, operation="UpdateItem", at_s=900, count=1),))
    found.start()
    assert found.decide(UPDATE) is None


def test_strike_at_functions_leaves_clients_alone_whatever_they_call() -> None:
    found = injector(strikes=(PlannedStrike(strike=Strike.KILL_BEFORE, operation="PutObject", at_s=0, count=1),))
    found.start()
    assert found.decide(Call(service="api", operation="PutObject")) is None
    assert found.decide(PUT_A) == Kill(is_applied=False)


@pytest.mark.parametrize("fault", [ZoneFault.MISSING, ZoneFault.REFUSING, ZoneFault.HANGING, ZoneFault.SLOW])
def test_outage_breaks_its_zone_only_until_the_faults_stop(fault: ZoneFault) -> None:
    found = injector(outages=(ZoneOutage(zone="a", fault=fault, start_s=0, end_s=900),))
    found.start()
    hit = found.decide(PUT_A)
    assert hit is not None
    assert found.decide(PUT_B) is None
    found.stop()
    assert found.decide(PUT_A) is None
    assert not isinstance(hit, Hang) or hit.is_over.is_set()


def test_lost_zone_has_no_bucket_and_the_others_have() -> None:
    found = injector()
    found.lose("b")
    assert found.decide(PUT_A) is None
    lost = found.decide(PUT_B)
    assert isinstance(lost, Answer)
    assert b"NoSuchBucket" in lost.body
