"""A name under which there is one subscription after another, with one target: its oracles, and how it is made."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock_core.ids import PartitionKey
from penstock_core.push.batch import Answer, PushBatch
from penstock_core.push.subscription import LATEST, Subscription
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from tests.simulation.clients.push_target import PushTarget
from tests.simulation.oracle.push_attempts import PushAttempts
from tests.simulation.oracle.push_records import Beginning, PushRecords
from tests.simulation.oracle.pushes import PushOracle
from tests.simulation.service.push_service import PushService
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.pushing.choices import Kind


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
