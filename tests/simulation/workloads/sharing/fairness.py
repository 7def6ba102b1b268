"""Workers of a share group with sharing=fair, while one tenant sends far more than the others."""

from functools import partial

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.zones.zone_state import Acks
from penstock_service.share.acknowledge import AckEntry
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.oracle.share_tenants import TenantOracle, tenant_of
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.sharing.ranking import NO_LOCK, decided, drain

_GROUP, _TOPIC = "shared", "tenants"
_LOCK_MS, _BACKOFF_MS_MAX = 2_000, 1_000
_BYTES_MAX = 1_000_000


def install(simulation: Simulation) -> None:
    random = simulation.scheduler.random
    simulation.topic(_TOPIC, partitions=random.choice([1, 1, 2]))
    config = {
        "sharing": "fair",
        "lock_ms": _LOCK_MS,
        "retry_backoff_ms_min": 1,
        "retry_backoff_ms_max": _BACKOFF_MS_MAX,
        "in_flight_max": random.choice([10, 20_000, 20_000]),
    }
    group, _ = put_share_group(simulation.bare, _GROUP, [_TOPIC], config)
    oracle = TenantOracle(simulation, group)
    for number in range(random.choice([2, 4])):
        producer = SimulatedProducer(
            simulation,
            f"tenant {number}",
            _TOPIC,
            records=40 if number == 0 else random.choice([3, 8]),
            acks=Acks.QUORUM,
            pace_ms=1.0 if number == 0 else random.choice([1.0, 100.0, 300.0]),
            key_of=tenant_of,
        )
        producer.start()
    for number in range(random.choice([2, 4, 8])):
        work = partial(_FairWorker(simulation, oracle, has_room=config["in_flight_max"] != 10).run, rounds=12)
        simulation.work(f"fw{number}", work, delay_ms=random.uniform(0.0, 300.0))
    simulation.final_checks.append(partial(drain, simulation, _GROUP, oracle))


class _FairWorker:
    """Acquires, and accepts or releases what it gets. It forgets some locks, as one that dies does.

    Only with room in flight its acquires are judged by shares.
    """

    def __init__(self, simulation: Simulation, oracle: TenantOracle, *, has_room: bool) -> None:
        self._simulation = simulation
        self._random = simulation.scheduler.random
        self._oracle = oracle
        self._has_room = has_room
        self._pending: list[AckEntry] = []

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._acquire()
            self._simulation.scheduler.pause(self._random.choice([1.0, 50.0, 300.0]))

    def _decide(self) -> Acknowledgement | None:
        chance = self._random.random()
        if chance < 0.05:
            return None
        kind = AckType.RELEASE if chance < 0.2 else AckType.ACCEPT
        return Acknowledgement(lock_id=NO_LOCK, type=kind, delay_ms=0 if kind is AckType.RELEASE else None)

    def _acquire(self) -> None:
        entries, self._pending = tuple(self._pending), []
        nonce = LockNonce(f"{self._random.randrange(16**8):08x}")
        wish = AcquireWish(
            nonce=nonce,
            records_max=self._random.choice([1, 2, 5]),
            bytes_max=_BYTES_MAX,
            acknowledgements=entries,
        )
        if self._has_room:
            self._oracle.asks(nonce)
        try:
            run = partial(acquire, group_name=_GROUP, wish=wish)
            acquired = self._simulation.call(run, is_read=False, is_judged=False)
            self._pending = decided(acquired, self._decide)
        except PenstockError as error:
            self._simulation.scheduler.note("not acquired", error)
        finally:
            self._oracle.ends(nonce)
