"""A process that copies a topic to another one, each poll in a transaction, and commits its offsets with the records.

    python -m tests.kafka.exactly_once.copier SERVERS GROUP SOURCE TARGET TRANSACTIONAL_ID FILE

It appends a line to FILE for each transaction that it has committed, given up, or does not know the outcome of. It ends
after a fatal error, as programs do: whatever started it starts it again.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer

_CALL_S = 60.0


def main(servers: str, group: str, source: str, target: str, transactional_id: str, path: str) -> None:
    """Copy for ever."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 20_000,
            "linger.ms": 2,
            "log_level": 3,
        }
    )
    producer.init_transactions(_CALL_S)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "log_level": 3,
        }
    )
    consumer.subscribe([source])
    with open(path, "a", buffering=1) as notes:
        while True:
            messages = [each for each in consumer.consume(100, 0.5) if not each.error()]
            if messages:
                notes.write(f"{_copy(producer, consumer, messages, target)}\n")


def _copy(producer: Producer, consumer: Consumer, messages: list[Message], target: str) -> str:
    """One transaction. After an error that can be aborted, the consumer goes back to the offsets of the group."""
    try:
        producer.begin_transaction()
        for each in messages:
            producer.produce(target, each.value(), partition=each.partition())
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), _CALL_S)
    except KafkaException as error:
        return _gave_up(producer, consumer, error)
    while True:
        try:
            producer.commit_transaction(_CALL_S)
        except KafkaException as error:
            if error.args[0].retriable():
                continue  # the outcome is not known yet
            return _gave_up(producer, consumer, error)
        return "committed"


def _gave_up(producer: Producer, consumer: Consumer, error: KafkaException) -> str:
    if error.args[0].fatal():
        sys.exit(f"fatal: {error}")
    sys.stderr.write(f"abort: {error}\n")
    while True:
        try:
            producer.abort_transaction(_CALL_S)
        except KafkaException as failure:
            if failure.args[0].fatal():
                sys.exit(f"fatal: {failure}")
            sys.stderr.write(f"abort fails: {failure}\n")
            continue
        break
    for each in consumer.committed(consumer.assignment(), _CALL_S):
        if each.offset < 0:
            each.offset = 0
        consumer.seek(each)
    return "aborted"


if __name__ == "__main__":
    main(*sys.argv[1:])
