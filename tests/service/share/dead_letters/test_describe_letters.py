"""Which dead letters are open, whatever redrives have done, and after retention."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import DEAD_LETTER_RANGES_MAX
from penstock_service.instance.instance import Instance
from penstock_service.share.dead_letters import describe_letters as module
from penstock_service.share.dead_letters.describe_letters import describe_letters
from penstock_service.share.dead_letters.redrive import RedriveCursor, RedriveWish, redrive
from penstock_service.topics.alter_topic import truncate
from tests.support.service import new_topic, send


def test_all_letters_are_open_before_the_first_redrive(instance: Instance) -> None:
    new_topic(instance, "dead", partitions=2)
    for number in range(3):
        send(instance, "dead", str(number), partition=1)
    assert [(each.records, each.open, each.open_ranges) for each in describe_letters(instance, "dead")] == [
        (0, 0, ()),
        (3, 3, ((0, 3),)),
    ]


def test_letters_that_retention_removed_are_not_open(instance: Instance) -> None:
    new_topic(instance, "dead")
    for number in range(6):
        send(instance, "dead", str(number))
    redrive(instance, "dead", RedriveWish(records_max=1, only=RedriveCursor(0, 4), is_drop=True))
    truncate(instance, "dead", {0: 2})
    [found] = describe_letters(instance, "dead")
    assert (found.records, found.open, found.open_ranges, found.ranges_from) == (4, 3, ((2, 4), (5, 6)), 2)


def test_answer_of_many_ranges_tells_the_newest(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEAD_LETTER_RANGES_MAX", 2)
    new_topic(instance, "dead")
    for number in range(9):
        send(instance, "dead", str(number))
    for offset in (1, 3, 5):
        redrive(instance, "dead", RedriveWish(records_max=1, only=RedriveCursor(0, offset), is_drop=True))
    [found] = describe_letters(instance, "dead")
    assert (found.open, found.open_ranges, found.ranges_from) == (6, ((4, 5), (6, 9)), 4)
    assert DEAD_LETTER_RANGES_MAX == 10_000


def test_topic_that_is_unknown_is_refused(instance: Instance) -> None:
    with pytest.raises(PenstockError) as caught:
        describe_letters(instance, "dead")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
