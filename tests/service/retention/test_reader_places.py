"""Who is a reader of a topic, and where: what retention by acknowledgement goes by."""

from typing import Any

import pytest

from penstock_core.ids import Offset, TransactionalId
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.share.acknowledge import AckType
from penstock_core.transaction import TransactionalProducer
from penstock_core.zones.zone_state import Acks
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.push.admin.pause_subscription import delete_subscription
from penstock_service.push.admin.put_subscription import put_subscription
from penstock_service.retention.reader_places import lowest_places
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.admin.reset_share_group import delete_share_group
from penstock_service.share.dead_letters.redrive import RedriveWish, redrive
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.transactions.begin_transactions import TransactionPart, begin_transactions
from penstock_service.transactions.commit_transaction import OffsetEntry, commit_transaction
from tests.service.push.admin.setting import FUNCTION, wish
from tests.service.share.sharing import finish, new_group, take
from tests.support.group_member import GroupMember
from tests.support.service import head_of, new_topic, send


@pytest.fixture(autouse=True)
def orders(instance: Instance) -> str:
    topic = new_topic(instance, "orders", 2, retention="acknowledged")
    for partition in (0, 1):
        send(instance, topic, *map(str, range(30)), partition=partition)
    return topic


def places(instance: Instance, name: str = "orders") -> dict[int, int]:
    topic = instance.topic_cache.read_through(name)
    return {int(key.partition): int(offset) for key, offset in lowest_places(instance, [topic]).items()}


def changes(instance: Instance) -> list[int]:
    return [head_of(instance, "orders", number).reader_changes for number in (0, 1)]


def test_nobody_reads_a_new_topic(instance: Instance) -> None:
    assert places(instance) == {}


def test_lowest_commit_of_clients_without_membership_counts_in_its_partition(instance: Instance) -> None:
    for group, partition, offset in (("a", 0, 20), ("b", 0, 7), ("c", 0, 9)):
        commit_offsets(instance, group, [CommitEntry(topic="orders", partition=partition, offset=offset)])
    assert places(instance) == {0: 7}
    assert changes(instance) == [3, 0]


def test_member_holds_the_log_start_until_it_commits(instance: Instance) -> None:
    member = GroupMember(instance, "m1")
    member.settle()
    assert places(instance) == {0: 0, 1: 0}
    assert changes(instance) == [1, 1]
    member.commit(0, 12)
    assert places(instance) == {0: 12, 1: 0}
    assert changes(instance) == [1, 1], "a commit that rises tells nothing"
    member.leave()
    assert places(instance) == {0: 12, 1: 0}


def test_member_of_another_topic_holds_nothing(instance: Instance) -> None:
    new_topic(instance, "bills")
    GroupMember(instance, "m1", topics=("bills",)).settle()
    assert places(instance) == {}
    assert changes(instance) == [0, 0]


def test_member_on_a_pattern_holds_what_it_was_given(instance: Instance) -> None:
    GroupMember(instance, "m1", topics=(), patterns=("ord*",)).settle()
    assert places(instance) == {0: 0, 1: 0}


def test_commit_of_a_transaction_without_a_member_announces_itself(instance: Instance) -> None:
    name = TransactionalId("t1")
    begun = begin_transactions(instance, name)
    producer = TransactionalProducer(transactional_id=name, epoch=begun.epoch)
    part = TransactionPart(producer=producer, number=begun.number + 1, entries=[], acks=Acks.QUORUM)
    commit_transaction(instance, part, [OffsetEntry(group="tx", topic="orders", partition=1, offset=3)], 0)
    assert places(instance) == {1: 3}
    assert changes(instance) == [0, 1]


def test_share_group_holds_its_lowest_unfinished_record(instance: Instance) -> None:
    new_group(instance)
    assert places(instance) == {0: 0, 1: 0}
    taken = take(instance, 10)
    [lock] = [lock for each in taken.partitions for lock in each.locks]
    number = int(lock.partition.key.partition)
    assert places(instance) == {0: 0, 1: 0}
    finish(instance, taken)
    assert places(instance) == {0: 0, 1: 0} | {number: 10}
    delete_share_group(instance, "workers")
    assert places(instance) == {}


def test_record_on_its_way_to_the_dead_letter_topic_is_held(instance: Instance) -> None:
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    taken = take(instance, 10)
    [lock] = [lock for each in taken.partitions for lock in each.locks]
    delete_topic(instance, "dead")
    finish(instance, taken, AckType.REJECT)
    assert places(instance)[int(lock.partition.key.partition)] == 0


def test_letters_that_have_not_moved_hold_their_topic(instance: Instance) -> None:
    new_topic(instance, "dead", retention="acknowledged")
    new_group(instance, dead_letter_topic="dead")
    assert places(instance, "dead") == {0: 0}
    finish(instance, take(instance, 10), AckType.REJECT)
    take(instance, 10)  # an acquire moves the letters
    assert head_of(instance, "dead").next_offset == 10
    assert places(instance, "dead") == {0: 0}
    redrive(instance, "dead", RedriveWish(records_max=100))
    assert places(instance, "dead") == {0: 10}
    delete_share_group(instance, "workers")
    assert places(instance, "dead") == {0: 10}, "what is to come waits for its redrive, too"


def test_letters_of_a_subscription_hold_their_topic(instance: Instance) -> None:
    new_topic(instance, "bills")
    put_subscription(instance, "packing", wish(["bills"], {"lambda": FUNCTION}, dead_letter_topic="orders"))
    assert places(instance) == {0: 0, 1: 0}


@pytest.mark.parametrize("mode", ["ordered", "parallel"])
def test_subscription_holds_its_place(instance: Instance, mode: str) -> None:
    settings: dict[str, Any] = {"mode": mode, "start": "earliest"}
    made, _ = put_subscription(instance, "packing", wish(["orders"], {"lambda": FUNCTION}, **settings))
    assert places(instance) == {0: 0, 1: 0}
    assert changes(instance) == [1, 1]
    topic_id = made.topics["orders"]  # type: ignore[index]
    key = DeliveryKey(subscription_id=made.subscription_id, topic_id=topic_id, partition=0)  # type: ignore[arg-type]
    if mode == "ordered":
        instance.stores.push.put_delivery(key, DeliveryState(offset=Offset(17)))
        assert places(instance) == {0: 17, 1: 0}
    delete_subscription(instance, "packing")
    if mode == "ordered":
        assert places(instance) == {}


def test_subscription_that_starts_at_the_end_holds_that(instance: Instance) -> None:
    put_subscription(instance, "packing", wish(["orders"], {"lambda": FUNCTION}, start="latest"))
    assert places(instance) == {0: 30, 1: 30}
    put_share_group(instance, "late", ["orders"], {"start": "latest"})
    assert places(instance) == {0: 30, 1: 30}
