"""The tenants of a partition's records, for an acquire with sharing=fair: read once by each instance.

| of the records            | an acquire knows the tenants, as soon as it has read                                 |
|---------------------------|--------------------------------------------------------------------------------------|
| fresh ones                | the next `SHARE_FAIR_RECORDS`, or as many as may be in flight                        |
| in locks and waits        | all, after the fresh ones                                                            |

One acquire reads `SHARE_WINDOW_BYTES` at most, and decodes what the budget of its call leaves. So a cold instance knows
all of a long queue after some acquires. Until then unknown records in waits are of one tenant, and the fresh ones that
it may take end where it knows no more.
"""

import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from penstock_core.filters.filter import matches
from penstock_core.ids import Offset
from penstock_core.limits import SHARE_FAIR_RECORDS, SHARE_WINDOW_BYTES
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.record_set import Range, Ranges, RecordSet, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import ShareState
from penstock_core.share.tenants import FINISHED, NO_TENANT, KnownTenants, TenantBatch, tenant_of
from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.fresh_window import first_fresh
from penstock_service.share.batches.decode_batches import decode_batches, filter_of
from penstock_service.share.batches.read_batches import FoundBatches, StoredBatch, WantedRecords, read_batches
from penstock_service.share.share_partitions import SharePartition

_EVER = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTenants:
    """The tenants that are known, and the batches that were read for it now."""

    known: KnownTenants
    batches: Sequence[StoredBatch] = ()


def read_tenants(
    instance: Instance, config: ShareGroupConfig, partition: SharePartition, state: ShareState, budget: DecodeBudget
) -> ReadTenants:
    """The tenants that this instance knows once it has read more. Costs what `read_batches` costs for new records."""
    head, start = partition.head, first_fresh(partition, state)
    ahead = max(0, min(SHARE_FAIR_RECORDS, config.in_flight_max - state.open))
    fresh = ((start, min(start + ahead, head.next_offset)),) if ahead and start < head.next_offset else ()
    key = _cache_key(config, partition)
    known = instance.tenant_cache.find(key) or KnownTenants()
    begin = max(state.start_offset, head.log_start_offset)
    below: Ranges = ()
    if known.end_from(begin) < state.position:
        below = known.unknown(RecordSet(state.unfinished()).minus(((0, begin),)).ranges)
    missing = known.unknown(fresh)
    if not (missing or below) or budget.is_spent:
        return ReadTenants(known=known)
    asked = [
        WantedRecords(key=partition.key.partition_key, head=head, ranges=ranges)
        for ranges in (missing, below)
        if ranges
    ]
    found = read_batches(instance, asked, bytes_max=SHARE_WINDOW_BYTES)
    batches = sorted({batch.base_offset: batch for each in found for batch in each.batches}.values(), key=_base_of)
    wanted = normalized((*missing, *below))
    kept = known.within(normalized((*state.unfinished(), (state.position, _EVER))))
    kept += _decoded(config, batches, _cacheable(batches, wanted, known), budget)
    instance.tenant_cache.put(key, KnownTenants(kept, known))
    return ReadTenants(known=KnownTenants((*kept, *_gone(found))), batches=batches)


def _cache_key(config: ShareGroupConfig, partition: SharePartition) -> Hashable:
    return partition.key, config.fair_by, json.dumps(config.filter, sort_keys=True)


def _cacheable(batches: Sequence[StoredBatch], wanted: Ranges, known: KnownTenants) -> Ranges:
    """What the batches have, as whole batches; of one with very many records what was asked for."""
    found: list[Range] = []
    for batch in batches:
        span = RecordSet(((batch.base_offset, batch.next_offset),))
        found += (span if span.count <= SHARE_FAIR_RECORDS else span.only(wanted)).ranges
    return known.unknown(tuple(found))


def _decoded(
    config: ShareGroupConfig,
    batches: Sequence[StoredBatch],
    ranges: Ranges,
    budget: DecodeBudget,
) -> Iterator[TenantBatch]:
    """The tenants of these records, while the budget lasts."""
    filtered = filter_of(config)
    decoded = decode_batches(batches, ranges, budget)
    tenants = dict.fromkeys(RecordSet(decoded.undecodable).offsets(), NO_TENANT)
    for record in decoded.records:
        if filtered is None or matches(filtered, record.headers):
            tenants[record.offset] = tenant_of(config.fair_by, record)
    reached = RecordSet(ranges).minus(decoded.left_out)
    for batch in batches:
        for start, end in reached.only(((batch.base_offset, batch.next_offset),)).ranges:
            found = [tenants.get(offset, FINISHED) for offset in range(start, end)]
            yield TenantBatch.of(start, found, len(batch.data))


def _gone(found: Sequence[FoundBatches]) -> Iterator[TenantBatch]:
    """Records that will never be read. Another reader may know better, so nothing remembers them."""
    for each in found:
        lost = RecordSet(each.lost).minus(each.removed)
        for ranges, tenant in ((each.removed, FINISHED), (lost.ranges, NO_TENANT)):
            for start, end in ranges:
                yield TenantBatch.of(start, [tenant] * (end - start), 0)


def _base_of(batch: StoredBatch) -> Offset:
    return batch.base_offset
