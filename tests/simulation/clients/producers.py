"""The producers of a workload: what they have in common, and what each draws for itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock_core.zones.zone_state import Acks
from tests.simulation.clients.producer import SimulatedProducer
from tests.simulation.service.simulation import Simulation

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerChoices:
    """Each producer draws one value of each sequence. Of `acks` None, it draws from what the simulation allows."""

    records: Sequence[int]
    pace_ms: Sequence[float]
    acks: Acks | None = None
    max_in_flight: Sequence[int] = (2,)
    is_batching: bool = True
    is_idempotent: bool | None = None
    is_tagging: bool = False


def start_producers(
    simulation: Simulation, topic: str, names: Iterable[str], choices: ProducerChoices, *, is_late: bool = False
) -> None:
    """Start a producer of each name: now, or each at a later time of its own."""
    random = simulation.scheduler.random

    def drawn(values: Sequence[T]) -> T:
        return values[0] if len(values) == 1 else random.choice(values)

    for name in names:
        producer = SimulatedProducer(
            simulation,
            name,
            topic,
            records=drawn(choices.records),
            acks=random.choice(simulation.acks_allowed) if choices.acks is None else choices.acks,
            pace_ms=drawn(choices.pace_ms),
            max_in_flight=drawn(choices.max_in_flight),
            is_batching=choices.is_batching,
            is_idempotent=choices.is_idempotent,
            is_tagging=choices.is_tagging,
        )
        producer.start(delay_ms=simulation.later() if is_late else 0.0)
