"""What one subscription must do with its records (G13): each is handled, or dead-lettered once, or removed before.

In ordered mode the records of a partition are handled in order for the first time. Later copies may come: of a batch
whose answer was lost, or behind a record that the target has named.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock_core.ids import PartitionKey
from penstock_core.push.batch import PushRecord
from penstock_core.push.subscription import Subscription
from penstock_core.push.targets.target import TopicTarget
from penstock_core.records.codec import decode
from tests.history import format as history
from tests.history.recorder import Recorder
from tests.simulation.oracle.expected_log import Appended
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation
from tests.support.dead_letters import dead_letter_of


def is_poison(value: str) -> bool:
    """Whether no target can handle the record, where there is poison."""
    return value[-1] in "47"


@dataclass(slots=True, kw_only=True)
class PushOracle:
    """The records of one subscription to `topic`. `tags` are those that its filter wants, None for all records."""

    simulation: Simulation
    subscription: Subscription
    topic: str
    tags: Sequence[str] | None
    has_poison: bool
    handled: dict[PartitionKey, Counter[int]] = field(default_factory=dict)
    batches: int = 0

    def __post_init__(self) -> None:
        config = self.subscription.config
        push = history.Push(topics=(self.topic,), dead_letter_topic=config.dead_letter_topic)
        self._recorder.done("operator", history.Function.PUSH, [push], group=self.subscription.name)

    @property
    def _recorder(self) -> Recorder:
        return self.simulation.recorder

    def is_wanted(self, value: str) -> bool:
        """Whether the filter lets the record through."""
        return self.tags is None or value[-1] in self.tags

    def handle(self, records: Sequence[PushRecord]) -> None:
        """The target handles these records, in this order."""
        for each in records:
            key, offset = each.place
            value = (each.record.value or b"").decode()
            name = self.subscription.name
            expect(self.simulation.oracle.log.value_at(self.topic, key.partition, offset, value), f"{name} got {value}")
            expect(self.is_wanted(value), f"{name} got {value}, which its filter does not want")
            handled = self.handled.setdefault(key, Counter())
            if offset not in handled:
                later = [other for other in handled if other > offset]
                expect(not later, f"{name} handled {key} at {later} before {offset}")
            handled[offset] += 1
            handling = history.Handling((self.topic, int(key.partition)), ((int(offset), value),))
            self._recorder.done(name, history.Function.HANDLE, [handling], group=name)

    def check_end(self, *, is_exact: bool) -> None:
        """All is quiet. `is_exact`: nothing has failed, so no record may have come twice."""
        log, starts, name = self.simulation.oracle.log, self.simulation.oracle.log_starts, self.subscription.name
        dead = self._written(self.subscription.config.dead_letter_topic)
        target = self.subscription.target
        copied = self._written(target.topic) if isinstance(target, TopicTarget) else Counter[str]()
        for key, appends in log.appends.items():
            if log.names.get(key.topic_id) != self.topic:
                continue
            handled = self.handled.get(key, Counter())
            expect(not is_exact or max(handled.values(), default=0) < 2, f"{name} handled {key} twice: {handled}")
            for each in appends:
                for offset, value in enumerate(each.values, start=each.base_offset):
                    if not self.is_wanted(value):
                        continue
                    place = f"{value} at {offset} of {key}"
                    is_dead = self.has_poison and is_poison(value)
                    is_removed = offset < starts.get(key, 0)
                    came = copied[value] > 0 if isinstance(target, TopicTarget) else handled[offset] > 0
                    expect(came or is_dead or is_removed, f"{name} has lost {place}")
                    expect(dead[value] == 0 or is_dead, f"{name} has dead-lettered {place}, a good record")
                    if is_dead and not is_removed:
                        expect(dead[value] > 0, f"{name} has not dead-lettered {place}")
        self._tell_end()
        self._check_written(dead, "dead-lettered")
        self._check_written(copied, "copied")

    def _tell_end(self) -> None:
        """Tell the history of what retention has removed, of the dead letters, and of the end."""
        oracle, name = self.simulation.oracle, self.subscription.name
        for key, log_start in oracle.log_starts.items():
            if oracle.log.names.get(key.topic_id) == self.topic:
                expired = history.Truncate((self.topic, int(key.partition)), int(log_start))
                self._recorder.done("retention", history.Function.TRUNCATE, [expired])
        dead_topic = self.subscription.config.dead_letter_topic
        for key, appends in [*oracle.log.appends.items()]:
            if dead_topic is not None and oracle.log.names.get(key.topic_id) == dead_topic:
                letters = tuple(each for entry in appends for each in self._letters(entry))
                found = history.DeadLetters((dead_topic, int(key.partition)), letters)
                self._recorder.done("final", history.Function.DEAD_LETTERS, [found])
        if self.tags is None and not isinstance(self.subscription.target, TopicTarget):
            self._recorder.done("final", history.Function.DRAINED, [history.Drained(self.topic)], group=name)

    def _letters(self, entry: Appended) -> list[history.DeadLetter]:
        ref = entry.ref
        body = memoryview(self.simulation.oracle.log.bodies[ref.segment_id])[ref.position : ref.position + ref.length]
        return [
            dead_letter_of(offset, (record.value or b"").decode(), record.key, record.headers)
            for offset, record in enumerate(decode(body), start=entry.base_offset)
        ]

    def _written(self, topic: str | None) -> Counter[str]:
        """How often each value was appended to a topic that only this subscription writes to."""
        log = self.simulation.oracle.log
        return Counter(
            value
            for key, appends in log.appends.items()
            if topic is not None and log.names.get(key.topic_id) == topic
            for each in appends
            for value in each.values
        )

    def _check_written(self, written: Counter[str], verb: str) -> None:
        """No record is there more often than it is in the subscription's topic: a retry may have left copies there."""
        for value, count in written.items():
            places = [
                place
                for place in self.simulation.oracle.log.places.get(value, ())
                if self.simulation.oracle.log.names.get(place[0].topic_id) == self.topic
            ]
            expect(count <= len(places), f"{self.subscription.name} has {verb} {value} {count} times of {len(places)}")
            is_whole = not any(self.simulation.oracle.log_starts.get(key, 0) for key, _, _ in places)
            expect(
                count == len(places) or not is_whole, f"{self.subscription.name} has {verb} {value} {count} times only"
            )
