import asyncio
from types import SimpleNamespace
from typing import Any

from penstock_kafka.dispatch.api import ApiKey, Call, Peer
from penstock_kafka.transactions.begin_and_end import InitProducerId

_NO_TRANSACTIONS: Any = None  # plain producers need nothing of the service


def _ask(**fields: object) -> Any:
    request = SimpleNamespace(**{"transactional_id": None, **fields})
    call = Call(key=ApiKey.INIT_PRODUCER_ID, version=4, client_id="", peer=Peer(number=1, address=""), request=request)
    return asyncio.run(InitProducerId(_NO_TRANSACTIONS).answer(call))


def test_producers_get_ids_of_their_own() -> None:
    assert len({_ask(producer_id=-1, producer_epoch=-1)["producer_id"] for _ in range(50)}) == 50


def test_producer_keeps_its_id_when_it_asks_for_another_epoch() -> None:
    answer = _ask(producer_id=5, producer_epoch=3)
    assert (answer["producer_id"], answer["producer_epoch"]) == (5, 4)


def test_producer_gets_another_id_when_its_epochs_are_used_up() -> None:
    answer = _ask(producer_id=5, producer_epoch=2**15 - 2)
    assert answer["producer_id"] != 5
    assert answer["producer_epoch"] == 0
