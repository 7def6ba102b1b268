"""Oracles of subscriptions and share groups that are deleted in mid-work: no false alarm, and no word of another's."""

import pytest

from penstock_core.ids import Partition, PartitionKey
from penstock_core.push.lane import LaneKey, LaneState, Turn, take
from penstock_core.push.subscription import Subscription
from penstock_core.share.draft import ShareUpdate
from penstock_core.share.share_state import ShareKey
from penstock_core.transaction import Move, MoveOutcome, ShareCommit
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.share.admin.reset_share_group import delete_share_group
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.push_attempts import PushAttempts
from tests.simulation.oracle.push_records import Beginning, PushRecords
from tests.simulation.oracle.push_watch import PushWatch
from tests.simulation.oracle.pushes import PushOracle
from tests.simulation.oracle.violation import ViolationError
from tests.simulation.service.simulation import Simulation
from tests.simulation.workloads.sharing.worked_group import WorkedGroup

FUNCTION = {"lambda": "arn:aws:lambda:eu-west-1:123456789012:function:pack"}


def _oracle(simulation: Simulation, subscription: Subscription) -> PushOracle:
    records = PushRecords(simulation=simulation, name="packing", topic="orders", tags=None, begins=Beginning())
    attempts = PushAttempts(records=records, config=subscription.config)
    return PushOracle(
        simulation=simulation, subscription=subscription, records=records, attempts=attempts, is_in_history=False
    )


def test_delivery_that_takes_its_lane_right_after_a_deletion_may_invoke_its_target() -> None:
    simulation = Simulation(1)
    simulation.topic("orders", partitions=1)
    instance = simulation.undisturbed()
    watch = PushWatch(simulation, lambda subscription: _oracle(simulation, subscription))
    wish = SubscriptionWish(topics=["orders"], target=FUNCTION, settings={"mode": "parallel"})
    subscription, _ = put_subscription(instance, "packing", wish)
    delete_subscription(instance, "packing")
    turn = Turn(message_id="message-1", nonce="n", sent_version=0, seen_version=0, now_ms=EPOCH_MS)
    taken = take(None, turn)
    assert isinstance(taken, LaneState)
    instance.stores.push.put_lane(LaneKey(subscription_id=subscription.subscription_id, lane=0), taken)
    oracle = watch.oracles[subscription.subscription_id]
    oracle.invoked([], 0, "message-1")
    with pytest.raises(ViolationError, match="has not taken lane 0 by message-2"):
        oracle.invoked([], 0, "message-2")


@pytest.mark.parametrize(("deleted", "buried"), [("own", 1), ("other", 0)])
def test_share_oracle_counts_the_late_burial_of_its_own_group_only(
    deleted: str, buried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(1)
    topic = simulation.topic("work", partitions=1)
    groups = {name: WorkedGroup.put(simulation, name, topic, {}) for name in ("own", "other")}
    oracle, gone = groups["own"].oracle, groups[deleted].oracle.group_id
    delete_share_group(simulation.undisturbed(), deleted)
    place = PartitionKey(simulation.stores.topics.list()[0].topic_id, Partition(0))
    monkeypatch.setattr(oracle, "_letters_of", lambda _: {(0, 7)})
    share = ShareCommit(key=ShareKey(gone, place.topic_id, place.partition), update=ShareUpdate(generation=0))
    move = Move(shares=[share], refs={})
    for observe in simulation.storage.observers:
        if observe == oracle._observe:
            observe("transactions", "move", (move,), MoveOutcome(is_applied=True))
    assert oracle.buried.total() == buried
