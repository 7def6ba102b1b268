"""A payment ledger: each payment becomes two entries, exactly once, even if workers are killed.

    python examples/ledger.py 1

A payment is a record of the topic `payments`: {"id": 7, "from": "a1", "to": "a2", "cents": 250}. Its two entries go to
the topic `ledger`, each to the partition of its account. The sum of all entries is always 0.

- The Transformer puts what one poll brings into one transaction: the entries, and the offsets of the payments. Readers
  see all of it or nothing.
- The argument is the worker's number. Give each process a number of its own, and the same one after a restart: a new
  process then fences what an old one of that number still tries to commit.
- Only what is sent in the transaction happens once. A call to another system in `book` may happen again.
"""

import json
import signal
import sys

from penstock import Consumer, ConsumerRecord, Producer, Transaction, Transformer

PAYMENTS = "payments"
LEDGER = "ledger"


def book(record: ConsumerRecord, transaction: Transaction) -> None:
    """Send the two entries of a payment."""
    payment = json.loads(record.value or b"")
    for account, cents in ((payment["from"], -payment["cents"]), (payment["to"], payment["cents"])):
        entry = {"payment": payment["id"], "account": account, "cents": cents}
        transaction.send(LEDGER, json.dumps(entry), key=account)


def main(worker: str) -> None:
    """Book payments until SIGTERM or SIGINT."""
    with (
        Consumer(PAYMENTS, group_id="ledger", delivery="exactly_once") as consumer,
        Producer(transactional_id=f"ledger-{worker}") as producer,
    ):
        transformer = Transformer(consumer, producer, book)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: transformer.stop())
        transformer.run()


if __name__ == "__main__":
    main(sys.argv[1])
