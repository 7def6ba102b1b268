"""What the scheduled functions make of a run once nothing fails any more: every copy whole, and no garbage left.

Nothing else runs, and every call is still observed. Time jumps over the graces.
"""

from typing import Any

from penstock_broker.broker import Broker
from penstock_broker.keep_zones import keep_zones
from penstock_broker.move_zone import list_zones, move_zone_by_operator
from penstock_broker.retain import retain
from penstock_broker.scrub import scrub
from penstock_broker.sweep import sweep
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset
from penstock_core.keys import PartitionKey
from penstock_core.record_batch import check_stored
from penstock_core.ref import LocatedRef, Tier
from penstock_core.topic import Topic
from penstock_core.zone_state import BARRIER_MS, ZoneStatus
from tests.simulation.deliveries import deliver_repairs, deliver_stream
from tests.simulation.instance import SEGMENT_PREFIX_FIRST
from tests.simulation.violation import expect
from tests.simulation.world import GRACE_MS, World

_WITHOUT_END = 1_000_000_000
_KEEPER_RUNS_MAX = 6
_JUMP_MS = GRACE_MS + 5_000


def restore(world: World) -> None:
    """Repairs that are due, zones that are out, then a scrub: every zone holds every live segment, and refs say so."""
    broker = world.undisturbed()
    _repair(world, broker)
    _bring_zones_back(world, broker)
    everywhere = (1 << len(broker.zones)) - 1
    for key, located in _zonal_refs(world):
        # A roll that was decided before a mark may bring the page without it (docs/adr/0004): the scrub's business.
        marked = world.truth.marked.get((key, int(located.base_offset)), 0)
        owed = everywhere & ~(located.ref.zones | marked)
        expect(not owed, f"{key} at {located.base_offset} is owed to zones {owed:03b} for ever")
    for _ in range(2):  # the first may go on in the middle
        scrubbed = scrub(broker, budget_ms=_WITHOUT_END, budget_bytes=_WITHOUT_END)
        expect(scrubbed.is_finished and not scrubbed.failures, f"not everything could be healed: {scrubbed}")
    world.truth.destroyed.clear()
    for key, located in _zonal_refs(world):
        expect(located.ref.zones == everywhere, f"{key} at {located.base_offset} was scrubbed, and is not marked so")
        for store in world.stores.zones:
            try:
                data = store.get(located.ref.segment_id, located.ref.position, located.ref.length)
                check_stored(memoryview(data), located.ref.offset_span)
            except PenstockError as error:
                expect(False, f"{key} at {located.base_offset} was scrubbed, and zone {store.zone} says {error}")


def _zonal_refs(world: World) -> list[tuple[PartitionKey, LocatedRef]]:
    return [(key, located) for key, located in world.truth.all_refs() if located.ref.tier is Tier.ZONAL]


def clear_away(world: World) -> None:
    """What is expired is let go of, its pages and objects go, and so does all that was never named."""
    broker = world.undisturbed()
    for number in range(3):
        world.jump(_JUMP_MS)
        retained = retain(broker, budget_ms=_WITHOUT_END, grace_ms=GRACE_MS)
        expect(retained.is_finished and not retained.failures, f"retention did not do its work: {retained}")
        if number == 1:  # the first may go on in the middle
            for topic in world.stores.topics.list():
                _check_expired(world, topic)
    world.jump(_JUMP_MS)
    world.stores.cursors.put("sweep", str(SEGMENT_PREFIX_FIRST))
    swept = sweep(broker, budget_ms=_WITHOUT_END, grace_ms=GRACE_MS, log_start_grace_ms=GRACE_MS)
    expect(swept.is_finished and not swept.failures, f"the sweep did not do its work: {swept}")
    _check_pages(world)
    _check_objects(world)


def _repair(world: World, broker: Broker) -> None:
    """Each record and message once more. A repair fails for good only of what was swept, if it tells no refs."""
    while world.stream:
        before = len(world.stream)
        deliver_stream(lambda run: run(broker), world.stream)
        expect(len(world.stream) < before, f"records of the stream cannot be handled: {world.stream[:1]}")
    failed = deliver_repairs(lambda run: run(broker), world.repairs) if world.repairs else []
    world.repairs.clear()
    live = {located.ref.segment_id for _, located in _zonal_refs(world)}
    left = [repair for repair in failed if repair.refs or repair.segment_id in live]
    expect(not left, f"{left} cannot be repaired")


def _bring_zones_back(world: World, broker: Broker) -> None:
    for zone, state in list_zones(broker):
        if state.status is ZoneStatus.TAKEN_OUT:
            move_zone_by_operator(broker, zone, ZoneStatus.CATCHING_UP, "the run is over")
    for _ in range(_KEEPER_RUNS_MAX):
        if all(state.status is ZoneStatus.IN_SYNC for _, state in list_zones(broker)):
            return
        world.jump(BARRIER_MS + 5_000)
        keep_zones(broker, _WITHOUT_END)
    expect(False, f"zones are not in sync after {_KEEPER_RUNS_MAX} runs of the keeper: {list_zones(broker)}")


def _check_expired(world: World, topic: Topic) -> None:
    for partition in topic.all_partitions():
        key = PartitionKey(topic.topic_id, partition)
        entries = world.truth.appends.get(key, [])
        start = world.truth.log_starts.get(key, 0)
        first = next((entry for entry in entries if entry.end_offset > start), None)
        located = next((each for each in world.truth.check_index(key) if each.end_offset > start), None)
        expect(
            first is None
            or located is None
            or located.ref.tier is Tier.ARCHIVE  # goes with its newest record, which may not be expired
            or not world.truth.removals.is_expired(entries, start, first.end_offset, topic.config, skew_ms=0.0),
            f"{key} at {start} is expired, and retention keeps it",
        )


def _check_pages(world: World) -> None:
    for topic in world.stores.topics.list():
        for partition in topic.all_partitions():
            key = PartitionKey(topic.topic_id, partition)
            start = world.truth.removals.log_start_at(key, world.scheduler.now_ms - 3 * _JUMP_MS)
            left = [page.end_offset for page in world.stores.log.pages(key, Offset(0), 1_000)]
            expect(not left or left[0] > start, f"{key} begins at {start}, and pages up to {left} are left")
    notes = world.stores.topics.deleted()
    expect(not notes, f"notes of topics without a name are left: {notes}")
    living = {topic.topic_id for topic in world.stores.topics.list()}
    for topic_id in sorted((world.truth.begun | world.truth.names.keys()) - living):
        left_behind = world.truth.removals.left_of(topic_id)
        expect(not left_behind, f"topic {topic_id}, which has no name, has left {left_behind}")


def _check_objects(world: World) -> None:
    """What is stored is named by a ref that reaches behind its log's start, and all of that is stored."""
    refs = [located.ref for _, located in world.truth.all_refs()]
    archive: Any = world.stores.archive
    places = [(zone, Tier.ZONAL, world.zone(zone).segments.keys()) for zone in world.stores.zone_names]
    for zone, tier, stored in [*places, ("archive", Tier.ARCHIVE, archive.segments.keys())]:
        named = {ref.segment_id for ref in refs if ref.tier is tier}
        garbage = [segment_id.hex() for segment_id in stored - named]
        expect(not garbage, f"zone {zone} keeps segments that nothing names: {garbage}")
        missing = [segment_id.hex() for segment_id in named - stored]
        expect(not missing, f"zone {zone} has lost segments that are named: {missing}")
