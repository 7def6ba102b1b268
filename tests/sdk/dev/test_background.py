"""What AWS starts by streams, queues and schedules happens on this machine too."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from penstock import Admin, Consumer
from penstock.dev import background
from penstock.dev.background import JOBS, Background, Job, expire_items, replicate
from penstock.system import monotonic_ms
from penstock.testing import MemoryTransport
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.inline import BOUNDS_OF_PROFILES
from penstock_core.log.repair import Repair
from penstock_service.adapters.memory.messages import MemoryRepairQueue
from penstock_service.adapters.memory.service import MemorySegmentStore, memory_instance
from penstock_service.adapters.system import MovableClock, SequentialExecutor
from penstock_service.adapters.tables.tables import Tables
from penstock_service.instance.instance import Instance
from penstock_service.retention.keep_items import KeepResult
from tests.support.service import key_of

DAY_MS = 86_400_000


@pytest.fixture
def instance() -> Instance:
    return memory_instance(executor=SequentialExecutor())


@pytest.fixture
def jobs(instance: Instance) -> Iterator[Background]:
    running = Background(instance, Tables(instance.clock.now_ms), lambda: None)
    yield running
    running.close()


def produce(instance: Instance, **config: int) -> None:
    transport = MemoryTransport(instance)
    Admin(transport=transport).create_topic("orders", config=config)
    body = json.dumps({"records": [{"value": "x"}]}).encode()
    assert transport.call("POST", "/v1/topics/orders/records", {}, {}, body).status == 200


def copies(instance: Instance) -> list[int]:
    return [len(zone.segments) for zone in instance.stores.zones if isinstance(zone, MemorySegmentStore)]


def test_missing_copy_of_an_append_is_made(instance: Instance) -> None:
    [zone] = [zone for zone in instance.stores.zones if zone.zone == "c"]
    assert isinstance(zone, MemorySegmentStore)
    zone.is_down = True
    produce(instance)
    zone.is_down = False
    assert copies(instance) == [1, 1, 0]
    replicate(instance)
    assert copies(instance) == [1, 1, 1]
    replicate(instance)  # nothing is owed


def test_repair_that_fails_is_queued_again(instance: Instance) -> None:
    queue = instance.stores.repair_queue
    assert isinstance(queue, MemoryRepairQueue)
    produce(instance)
    stores = [zone for zone in instance.stores.zones if isinstance(zone, MemorySegmentStore)]
    [segment_id] = stores[0].segments
    for zone in stores:
        zone.is_down = True
    lost = Repair(segment_id=segment_id, zones=frozenset([stores[0].zone]))
    queue.send(lost)
    replicate(instance)
    assert queue.repairs == [lost]


def test_every_job_runs_when_its_time_has_come(jobs: Background) -> None:
    now_ms = monotonic_ms()
    assert jobs.run_due(now_ms + DAY_MS) == [*(job.name for job in JOBS), "expire_items"]
    assert jobs.run_due(now_ms + DAY_MS) == []


def test_job_that_fails_holds_up_no_other(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def refuse(_: Instance) -> None:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer")

    def defect(_: Instance) -> None:
        raise ValueError("a defect")

    jobs = [
        Job(name="refuses", interval_ms=DAY_MS, run=refuse),
        Job(name="breaks", interval_ms=DAY_MS, run=defect),
        Job(name="works", interval_ms=DAY_MS, run=lambda _: ran.append("works")),
    ]
    monkeypatch.setattr(background, "JOBS", jobs)
    running = Background(instance, Tables(instance.clock.now_ms), lambda: None)
    running.run_due(monotonic_ms() + DAY_MS)
    running.close()
    assert ran == ["works"]
    assert "refuses failed" in caplog.text
    assert "a defect" in caplog.text


def test_change_comes_into_the_trail(instance: Instance) -> None:
    Admin(transport=MemoryTransport(instance)).create_topic("changed")
    jobs = {job.name: job for job in JOBS}
    jobs["audit"].run(instance)
    [head] = instance.stores.log.heads([key_of(instance, "_audit")]).values()
    assert head.next_offset > 0


def test_zone_that_was_taken_out_catches_up(instance: Instance) -> None:
    admin = Admin(transport=MemoryTransport(instance))
    admin.take_zone_out("c")
    produce(instance)
    assert copies(instance) == [1, 1, 0]
    admin.let_zone_in("c")
    jobs = {job.name: job for job in JOBS}
    jobs["recover_zones"].run(instance)
    assert copies(instance) == [1, 1, 1]


def sleeping() -> tuple[Instance, Tables, MovableClock]:
    """A service with small appends as items, on a clock that a test moves, as a laptop that sleeps."""
    clock = MovableClock()
    tables = Tables(clock.now_ms)
    bounds = BOUNDS_OF_PROFILES["express3"]
    return memory_instance(tables=tables, clock=clock, executor=SequentialExecutor(), small=bounds), tables, clock


def kinds_of(tables: Tables) -> Counter[str]:
    """How many items of small appends there are, of each kind."""
    bodies = [each for each in tables.scan(TableName="log")["Items"] if "body" in each]
    return Counter("expiring" if "expires_at_s" in each else "inline" for each in bodies)


def read(instance: Instance) -> list[str]:
    with Consumer("orders", transport=MemoryTransport(instance), consumer_timeout_ms=0) as consumer:
        return [(each.value or b"").decode() for each in consumer.poll()]


def test_items_of_small_appends_go_after_their_retention() -> None:
    instance, tables, clock = sleeping()
    produce(instance)
    assert kinds_of(tables) == {"expiring": 1}
    clock.advance(22 * DAY_MS)
    expire_items(instance, tables)
    assert kinds_of(tables) == {"expiring": 1}, "14 days and a margin of 9"
    clock.advance(2 * DAY_MS)
    expire_items(instance, tables)
    assert kinds_of(tables) == {}


def test_raised_retention_keeps_items_although_the_machine_slept_over_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance, tables, clock = sleeping()
    produce(instance)
    Admin(transport=MemoryTransport(instance)).alter_topic("orders", {"retention_ms": 60 * DAY_MS})
    clock.advance(30 * DAY_MS)
    with monkeypatch.context() as failing:
        failing.setattr(background, "keep_items", lambda *_, **__: KeepResult(failures=1))
        expire_items(instance, tables)
    assert kinds_of(tables) == {"expiring": 1}, "a walk that failed has still to copy it"
    expire_items(instance, tables)
    assert kinds_of(tables) == {"inline": 1}
    clock.advance(31 * DAY_MS)
    assert read(instance) == ["x"]


def test_old_items_without_an_end_move_into_the_archive_and_go() -> None:
    instance, tables, clock = sleeping()
    produce(instance, retention_ms=-1)
    assert kinds_of(tables) == {"inline": 1}
    jobs = {job.name: job for job in JOBS}
    clock.advance(DAY_MS)
    jobs["tier"].run(instance)
    assert isinstance(instance.stores.archive, MemorySegmentStore)
    assert len(instance.stores.archive.segments) == 1
    clock.advance(2 * DAY_MS)
    jobs["sweep"].run(instance)
    assert kinds_of(tables) == {}
    assert read(instance) == ["x"]


def test_items_whose_time_is_over_go_while_the_server_runs(instance: Instance) -> None:
    tables = Tables(instance.clock.now_ms)
    key = {"pk": {"S": "#x"}, "sk": {"S": "a"}}
    tables.put_item(TableName="groups", Item={**key, "expires_at_s": {"N": str(instance.clock.now_ms() // 1_000 - 10)}})
    running = Background(instance, tables, lambda: None)
    running.run_due(monotonic_ms() + DAY_MS)
    running.close()
    assert "Item" not in tables.get_item(TableName="groups", Key=key)
