"""After a run, once faults are over, the scheduled functions must make every copy whole and leave no garbage.

No client runs meanwhile, and the oracle still observes every call. Time jumps over the graces.
"""

from collections.abc import Set
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey, SegmentId
from penstock_core.limits import APPEND_MS_MAX
from penstock_core.log.ref import LocatedRef, Tier
from penstock_core.log.repair import Look
from penstock_core.log.topic import Topic
from penstock_core.records.record_batch import check_stored
from penstock_core.zones.zone_state import BARRIER_MS, ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.repair.scrub import scrub
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.segments.move_zone import list_zones, move_zone_by_operator
from tests.simulation.oracle.violation import expect
from tests.simulation.service.deliveries import deliver_messages, deliver_stream
from tests.simulation.service.simulation import GRACE_MS, Simulation

_WITHOUT_END = 1_000_000_000
_RECOVERY_RUNS_MAX = 6
_LOOKS_MAX = 20  # one after another: one that runs out of time sends the next
_JUMP_MS = GRACE_MS + 5_000


def restore(simulation: Simulation) -> None:
    """Repair what is due, bring zones back, and scrub. Then every zone holds every live segment, and refs say so."""
    instance = simulation.undisturbed()
    _repair(simulation, instance)
    _bring_zones_back(simulation, instance)
    everywhere = instance.stores.regular_zones
    for key, located in _zonal_refs(simulation):
        # A roll that was decided before a mark may write the page without it (docs/adr/0004). The scrub sets it again.
        marked = simulation.oracle.marked.get((key, int(located.base_offset)), 0)
        owed = everywhere & ~(located.ref.zones | marked)
        expect(not owed, f"{key} at {located.base_offset} is owed to zones {owed:03b} for ever")
    for _ in range(2):  # the first scrub may go on where another one stopped
        scrubbed = scrub(instance, budget_ms=_WITHOUT_END, budget_bytes=_WITHOUT_END)
        expect(scrubbed.is_finished and not scrubbed.failures, f"not everything could be healed: {scrubbed}")
    fallbacks = {f"zone {zone}" for zone in instance.stores.fallback_zones}  # nothing heals their copies
    simulation.oracle.destroyed = {each for each in simulation.oracle.destroyed if each[0] in fallbacks}
    for key, located in _zonal_refs(simulation):
        expect(
            located.ref.zones & everywhere == everywhere,
            f"{key} at {located.base_offset} was scrubbed, and is not marked so",
        )
        for index, store in enumerate(simulation.stores.zones):
            if not everywhere >> index & 1:
                continue  # the scrub keeps the copies of regular zones whole; a fallback may have none
            try:
                data = store.get(located.ref.segment_id, located.ref.position, located.ref.length)
                check_stored(memoryview(data), located.ref.offset_span)
            except PenstockError as error:
                expect(False, f"{key} at {located.base_offset} was scrubbed, and zone {store.zone} says {error}")


def _zonal_refs(simulation: Simulation) -> list[tuple[PartitionKey, LocatedRef]]:
    return [(key, located) for key, located in simulation.oracle.log.all_refs() if located.ref.tier is Tier.ZONAL]


def clear_away(simulation: Simulation) -> None:
    """Let retention and the sweep remove all that is expired, and all objects that no ref ever named."""
    instance = simulation.undisturbed()
    for number in range(3):
        simulation.jump(_JUMP_MS)
        retained = retain(instance, budget_ms=_WITHOUT_END, grace_ms=GRACE_MS)
        expect(retained.is_finished and not retained.failures, f"retention did not do its work: {retained}")
        if number == 1:  # the first run may go on where another one stopped
            for topic in simulation.stores.topics.list():
                _check_expired(simulation, topic)
    simulation.jump(_JUMP_MS)
    simulation.stores.cursors.clear("sweep")
    swept = sweep(instance, budget_ms=_WITHOUT_END, grace_ms=GRACE_MS, log_start_grace_ms=GRACE_MS)
    expect(swept.is_finished and not swept.failures, f"the sweep did not do its work: {swept}")
    _check_pages(simulation)
    _check_objects(simulation)


def _repair(simulation: Simulation, instance: Instance) -> None:
    """Deliver each record and message once more. A repair may fail for good only if it names no refs and was swept."""
    stream = simulation.storage.stream
    while stream:
        before = len(stream)
        deliver_stream(lambda run: run(instance), stream)
        expect(len(stream) < before, f"records of the stream cannot be handled: {stream[:1]}")
    for _ in range(_LOOKS_MAX):
        looks = simulation.looks.copy()
        simulation.looks.clear()
        left = deliver_messages(lambda run: run(instance), looks) if looks else []
        expect(not left, f"{left} cannot be carried out")
    expect(not simulation.looks, f"looks lead to other looks for ever: {simulation.looks}")
    repairs = simulation.repairs.copy()
    failed = deliver_messages(lambda run: run(instance), repairs) if repairs else []
    simulation.repairs.clear()
    live = {located.ref.segment_id for _, located in _zonal_refs(simulation)}
    left = [each for each in failed if isinstance(each, Look) or each.refs or each.segment_id in live]
    expect(not left, f"{left} cannot be repaired")


def _bring_zones_back(simulation: Simulation, instance: Instance) -> None:
    for zone, state in list_zones(instance):
        if state.status is ZoneStatus.TAKEN_OUT:
            move_zone_by_operator(instance, zone, ZoneStatus.CATCHING_UP, "the run is over")
    for _ in range(_RECOVERY_RUNS_MAX):
        if all(state.status is ZoneStatus.IN_SYNC for _, state in list_zones(instance)):
            return
        simulation.jump(BARRIER_MS + 5_000)
        recover_zones(instance, _WITHOUT_END)
    expect(False, f"zones are not in sync after {_RECOVERY_RUNS_MAX} runs of recover_zones: {list_zones(instance)}")


def _check_expired(simulation: Simulation, topic: Topic) -> None:
    removals = simulation.oracle.removals
    for partition in topic.all_partitions():
        key = PartitionKey(topic.topic_id, partition)
        entries = simulation.oracle.log.appends.get(key, [])
        start = simulation.oracle.log_starts.get(key, 0)
        first = next((entry for entry in entries if entry.end_offset > start), None)
        located = next((each for each in simulation.oracle.log.check_index(key) if each.end_offset > start), None)
        expect(
            first is None
            or located is None
            or located.ref.tier is Tier.ARCHIVE  # it goes with its newest record, which may not be expired
            or not removals.is_expired(entries, start, first.end_offset, topic.config, skew_ms=-APPEND_MS_MAX),
            f"{key} at {start} is expired, and retention keeps it",
        )


def _check_pages(simulation: Simulation) -> None:
    for topic in simulation.stores.topics.list():
        for partition in topic.all_partitions():
            key = PartitionKey(topic.topic_id, partition)
            start = simulation.oracle.removals.log_start_at(key, simulation.scheduler.now_ms - 3 * _JUMP_MS)
            left = [page.end_offset for page in simulation.stores.log.pages(key, Offset(0), 1_000)]
            expect(not left or left[0] > start, f"{key} begins at {start}, and pages up to {left} are left")
    notes = simulation.stores.topics.deleted()
    expect(not notes, f"notes of topics without a name are left: {notes}")
    living = {topic.topic_id for topic in simulation.stores.topics.list()}
    for topic_id in sorted((simulation.oracle.begun | simulation.oracle.log.names.keys()) - living):
        left_behind = simulation.oracle.removals.left_of(topic_id)
        expect(not left_behind, f"topic {topic_id}, which has no name, has left {left_behind}")


def _waiting_for_ever(simulation: Simulation) -> set[SegmentId]:
    """The segments of timers whose log was moved to its mirror."""
    waiting = simulation.oracle.timers_waiting
    heads = simulation.stores.log.heads([*{*waiting.values()}])
    return {segment_id for segment_id, key in waiting.items() if key in heads and heads[key].move}


def _check_objects(simulation: Simulation) -> None:
    """Check that exactly the objects that a ref above its log start names are stored."""
    refs = [located.ref for _, located in simulation.oracle.log.all_refs()]
    archive: Any = simulation.stores.archive
    places: list[tuple[str, Tier, Set[SegmentId]]] = [
        (zone, Tier.ZONAL, simulation.zone(zone).segments.keys()) for zone in simulation.stores.zone_names
    ]
    places += [("archive", Tier.ARCHIVE, archive.segments.keys())]
    places += [("inline", Tier.INLINE, simulation.storage.inline_segments)]
    for zone, tier, stored in places:
        named = {ref.segment_id for ref in refs if ref.tier is tier}
        if tier is Tier.INLINE:  # those of expiring items may have copies here, and only these are there for ever
            expiring = {ref.segment_id for ref in refs if ref.tier is Tier.EXPIRING}
            lost = expiring - stored - simulation.storage.expiring_segments
            expect(not lost, f"items are lost that refs name: {[each.hex() for each in lost]}")
            named |= expiring & stored
        if tier is Tier.ARCHIVE:
            named |= _waiting_for_ever(simulation)
        garbage = [segment_id.hex() for segment_id in stored - named]
        expect(not garbage, f"zone {zone} keeps segments that nothing names: {garbage}")
        if zone in simulation.stores.fallback_zones:
            index = simulation.stores.zone_names.index(zone)
            named = {ref.segment_id for ref in refs if ref.tier is tier and ref.zones >> index & 1}
            # A fallback owes no copy (docs/protocol/zones): the regular zones hold the segment, and nothing heals this
            # one.
            named -= {segment_id for label, segment_id in simulation.oracle.destroyed if label == f"zone {zone}"}
        missing = [segment_id.hex() for segment_id in named - stored]
        expect(not missing, f"zone {zone} has lost segments that are named: {missing}")
