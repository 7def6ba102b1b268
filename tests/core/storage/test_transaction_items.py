import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import NO_NONCE, Nonce, Partition, PartitionKey, TimerId, TopicId, TransactionalId
from penstock_core.limits import TIMER_MS_MAX
from penstock_core.log.ref import encode_ref
from penstock_core.log.timer import TimerPlace
from penstock_core.storage.transaction_items import StagedRef, parse_stage, stage_item, stage_prefix
from penstock_core.transaction import TransactionalProducer
from tests.core.log.test_ref import GOLDEN, REFS
from tests.core.storage.stored_values import KEY

PRODUCER = TransactionalProducer(transactional_id=TransactionalId("pay"), epoch=2)
KEYS = st.builds(
    PartitionKey, st.from_regex(r"[0-9a-f]{20}", fullmatch=True).map(TopicId), st.integers(0, 999).map(Partition)
)

PLACES = st.builds(TimerPlace, st.integers(0, TIMER_MS_MAX), st.binary(min_size=16, max_size=16).map(TimerId))
NOW = st.builds(StagedRef, st.text(), KEYS, REFS, st.none(), st.just(0))
LATER = st.builds(StagedRef, st.text(), KEYS, REFS, PLACES, st.integers(0, 2**32 - 1))


@given(st.lists(NOW | LATER, max_size=4))
def test_stage_survives_a_round_trip_in_order(refs: list[StagedRef]) -> None:
    assert parse_stage(stage_item(PRODUCER, 5, NO_NONCE, 1, refs, 9_000)) == refs


def test_stage_item_is_what_is_stored_today() -> None:
    assert stage_item(PRODUCER, 5, NO_NONCE, 1, [StagedRef("orders", KEY, GOLDEN)], 9_000) == {
        "pk": {"S": "#transactional#pay"},
        "sk": {"S": "stage#00002#00000000000000000005#00001"},
        "refs": {
            "L": [{"M": {"topic": {"S": "orders"}, "partition": {"S": "00ff#7"}, "ref": {"B": encode_ref(GOLDEN)}}}]
        },
        "expires_at_s": {"N": str(9 + 86_400)},
    }


@pytest.mark.parametrize("nonce", [NO_NONCE, Nonce(b"n" * 16)])
def test_stages_of_one_transaction_share_a_prefix_of_their_own(nonce: Nonce) -> None:
    keys = [stage_item(PRODUCER, 5, nonce, stage, [], 0)["sk"]["S"] for stage in (0, 1, 10)]
    assert keys == sorted(keys)
    assert all(key.startswith(stage_prefix(2, 5, nonce)) for key in keys)
    assert not any(
        key.startswith(stage_prefix(2, 50, nonce)) or key.startswith(stage_prefix(20, 5, nonce)) for key in keys
    )
    others = [each for each in (NO_NONCE, Nonce(b"n" * 16), Nonce(b"o" * 16)) if each != nonce]
    assert not any(key.startswith(stage_prefix(2, 5, other)) for key in keys for other in others)


def test_key_of_a_stage_names_the_transactions_nonce() -> None:
    item = stage_item(PRODUCER, 5, Nonce(bytes(range(16))), 1, [], 0)
    assert item["sk"] == {"S": "stage#00002#00000000000000000005:000102030405060708090a0b0c0d0e0f#00001"}
