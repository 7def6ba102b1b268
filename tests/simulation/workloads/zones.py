"""Zones fail, lose and spoil what they hold, go out and come back; functions make their copies whole again."""

from functools import partial
from random import Random

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey, ZoneName
from penstock_core.log.ref import LocatedRef
from penstock_core.log.repair import Look, Repair
from penstock_core.log.segment import check_segment
from penstock_core.zones.zone_state import ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.repair.ensure_copies import ensure_copies
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.repair.scrub import scrub
from penstock_service.segments.move_zone import move_zone_by_operator
from tests.simulation.service.deliveries import Call, deliver_messages, deliver_stream
from tests.simulation.service.simulation import Simulation

_FLIPS_MAX = 1_000
_AT_ONCE = 8
_SCRUB_MS = 10_000.0
_MESSAGES_MAX = 5
_LOOK_MS_MAX = 3_000.0  # sooner than SQS delivers looks, so that they meet rolls, late puts and failing zones
_RECOVERY_MS = 20_000.0
_LASTS_MS = 200_000.0


def zone_loss(simulation: Simulation) -> None:
    """One zone refuses, hangs, comes back, loses objects or has its bytes spoilt; the other two carry on."""
    random = simulation.scheduler.random
    victim = random.choice(["a", "b", "c"])
    store = simulation.zone(victim)
    label = f"zone {victim}"

    def run() -> None:
        for _ in range(random.choice([1, 3, 6])):
            simulation.scheduler.pause(random.uniform(10.0, 1_000.0 + simulation.lasts_ms / 4))
            match random.choice(["refuses", "hangs", "loses", "rots"]):
                case "loses":
                    for segment_id in list(store.segments):
                        if random.random() < 0.5:
                            simulation.count("object lost")
                            del store.segments[segment_id]
                            simulation.oracle.destroyed.add((label, segment_id))
                case "rots":
                    for segment_id, body in list(store.segments.items()):
                        if random.random() < 0.5:
                            simulation.count("object spoilt")
                            store.segments[segment_id] = _spoilt(body, random)
                            simulation.oracle.destroyed.add((label, segment_id))
                case trouble:
                    simulation.scheduler.note("trouble", label, trouble)
                    simulation.storage.zone_trouble[label] = trouble
                    simulation.scheduler.pause(random.uniform(100.0, 3_000.0))
                    simulation.storage.zone_trouble.pop(label, None)

    simulation.work("zone trouble", run)


def outage(simulation: Simulation) -> None:
    """Now and then all zones refuse at once for a moment: nothing can be stored or read."""
    random, trouble = simulation.scheduler.random, simulation.storage.zone_trouble

    def run() -> None:
        for _ in range(random.choice([3, 10])):
            simulation.scheduler.pause(random.uniform(10.0, 500.0))
            labels = [label for name in simulation.stores.zone_names if (label := f"zone {name}") not in trouble]
            trouble.update(dict.fromkeys(labels, "refuses"))
            simulation.scheduler.pause(random.choice([20.0, 200.0]))
            for label in labels:
                del trouble[label]

    simulation.work("outage", run)


def _spoilt(body: bytes, random: Random) -> bytes:
    """Flip one bit that a checksum covers. The 12 bytes of a batch outside its CRC mean nothing here."""
    for _ in range(_FLIPS_MAX):
        at = random.randrange(len(body))
        spoilt = body[:at] + bytes([body[at] ^ 0x10]) + body[at + 1 :]
        try:
            check_segment(spoilt)
        except PenstockError:
            return spoilt
    raise AssertionError(f"no checksum covers any of {_FLIPS_MAX} bits of a segment")


def zone_moves(simulation: Simulation) -> None:
    """An operator takes zones out of service and brings them back, while appenders move those that fail."""
    random = simulation.scheduler.random

    def run() -> None:
        for _ in range(random.choice([1, 2, 4])):
            simulation.scheduler.pause(random.uniform(10.0, 1_500.0 + simulation.lasts_ms / 4))
            zone = random.choice(simulation.stores.zone_names)
            to = random.choice([ZoneStatus.TAKEN_OUT, ZoneStatus.CATCHING_UP])

            def move(instance: Instance, zone: ZoneName = zone, to: ZoneStatus = to) -> None:
                move_zone_by_operator(instance, zone, to, "drill")

            try:
                simulation.call(move, is_read=False)
                simulation.count(f"zone {to.value}")
            except PenstockError as error:
                simulation.scheduler.note("refused", error)

    simulation.work("zone operator", run)


def repairs(simulation: Simulation) -> None:
    """Copies are made again and marked, while clients write and read, heads roll, and copies get lost."""
    random = simulation.scheduler.random

    def run() -> None:
        for _ in range(random.choice([1, 2, 4])):
            simulation.scheduler.pause(random.uniform(50.0, 1_500.0 + simulation.lasts_ms / 5))
            refs = simulation.oracle.log.all_refs()
            for key, located in random.sample(refs, min(len(refs), _AT_ONCE)):
                simulation.attempt("not repaired", partial(repair, key=key, located=located))

    simulation.work("repairer", run)


def repair(instance: Instance, key: PartitionKey, located: LocatedRef) -> None:
    """Run the three steps of docs/adr/0004: they put a good copy into every zone, and its bit into the ref."""
    ensured = ensure_copies(
        instance.stores.zones, instance.executor, located.ref.segment_id, instance.stores.regular_zones
    )
    instance.stores.log.mark_stored(key, {located: ensured.good})


def scrubs(simulation: Simulation) -> None:
    """One or two scrubs read the copies in portions and heal them, while clients write and copies get lost."""
    random = simulation.scheduler.random
    budget_bytes = random.choice([300, 3_000, 1_000_000])

    def run() -> None:
        for _ in range(random.choice([2, 5])):
            simulation.scheduler.pause(random.uniform(50.0, 1_500.0 + simulation.lasts_ms / 5))
            simulation.attempt(
                "not scrubbed", lambda instance: scrub(instance, budget_ms=_SCRUB_MS, budget_bytes=budget_bytes)
            )

    for number in range(random.choice([1, 2])):
        simulation.work(f"scrub{number}", run)


def replicate(simulation: Simulation) -> None:
    """The function `replicate` gets the log table's stream and the repair queue while appends go on and zones fail."""
    random = simulation.scheduler.random
    call: Call = lambda run: simulation.call(run, is_read=False)  # noqa: E731 - a lambda says it best

    def read_stream() -> None:
        while not simulation.is_over:
            if not simulation.storage.stream:
                simulation.scheduler.pause(200.0)
                continue
            try:
                deliver_stream(call, simulation.storage.stream)
            except PenstockError as error:
                simulation.scheduler.note("stream again", error)
            simulation.scheduler.pause(random.uniform(1.0, 100.0))

    def take_messages(queue: list[Repair] | list[Look], delay_ms_max: float) -> None:
        while not simulation.is_over:
            taken: list[Repair | Look] = [*queue[:_MESSAGES_MAX]]
            if not taken:
                simulation.scheduler.pause(400.0)
                continue
            del queue[: len(taken)]
            simulation.count("look" if queue is simulation.looks else "repair message")
            simulation.scheduler.pause(random.uniform(0.0, delay_ms_max))
            again = taken
            try:
                again = deliver_messages(call, taken)
            except PenstockError as error:
                simulation.scheduler.note("messages again", error)
            simulation.scheduler.pause(random.uniform(100.0, 2_000.0))
            for message in again:
                simulation.stores.repair_queue.send(message)

    simulation.scheduler.spawn("stream", read_stream)
    for number in range(2):
        simulation.scheduler.spawn(f"queue{number}", partial(take_messages, simulation.repairs, 0.0))
        simulation.scheduler.spawn(f"looks{number}", partial(take_messages, simulation.looks, _LOOK_MS_MAX))


def zone_recovery(simulation: Simulation) -> None:
    """One or two runs of recover_zones let zones back and catch them up, while producers go on and zones fail again."""
    random = simulation.scheduler.random
    simulation.lasts_ms = max(simulation.lasts_ms, _LASTS_MS)

    def recover() -> None:
        simulation.attempt("not recovered", lambda instance: recover_zones(instance, _RECOVERY_MS))

    def recover_each_minute() -> None:
        while simulation.scheduler.now_ms < _LASTS_MS:
            simulation.scheduler.pause(random.uniform(5_000.0, 60_000.0))
            recover()

    def move(zone: str, to: ZoneStatus) -> None:
        simulation.attempt("refused", lambda instance: move_zone_by_operator(instance, zone, to, "drill"))

    def operate() -> None:
        """Take a zone out and bring it back, now and then right before producers begin and recover_zones runs."""
        for _ in range(random.choice([1, 2, 3])):
            zone = random.choice(simulation.stores.zone_names)
            simulation.scheduler.pause(random.uniform(100.0, 30_000.0))
            move(zone, ZoneStatus.TAKEN_OUT)
            simulation.scheduler.pause(random.uniform(100.0, 10_000.0))
            is_close = random.random() < 0.7
            if is_close:
                simulation.pause_until_burst()
            while simulation.stores.zone_states.get().of(zone).status is ZoneStatus.TAKEN_OUT:
                move(zone, ZoneStatus.CATCHING_UP)
            if is_close:
                recover()

    def trouble() -> None:
        """Let a zone stop answering for a while. Prefer a zone that is not in sync."""
        for _ in range(random.choice([0, 2, 4])):
            simulation.scheduler.pause(random.uniform(1_000.0, _LASTS_MS / 5))
            states = simulation.stores.zone_states.get()
            behind = [each for each in simulation.stores.zone_names if states.of(each).status is not ZoneStatus.IN_SYNC]
            label = f"zone {random.choice(behind or simulation.stores.zone_names)}"
            if label not in simulation.storage.zone_trouble:
                simulation.storage.zone_trouble[label] = random.choice(["refuses", "hangs"])
                simulation.scheduler.pause(random.choice([random.uniform(500.0, 10_000.0), random.uniform(30e3, 90e3)]))
                simulation.storage.zone_trouble.pop(label, None)

    for number in range(random.choice([1, 2])):
        simulation.work(f"recover_zones{number}", recover_each_minute)
    simulation.work("zones back", operate)
    simulation.work("catch-up trouble", trouble)
