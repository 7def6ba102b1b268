"""A busy topic moves to a stage of another storage profile: docs/how-to/move-a-stage.md, with its commands."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from penstock import testing
from penstock.cli import mirrors
from penstock.consumer.consumer import Consumer
from penstock.errors import ConflictError
from penstock.group import stages as consumer_stages
from penstock.http.transport import StagesTransport
from penstock.producer.producer import Producer
from penstock.testing import MemoryPenstock
from penstock_service.adapters.memory.service import memory_instance
from tests.sdk.cli.command import run_json
from tests.support.deadlines import until

OLD, NEW = "https://old.example", "https://new.example"
PARTITIONS, RECORDS = 3, 150  # records before the mirror, before the promotion, and after it
Place = tuple[int, int]  # partition and offset


class Busy:
    """Two producers and two members of a group, who know both stages, and what they sent and read."""

    def __init__(self, old: MemoryPenstock, new: MemoryPenstock) -> None:
        self.old, self.new = old, new
        self.acked: dict[bytes, Place] = {}
        self.read: Counter[tuple[Place, bytes | None]] = Counter()
        self.failures: list[BaseException] = []
        self._ends, self._has_all = threading.Event(), threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Clients work during the block, and until each record was read. The stages push all the time."""
        works: list[Callable[[], None]] = [self._push, *[self._consume] * 2]
        works += [partial(self._produce, number) for number in range(2)]
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for each in threads:
            each.start()
        try:
            yield
            self._ends.set()
            for each in threads[3:]:
                each.join()
            until(lambda: self.failures or self.places_read() >= {*self.acked.values()}, shown=self._missing)
        finally:
            self._ends.set()
            self._has_all.set()
            for each in threads:
                each.join()
        assert not self.failures

    def go_on(self) -> None:
        """Wait until so many more records were acknowledged."""
        wanted = len(self.acked) + RECORDS
        until(lambda: self.failures or len(self.acked) >= wanted, shown=lambda: len(self.acked))

    def places_read(self) -> set[Place]:
        return {place for place, _ in [*self.read]}

    def _missing(self) -> object:
        return {*self.acked.values()} - self.places_read()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)
            raise

    def _push(self) -> None:
        while not self._has_all.wait(0.02):
            self.old.deliver_pushes()
            self.new.deliver_pushes()

    def _produce(self, number: int) -> None:
        transport = StagesTransport([OLD, NEW], [self.old.transport, self.new.transport])
        chance = random.Random(number)
        with Producer(transport=transport, linger_ms=0, retry_backoff_max_ms=100) as producer:
            count = 0
            while not self._ends.is_set():
                sent = [(f"{number}-{count + each}".encode(), chance.randrange(PARTITIONS)) for each in range(5)]
                waiting = [(value, producer.send("orders", value, partition=where)) for value, where in sent]
                for value, each in waiting:
                    told = each.result()
                    self.acked[value] = told.partition, told.offset
                count += len(sent)

    def _consume(self) -> None:
        consumer = Consumer(
            "orders", urls=[OLD, NEW], group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
        )
        with consumer:
            while not self._has_all.is_set():
                for each in consumer.poll(timeout_ms=50):
                    self.read[(each.partition, each.offset), each.value] += 1
                consumer.commit()


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Busy]:
    """A stage of one zone that puts all into it, and one of three zones that keeps small appends as items."""
    with monkeypatch.context() as one_zone:
        one_zone.setattr(testing, "memory_instance", partial(memory_instance, zones=("a",)))
        one = MemoryPenstock(inline_bytes_max=0)
    three = MemoryPenstock()
    with one if request.param == 1 else three as old, three if request.param == 1 else one as new:
        old.add_stage(NEW, new)
        new.add_stage(OLD, old)
        stages = {OLD: old.transport, NEW: new.transport}
        monkeypatch.setattr(mirrors, "open_transport", lambda url, _: stages[url])
        monkeypatch.setattr(consumer_stages, "open_transport", lambda url, *others: stages.get(url, others[-1]))
        old.create_topic("orders", partitions=PARTITIONS)
        yield Busy(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("busy", [1, 3], indirect=True, ids=["from one zone to three", "from three zones to one"])
def test_busy_topic_moves_to_another_profile_without_loss_or_doubling(busy: Busy) -> None:
    old, new = busy.old, busy.new
    assert {len(each._instance.stores.zone_names) for each in (old, new)} == {1, 3}
    with busy.running():
        busy.go_on()
        run_json(old.transport, "mirrors", "create", "move", "orders", "--to", NEW, "--source", OLD)
        busy.go_on()
        until(lambda: all(each.succeeded_ms for each in old.admin().describe_subscription("move").partitions))
        promoted = run_json(new.transport, "mirrors", "promote", "orders", "--yes")["orders"]
        busy.go_on()
    ends = {each["partition"]: each["promoted_at"] for each in promoted["partitions"]}
    logs = [{(each.partition, each.offset): each.value for each in side.records("orders")} for side in (old, new)]
    assert {value: place for place, value in logs[1].items()} == busy.acked, (
        "each record once, where it was acknowledged"
    )
    assert len(logs[1]) == len(busy.acked)
    assert logs[0] == {place: value for place, value in logs[1].items() if place[1] < ends[place[0]]}
    assert len(logs[0]) >= 2 * RECORDS
    assert len(logs[1]) >= len(logs[0]) + RECORDS
    assert {*busy.read} == {*logs[1].items()}, "members have read each record, and no other"
    with pytest.raises(ConflictError, match=NEW), old.producer() as producer:
        producer.send("orders", b"late").result()
    assert run_json(old.transport, "mirrors", "delete", "move", "--yes") == {"deleted": "move"}
    old.admin().delete_topic("orders")
    assert [each.name for each in new.admin().list_topics()] == ["orders"]
