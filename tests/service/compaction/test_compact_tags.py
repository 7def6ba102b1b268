"""Compaction keeps what refs tell of tags, so that a filter by tag finds the same records before and after it."""

from dataclasses import replace

import pytest

from penstock_core.filters.filter import may_match_ref, tags_of
from penstock_core.filters.policy import parse_filter
from penstock_core.log.ref import Tier
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from tests.service.compaction.written_topic import APPENDS, HOUR_MS, pages_of, run
from tests.service.records.test_scan import read_all
from tests.support.service import SteppedClock, entry, new_topic


@pytest.mark.parametrize("silent", [None, 20])
def test_filter_by_tag_finds_the_same_after_compaction(
    instance: Instance, clock: SteppedClock, silent: int | None
) -> None:
    """`silent` is an append whose producer sent no tag filter."""
    new_topic(instance, index_tags=True)
    for number in range(APPENDS):
        headers = (("tag", b"t%d" % (number // 40)),)
        sent = entry("orders", 0, encode([NewRecord(clock.now_ms(), None, b"v", headers)]))
        produce(
            instance, [replace(sent, tag_filter=None if number == silent else tags_of(headers))], Acks.QUORUM
        ).all_ok()
    clock.time_ms += 2 * HOUR_MS
    policies = [{"tag": ["t0"]}, {"tag": ["t1"]}, {"tag": ["t2"]}, {"tag": ["t3"]}]
    before = [read_all(instance, policy) for policy in policies]
    assert [len(each) for each in before] == [40, 40, 3, 0]
    assert run(instance, "orders").runs == 1
    refs = [ref for page in pages_of(instance, "orders") for ref in page.refs]
    assert {ref.tier for ref in refs} == {Tier.ARCHIVE}
    assert [ref.tag_filter is None for ref in refs].count(True) == (0 if silent is None else 1)
    assert not all(may_match_ref(parse_filter({"tag": ["t0"]}), ref) for ref in refs), "some merged refs are skipped"
    assert [read_all(instance, policy) for policy in policies] == before
