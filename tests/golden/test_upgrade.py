"""This release works on what each recorded release has stored, and on items to which a later one has added.

The added attribute stands for the format N + 1: it must survive each change of its item.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.formats import FORMAT_ATTRIBUTE
from penstock_core.ids import Offset, TopicName, TransactionalId
from penstock_core.limits import SWEEP_GRACE_MS, TAIL_ROLL_REFS
from penstock_core.push.lane import LaneKey, finish
from penstock_core.push.subscription import note_of
from penstock_core.schedules.schedule import succeeded
from penstock_core.transaction import id_expiry_s
from penstock_core.zones.zone_state import ZoneStatus
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.compaction.compact import compact
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from tests.core.push.push_samples import FULL, PLAIN
from tests.core.schedules.schedule_samples import FULL as FULL_SCHEDULE
from tests.golden.layout import kind_of
from tests.golden.record import APPENDS, FOLDER, GONE, NONCES, PRODUCERS, arm, golden
from tests.golden.stage import TABLES, Item, Stage, empty_stage, folder_stage, load_folder
from tests.handlers.test_groups import Member
from tests.handlers.test_transactions import begin, next_number, transact
from tests.service.compaction.written_topic import HOUR_MS, SMALL
from tests.service.records.test_idempotence import numbered
from tests.support.service import batch, key_of, read_all

pytestmark = pytest.mark.slow

RECORDED = sorted([*FOLDER.glob("*/stored.json"), *FOLDER.glob("*/folder.sql")])
LATER = {"added_later": {"S": "kept"}}
# A release puts these whole: what a later release has noted there belongs to the old content (docs/adr/0036).
REPLACED = {"page", "merge_mark", "producer", "cursor"}
FOR_EVER_MS = 1e9
WRITTEN = max(PRODUCERS, APPENDS)

Stored = Mapping[tuple[str, str, str], Item]


def stored_items(stage: Stage) -> Stored:
    return {(table, item["pk"]["S"], item["sk"]["S"]): item for table in TABLES for item in stage.items(table)}


@pytest.fixture(params=RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """The store of a recorded release, on AWS or in a data folder, with an attribute more in each item."""
    path: Path = request.param
    recorded = golden(path.parent.name)
    if path.suffix == ".sql":
        load_folder(tmp_path, path.read_text())
        with folder_stage(tmp_path, seed=2, at_ms=recorded["at_ms"]) as stage:
            for table in TABLES:
                for item in stage.items(table):
                    stage.put(table, item | LATER)
            yield stage
        return
    for table, items in recorded["tables"].items():
        recorded["tables"][table] = [item | LATER for item in items]
    with empty_stage(seed=2) as stage:
        stage.load(recorded)
        yield stage


def changed_kinds(stage: Stage, before: Stored) -> set[str]:
    """The kinds of the items that have changed. Those that must keep an attribute of a later release have kept it."""
    now = stored_items(stage)
    changed = [now[key] for key in before.keys() & now.keys() if now[key] != before[key]]
    lost = {kind_of(item) for item in changed if not item.items() >= LATER.items()}
    assert lost <= REPLACED
    return {kind_of(item) for item in changed}


def test_recorded_log_is_read_appended_to_and_rolled(stage: Stage) -> None:
    before = stored_items(stage)
    assert [value for _, value in read_all(stage.instance, "orders")] == [str(number) for number in range(WRITTEN)]
    cleaned = stage.service.read("table", offset="0")["records"]
    assert {each["key"]: each["value"] for each in cleaned} | {"1": "13"} == {"0": "15", "1": "13", "2": "14"}
    assert [offset for offset, _ in read_all(stage.instance, "orders", 1, offset=3)] == [*range(3, TAIL_ROLL_REFS + 1)]
    for number in (0, WRITTEN - 1):
        repeat = stage.service.produce(("orders", 0, numbered(0, f"{number}", producer_id=number + 1)))
        assert repeat.json["results"][0]["base_offset"] == number, "of a producer beside the head, and of one in it"
    for number in range(TAIL_ROLL_REFS):
        assert stage.service.produce(("orders", 1, batch(f"more {number}"))).status == 200
    wake_ups = stage.instance.stores.wake_ups
    assert isinstance(wake_ups, MemoryWakeUps)
    told = [message.channel for message in wake_ups.messages if message.channel.endswith("/1")]
    assert len(told) == 1, "a reader of the recorded release waits, and one append wakes it"
    key = key_of(stage.instance, "orders", 1)
    assert before["log", str(key), "head"]["push_waiter"]
    assert not stage.instance.stores.log.heads([key])[key].has_push_waiter
    assert arm(stage, 1)
    for number in range(WRITTEN):
        answer = stage.service.produce(("orders", 0, numbered(0, "new", producer_id=1_000 + number)))
        assert answer.status == 200
    assert changed_kinds(stage, before) == {"head"}
    pages = stage.instance.stores.log.pages(key, Offset(0), 10)
    assert len(pages) == 2


def test_recorded_group_goes_on(stage: Stage) -> None:
    before = stored_items(stage)
    member = Member(stage.service, "m-1", client_id="host")
    member.sequence = 10
    granted = member.beat(subscription={"topics": ["orders", "table"]}, owned={})["granted"]
    first = next(each for each in granted if (each["topic"], each["partition"]) == ("orders", 0))
    assert (first["offset"], first["metadata"]) == (2, "note")
    offset = {"topic": "orders", "partition": 0, "offset": 5, "lease_epoch": first["lease_epoch"]}
    answer = stage.service.call("POST", "/v1/groups/billing/offsets", {"member_id": "m-1", "offsets": [offset]})
    assert answer.json["results"] == [{"topic": "orders", "partition": 0}]
    member.beat(owned={first["topic_id"]: [0]})
    changes = {"config": {"session_timeout_ms": 20_000}}
    assert stage.service.call("PATCH", "/v1/groups/billing", changes).status == 200
    assert stage.service.call("GET", "/v1/groups/left").json["members"] == []
    assert changed_kinds(stage, before) == {"group", "member", "lease"}


def test_recorded_transaction_commits_and_the_next_begins(stage: Stage) -> None:
    before = stored_items(stage)
    number = next_number(stage.service)
    answer = transact(stage.service, stages=1, nonce=NONCES[1])
    assert (answer.status, answer.json["results"][0]["base_offset"]) == (200, 1)
    assert [value for _, value in read_all(stage.instance, "orders", 2)] == ["committed", "staged"]
    offsets = [{"group": "readers", "topic": "orders", "partition": 1, "offset": 4}]
    told = begin(stage.service)
    assert (told["epoch"], told["transaction"]) == (1, number + 1)
    again = transact(stage.service, ("orders", 2, batch("next")), epoch=1, offsets=offsets)
    assert again.status == 200
    assert changed_kinds(stage, before) == {"transactional_producer", "head", "lease"}


def test_transactional_id_without_an_end_gets_one_when_it_is_used(stage: Stage) -> None:
    """As an earlier build of this release has stored it: it counts from 0, and nothing removes it."""
    [item] = [each for each in stage.items("log") if kind_of(each) == "transactional_producer"]
    item.pop("expires_at_s", None)
    stage.dynamodb.put_item(TableName="log", Item=item | {"transaction_number": {"N": "-1"}})
    before = stage.instance.stores.transactions.get(TransactionalId("ledger"))
    assert before is not None
    assert (before.number, before.expires_at_s) == (-1, None)
    for use in (
        lambda: transact(stage.service, ("orders", 2, batch("next")), transaction=0),
        lambda: begin(stage.service),
    ):
        stage.clock.sleep_ms(5_000)
        use()
        state = stage.instance.stores.transactions.get(TransactionalId("ledger"))
        assert state is not None
        assert (state.number, state.expires_at_s) == (0, id_expiry_s(stage.clock.now_ms()))


def test_recorded_schedules_go_on(stage: Stage) -> None:
    before = stored_items(stage)
    store = stage.instance.stores.schedules
    failing, resting = store.list("", 9)
    assert (failing.last.count, failing.last.error, failing.record) == (4, "no such topic", FULL_SCHEDULE.record)
    assert store.note(succeeded(failing, stage.clock.now_ms()))
    store.change(resting, replace(resting, version=2, next_ms=stage.clock.now_ms()))
    assert changed_kinds(stage, before) == {"schedule"}
    assert not any("failure" in item for item in stored_items(stage).values())


def test_recorded_subscription_goes_on(stage: Stage) -> None:
    before = stored_items(stage)
    store, topic_id = stage.instance.stores.push, key_of(stage.instance, "orders", 0).topic_id
    [subscription] = store.list_subscriptions("", 9)
    assert subscription == replace(FULL, topics={TopicName("orders"): topic_id})
    assert store.subscriptions_of(topic_id) == [note_of(subscription)]
    assert [each.subscription_id for each in store.orphaned_states("", 9)] == [GONE]
    states = store.states_of(subscription.subscription_id)
    store.change_subscription(subscription, replace(subscription, version=4, target=PLAIN.target))
    for number, lane in states.lanes.items():
        freed = finish(lane)
        assert store.put_lane(LaneKey(subscription_id=subscription.subscription_id, lane=number), freed) == freed
    for key, state in states.deliveries.items():
        well = replace(state, version=2, trouble=None)
        assert store.put_delivery(key, well) == well
    assert changed_kinds(stage, before) == {"subscription", "subscription_note", "push_lane", "push_delivery"}
    assert not any("secret" in item or "trouble" in item for item in stored_items(stage).values())


def test_recorded_store_is_maintained(stage: Stage) -> None:
    before = stored_items(stage)
    in_sync: list[str] = []
    for _ in range(2):
        stage.clock.sleep_ms(HOUR_MS)
        in_sync += recover_zones(stage.instance, FOR_EVER_MS).in_sync
    assert in_sync == ["c"]
    assert stage.instance.stores.zone_states.get().of(stage.instance.stores.zone_names[2]).status is ZoneStatus.IN_SYNC
    assert stage.service.call("PATCH", "/v1/topics/orders", {"config": {"max_batch_bytes": 500_000}}).status == 200
    assert stage.service.call("POST", "/v1/topics/orders/truncate", {"1": 5}).status == 200
    for number in range(4 * TAIL_ROLL_REFS):
        stage.service.send({"key": f"{number % 3}", "value": f"new {number}"}, topic="table")
    stage.clock.sleep_ms(2 * HOUR_MS)
    assert compact(stage.instance, "table", 0, SMALL).runs >= 1
    for _ in range(2):
        assert retain(stage.instance, budget_ms=FOR_EVER_MS).failures == 0
    kinds = {"catch_up", "zone_states", "topic", "head", "compaction", "deleted_topic"}
    assert changed_kinds(stage, before) - REPLACED == kinds
    stage.clock.sleep_ms(SWEEP_GRACE_MS + 3 * HOUR_MS)
    done = sweep(stage.instance, budget_ms=FOR_EVER_MS)
    assert (done.failures, done.foreign, done.is_finished) == (0, 0, True)
    assert done.deleted > 0
    assert len(read_all(stage.instance, "orders")) == WRITTEN
    assert stage.service.call("DELETE", "/v1/topics/table").status == 204


def test_later_head_is_refused_when_it_is_not_known_here(stage: Stage) -> None:
    key = key_of(stage.instance, "orders", 1)
    [head] = [item for item in stage.items("log") if (item["pk"]["S"], kind_of(item)) == (str(key), "head")]
    head[FORMAT_ATTRIBUTE] = {"N": "3"}
    head["next_offset_3"] = head.pop("next_offset")
    stage.put("log", head)
    with pytest.raises(PenstockError, match="head of format 3, this release reads 1, 2") as caught:
        read_all(stage.instance, "orders", 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT
    answer: Any = stage.service.produce(("orders", 1, batch("lost"))).json
    assert answer["results"][0]["error"]["code"] == "UNKNOWN_PARTITION"
    assert stored_items(stage)["log", str(key), "head"] == head
