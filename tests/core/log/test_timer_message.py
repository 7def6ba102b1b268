import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.timer import DueSecond, decode_due_second, encode_due_second
from tests.support.refusals import refused

SECOND = DueSecond(1_800_000_000, PartitionKey(TopicId("0f" * 10), Partition(3)))


def test_message_about_a_second_round_trip() -> None:
    text = encode_due_second(SECOND)
    assert text == '{"partition": "0f0f0f0f0f0f0f0f0f0f#3", "due_s": 1800000000}'
    assert decode_due_second(text) == SECOND


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"partition": "x", "due_s": 1}', '{"partition": "a#1", "due_s": "b"}']
)
def test_other_texts_are_refused(text: str) -> None:
    refused(ErrorCode.INVALID_REQUEST, lambda: decode_due_second(text))
