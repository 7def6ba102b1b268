"""One zone refuses, hangs, comes back, loses objects or has its bytes spoilt; the other two carry on."""

from random import Random

from penstock_core.errors import PenstockError
from penstock_core.log.segment import check_segment
from penstock_core.zones.zone_state import Acks
from tests.simulation.service.simulation import Simulation

_FLIPS_MAX = 1_000


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    # A record with one copy only may be lost when the simulation destroys that copy.
    simulation.acks_allowed = (Acks.QUORUM, Acks.ALL)
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
