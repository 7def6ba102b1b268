"""An operator creates, deletes, alters and truncates topics, and keeps account of the answers."""

from penstock_core.errors import Category, PenstockError
from penstock_core.ids import TopicId
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from penstock_service.topics.create_topic import create_topic
from penstock_service.topics.describe_topic import describe_topic
from tests.history import format as history
from tests.simulation.service.simulation import Simulation


class SimulatedAdmin:
    """One operator. Only one operator changes topics at a time, except where a workload has two."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self._simulation = simulation
        self._name = name

    def create(self, topic: str, partitions: int) -> None:
        """Create the topic, and try again until it exists."""
        began_ms = self._simulation.scheduler.now_ms
        while True:
            try:
                self._simulation.call(lambda instance: create_topic(instance, topic, partitions, {}), is_read=False)
                break
            except PenstockError as error:
                if error.code.category is Category.CONFLICT:
                    break
                self._simulation.scheduler.pause(50.0)
        self._changed(topic, began_ms)

    def delete(self, topic: str) -> None:
        """Delete the topic, and try again until it is gone."""
        began_ms = self._simulation.scheduler.now_ms
        is_first = True
        while True:
            topic_id = self._topic_id(topic)
            if topic_id is None:
                break
            try:
                self._simulation.call(lambda instance: delete_topic(instance, topic), is_read=False)
                if is_first:  # an earlier try may have taken the name and left heads, and was not confirmed
                    self._simulation.oracle.deleted_at_ms[topic_id] = self._simulation.scheduler.now_ms
                break
            except PenstockError as error:
                is_first = False
                if error.code.category is Category.NOT_FOUND:
                    break
                self._simulation.scheduler.pause(50.0)
        self._changed(topic, began_ms)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Ask once for at least this many partitions."""
        self._simulation.attempt("refused", lambda instance: alter_topic(instance, topic, partitions, {}))

    def truncate(self, topic: str, share: float) -> None:
        """Cut each partition once, at this share of its records."""
        try:
            _, bounds = self._simulation.call(
                lambda instance: describe_topic(instance.topic_cache, instance.stores.log, topic), is_read=True
            )
        except PenstockError:
            return
        before: dict[int, int] = {
            each.partition: each.log_start_offset + int(share * (each.high_watermark - each.log_start_offset))
            for each in bounds
        }
        if not before:
            return
        for partition, offset in before.items():
            self._simulation.claims.truncating((topic, partition), offset)
        recorder = self._simulation.recorder
        ops = [history.Truncate((topic, partition), offset) for partition, offset in before.items()]
        operation = recorder.invoke(self._name, history.Function.TRUNCATE, ops)
        try:
            results = self._simulation.call(lambda instance: truncate(instance, topic, before), is_read=False)
        except PenstockError as error:
            if error.maybe_applied:
                recorder.maybe(operation)
            else:
                recorder.fail(operation)
            return
        if any(isinstance(result, PenstockError) for result in results):
            recorder.maybe(operation)
        else:
            recorder.ok(operation)

    def _topic_id(self, topic: str) -> TopicId | None:
        while True:
            try:
                return self._simulation.call(
                    lambda instance: describe_topic(instance.topic_cache, instance.stores.log, topic), is_read=True
                )[0].topic_id
            except PenstockError as error:
                if error.code.category is Category.NOT_FOUND:
                    return None
                self._simulation.scheduler.pause(50.0)

    def _changed(self, topic: str, began_ms: float) -> None:
        self._simulation.claims.topic_changes.setdefault(topic, []).append(
            (began_ms, self._simulation.scheduler.now_ms)
        )
