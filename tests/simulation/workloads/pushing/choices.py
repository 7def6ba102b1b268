"""What the workload of push subscriptions draws: settings, habits of targets, and troubles of the service."""

from enum import Enum
from random import Random
from typing import Any

from penstock_core.push.batch import Failure
from penstock_core.push.subscription import EARLIEST, LATEST, ORDERED, PARALLEL
from tests.simulation.clients.push_target import TargetHabits
from tests.simulation.service.push_service import PushTroubles

PATIENCE_MS = 150_000
_OUTAGES_MS = (0.0, 60_000.0, 120_000.0)  # less than the patience


class Kind(Enum):
    """What a run is about: of everything a little; one outage and little else; deliveries that overtake each other."""

    MIXED = "mixed"
    OUTAGE = "outage"
    OVERTAKING = "overtaking"


def draw_settings(random: Random, kind: Kind, dead_topic: str | None, *, is_copy: bool) -> dict[str, Any]:
    """The settings of a subscription, but for its filter. Records fail for good only where there is a `dead_topic`."""
    is_parallel = not is_copy and random.random() < 0.4
    attempts = [2, 4, 6] if kind is Kind.MIXED else [2, 3]
    return {
        "mode": PARALLEL if is_parallel else ORDERED,
        "start": LATEST if random.random() < 0.2 else EARLIEST,
        "batch_records": random.choice([1, 1, 3] if kind is Kind.OUTAGE else [1, 3, 10]),
        "batch_window_ms": 0 if is_parallel else random.choice([0, 0, 2_000]),
        "concurrency": random.choice([2, 10] if kind is Kind.OUTAGE else [1, 2, 10]),
        "backoff_ms_min": random.choice([1, 300]),
        "backoff_ms_max": random.choice([5_000, 10_000]),
        "patience_ms": PATIENCE_MS,
        "attempts_max": None if dead_topic is None else random.choice(attempts),
        "dead_letter_topic": dead_topic,
        "bisect": random.random() < 0.8,
    }


def draw_habits(random: Random, kind: Kind, lasts_ms: float, *, has_dead_topic: bool) -> TargetHabits:
    """A target that is slow, fails now and then, and is out for a while. Its poison needs a dead-letter topic."""
    begins_ms = random.uniform(0.0, 0.4 * lasts_ms)
    is_quiet = kind is Kind.OUTAGE
    outage = random.choice([*Failure, Failure.AWAY] if is_quiet else [*Failure])
    has_poison = has_dead_topic and random.random() < (0.3 if is_quiet else 0.7)
    quick, slow = [(1.0, 10.0), (10.0, 2_000.0)], [(10.0, 2_000.0), (1_000.0, 15_000.0)]
    return TargetHabits(
        work_ms=random.choice({Kind.OUTAGE: quick, Kind.OVERTAKING: slow}.get(kind, [*quick, slow[-1]])),
        failure_rate=0.0 if is_quiet else random.choice([0.0, 0.03, 0.1]),
        outage=outage,
        outage_rate=0.8 if outage is Failure.AWAY and random.random() < 0.7 else 1.0,
        outage_ms=(begins_ms, begins_ms + (_OUTAGES_MS[-1] if is_quiet else random.choice(_OUTAGES_MS))),
        has_poison=has_poison,
        names_poison=random.random() < 0.5,
        is_lethal=has_poison and random.random() < 0.3,
        death_rate=0.0 if is_quiet else random.choice([0.0, 0.0, 0.03]),
        freeze_rate=0.0 if is_quiet else random.choice([0.0, 0.0, 0.05]),
    )


def draw_troubles(random: Random, kind: Kind) -> PushTroubles:
    """Mostly a service that loses nothing. A message that comes twice may be lost, too."""
    if kind is Kind.OUTAGE:
        return PushTroubles()
    doubled_rate, lost_rate = random.choice([0.0, 0.0, 0.1]), random.choice([0.0, 0.0, 0.0, 0.1])
    return PushTroubles(
        has_look=bool(doubled_rate or lost_rate) or random.random() < 0.2,
        doubled_rate=doubled_rate,
        lost_rate=lost_rate,
        frozen_rate=random.choice([0.0, 0.0, 0.01]),
    )
