"""What subscriptions draw, and a name with one subscription after another: its target, its oracles, how it is made."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

from penstock_core.ids import PartitionKey
from penstock_core.push.batch import Answer, Failure, PushBatch
from penstock_core.push.subscription import EARLIEST, LATEST, ORDERED, PARALLEL, Subscription
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from tests.simulation.clients.push_target import PushTarget, TargetHabits
from tests.simulation.oracle.push_attempts import PushAttempts
from tests.simulation.oracle.push_records import Beginning, PushRecords
from tests.simulation.oracle.pushes import PushOracle
from tests.simulation.service.push_service import PushService, PushTroubles
from tests.simulation.service.simulation import Simulation

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


@dataclass(slots=True, kw_only=True)
class SubscribedName:
    """`topic` is what it reads, `tags` what its filter wants, None for all records.

    `is_in_history` is False if it is deleted some time: a history cannot tell apart two subscriptions of one name.
    """

    simulation: Simulation
    kind: Kind
    name: str
    topic: str
    tags: Sequence[str] | None
    target: PushTarget
    target_document: dict[str, Any]
    dead_topic: str | None
    is_in_history: bool
    settings: dict[str, Any] = field(default_factory=dict)
    oracles: list[PushOracle] = field(default_factory=list)
    _ends: dict[PartitionKey, int] = field(default_factory=dict)  # when its creation began

    @property
    def is_copy(self) -> bool:
        """Whether the target is a topic."""
        return "topic" in self.target_document

    def begin(self, settings: dict[str, Any]) -> None:
        """It is about to be created with these settings."""
        self.settings = settings
        self._ends = self._ends_now()

    def put(self, instance: Instance) -> None:
        """Create it, or put it as it is."""
        policy = None if self.tags is None else {"tag": self.tags}
        wish = SubscriptionWish(
            topics=[self.topic], target=self.target_document, settings={**self.settings, "filter": policy}
        )
        put_subscription(instance, self.name, wish)

    def created(self, subscription: Subscription) -> PushOracle:
        """The oracle of the subscription, which was created just now."""
        begins = Beginning()
        if subscription.config.start == LATEST:
            begins = Beginning(first=self._ends, last=self._ends_now())
        records = PushRecords(
            simulation=self.simulation, name=self.name, topic=self.topic, tags=self.tags, begins=begins
        )
        oracle = PushOracle(
            simulation=self.simulation,
            subscription=subscription,
            records=records,
            attempts=PushAttempts(records=records, config=subscription.config),
            is_in_history=self.is_in_history,
        )
        self.oracles.append(oracle)
        return oracle

    def answer(self, oracle: PushOracle, service: PushService, batch: PushBatch) -> Answer:
        """The target's answer to a delivery."""
        message = service.message_of_caller()
        attempt = oracle.invoked(batch.records, message.message.lane, message.message_id)
        return self.target.answer(oracle, batch, attempt)

    def _ends_now(self) -> dict[PartitionKey, int]:
        log = self.simulation.oracle.log
        return {key: end for key, end in log.ends.items() if log.names.get(key.topic_id) == self.topic}
