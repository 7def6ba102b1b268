"""Compaction and tier keep the flag of records that may expire: a merged ref has it if one of its sources has."""

from dataclasses import replace

from penstock_core.log.ref import Tier
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from tests.service.compaction.written_topic import APPENDS, HOUR_MS, pages_of, run
from tests.support.service import SteppedClock, batch, entry, new_topic


def test_compaction_keeps_the_flag_where_one_source_has_it(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    flagged = {3, APPENDS - 1}
    for number in range(APPENDS):
        sent = entry("orders", 0, batch(str(number), timestamp_ms=clock.now_ms()))
        produce(instance, [replace(sent, may_expire=number in flagged)], Acks.QUORUM).all_ok()
    before = [ref for page in pages_of(instance, "orders") for ref in page.refs]
    clock.time_ms += 2 * HOUR_MS
    assert run(instance, "orders").runs == 1
    merged = [located for page in pages_of(instance, "orders") for located in page.located()]
    assert {located.ref.tier for located in merged} == {Tier.ARCHIVE}
    assert len(merged) < len(before)
    assert merged[0].ref.may_expire
    for located in merged:
        assert located.ref.may_expire == any(located.base_offset <= each < located.end_offset for each in flagged)
