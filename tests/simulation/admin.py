"""An operator: creates, deletes, alters and truncates, and keeps account of what it was told."""

from penstock_broker.alter_topic import alter_topic
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.describe_topic import describe_topic
from penstock_broker.truncate import truncate
from penstock_core.errors import Category, PenstockError
from penstock_core.ids import TopicId
from tests.history import format as history
from tests.simulation.world import World


class SimulatedAdmin:
    """One operator; topics are changed by one operator at a time here, except where a workload has two."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def create(self, topic: str, partitions: int) -> None:
        """Create it, trying again until it exists."""
        began_ms = self._world.scheduler.now_ms
        while True:
            try:
                self._world.call(lambda broker: create_topic(broker, topic, partitions, {}), is_read=False)
                break
            except PenstockError as error:
                if error.code.category is Category.CONFLICT:
                    break
                self._world.scheduler.pause(50.0)
        self._changed(topic, began_ms)

    def delete(self, topic: str) -> None:
        """Delete it, trying again until it is gone."""
        began_ms = self._world.scheduler.now_ms
        is_first = True
        while True:
            topic_id = self._topic_id(topic)
            if topic_id is None:
                break
            try:
                self._world.call(lambda broker: delete_topic(broker, topic), is_read=False)
                if is_first:  # else an earlier try may have taken the name, and left heads: it was not confirmed
                    self._world.truth.deleted_at_ms[topic_id] = self._world.scheduler.now_ms
                break
            except PenstockError as error:
                is_first = False
                if error.code.category is Category.NOT_FOUND:
                    break
                self._world.scheduler.pause(50.0)
        self._changed(topic, began_ms)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Ask once for at least as many."""
        try:
            self._world.call(lambda broker: alter_topic(broker, topic, partitions, {}), is_read=False)
        except PenstockError as error:
            self._world.scheduler.note("refused", error)

    def truncate(self, topic: str, share: float) -> None:
        """Cut each partition at a share of what it holds; once."""
        try:
            _, bounds = self._world.call(lambda broker: describe_topic(broker, topic), is_read=True)
        except PenstockError:
            return
        before: dict[int, int] = {
            each.partition: each.log_start_offset + int(share * (each.high_watermark - each.log_start_offset))
            for each in bounds
        }
        if not before:
            return
        for partition, offset in before.items():
            self._world.claims.truncating((topic, partition), offset)
        recorder = self._world.story.recorder
        ops = [history.Truncate((topic, partition), offset) for partition, offset in before.items()]
        operation = recorder.invoke(self._name, history.Function.TRUNCATE, ops)
        try:
            results = self._world.call(lambda broker: truncate(broker, topic, before), is_read=False)
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
                return self._world.call(lambda broker: describe_topic(broker, topic), is_read=True)[0].topic_id
            except PenstockError as error:
                if error.code.category is Category.NOT_FOUND:
                    return None
                self._world.scheduler.pause(50.0)

    def _changed(self, topic: str, began_ms: float) -> None:
        self._world.claims.topic_changes.setdefault(topic, []).append((began_ms, self._world.scheduler.now_ms))
