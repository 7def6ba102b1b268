"""examples/ledger.py: two entries per payment. tests/end_to_end/test_examples.py kills its workers."""

import json

from examples.ledger import LEDGER, PAYMENTS, book
from penstock import Transformer
from penstock.testing import MemoryPenstock

COUNT = 20


def test_each_payment_becomes_two_entries_whose_sum_is_zero(penstock: MemoryPenstock) -> None:
    for topic in (PAYMENTS, LEDGER):
        penstock.create_topic(topic, partitions=3)
    with penstock.producer() as producer:
        for number in range(COUNT):
            payment = {"id": number, "from": f"a{number % 3}", "to": f"a{number % 5}", "cents": number}
            producer.send(PAYMENTS, json.dumps(payment), key=str(number))

    consumer = penstock.consumer(PAYMENTS, group_id="ledger", delivery="exactly_once")
    transformer = Transformer(consumer, penstock.producer(transactional_id="ledger-1"), book)
    booked = 0
    while booked < COUNT:
        booked += transformer.run_once()

    entries = [json.loads(record.value or b"") for record in penstock.records(LEDGER)]
    assert sum(entry["cents"] for entry in entries) == 0
    assert sorted(entry["payment"] for entry in entries) == sorted([*range(COUNT), *range(COUNT)])
