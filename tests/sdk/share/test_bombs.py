"""A share consumer decodes a bounded part of one answer, and gives the other records back at once."""

from penstock.share.acquire_call import ShareAnswer, ShareCall, send
from penstock.share.held_locks import Moment
from penstock.testing import MemoryPenstock
from penstock_core.limits import MIB
from tests.sdk.share.stepped_core import SteppedCore
from tests.support.poison import bomb, put_batch


def test_one_answer_is_decoded_up_to_the_budget_and_the_rest_is_left_out(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.create_share_group("workers", "orders")
    put_batch(service.transport, "orders", b"".join(bomb(20 * MIB) for _ in range(5)))
    moment = Moment(1_000, 1_000)
    body = {"nonce": "nonce-01", "max_records": 10}
    path = "/v1/share-groups/workers/acquire"
    sending = send(ShareCall(path=path, body=body, entries=(), is_acquire=True, sent=moment, sent_last=moment))
    request = next(sending)
    response = service.transport.call(request.method, request.path, {}, request.headers, request.body)
    try:
        sending.send(response)
    except StopIteration as done:
        answer = done.value
    assert isinstance(answer, ShareAnswer)
    [lock] = answer.locks
    assert [record.offset for record in lock.records] == [0, 1], "32 MiB, and the rest of the batch that spends them"
    assert [*lock.left_out] == [2, 3, 4]


def test_records_that_were_left_out_go_back_uncounted() -> None:
    core = SteppedCore()
    core.acquire(0, 1, left_out=[2, 3])
    core.step(1)
    assert ("release", [[2, 4]]) in core.sent(core.call())
