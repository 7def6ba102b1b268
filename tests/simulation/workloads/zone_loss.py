"""One zone refuses, hangs, comes back, loses objects or has its bytes spoilt; the other two carry on."""

from random import Random

from penstock_core.errors import PenstockError
from penstock_core.quorum import Acks
from penstock_core.segment import check_segment
from tests.simulation.world import World


def install(world: World) -> None:
    random = world.scheduler.random
    # With one copy only, what the simulation destroys is gone by right.
    world.acks_allowed = (Acks.QUORUM, Acks.ALL)
    victim = random.choice(["a", "b", "c"])
    store = world.zone(victim)
    label = f"zone {victim}"

    def run() -> None:
        for _ in range(random.choice([1, 3, 6])):
            world.scheduler.pause(random.uniform(10.0, 1_000.0 + world.lasts_ms / 4))
            match random.choice(["refuses", "hangs", "loses", "rots"]):
                case "loses":
                    for segment_id in list(store.segments):
                        if random.random() < 0.5:
                            world.count("object lost")
                            del store.segments[segment_id]
                            world.truth.destroyed.add((label, segment_id))
                case "rots":
                    for segment_id, body in list(store.segments.items()):
                        if random.random() < 0.5:
                            world.count("object spoilt")
                            store.segments[segment_id] = _spoilt(body, random)
                            world.truth.destroyed.add((label, segment_id))
                case trouble:
                    world.scheduler.note("trouble", label, trouble)
                    world.zone_trouble[label] = trouble
                    world.scheduler.pause(random.uniform(100.0, 3_000.0))
                    world.zone_trouble.pop(label, None)

    world.work("zone trouble", run)


def _spoilt(body: bytes, random: Random) -> bytes:
    """One bit is wrong, of those that a checksum covers: the 12 bytes of a batch outside its CRC mean nothing here."""
    while True:
        at = random.randrange(len(body))
        spoilt = body[:at] + bytes([body[at] ^ 0x10]) + body[at + 1 :]
        try:
            check_segment(spoilt)
        except PenstockError:
            return spoilt
