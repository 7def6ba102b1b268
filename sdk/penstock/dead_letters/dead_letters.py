# Generated from async_dead_letters.py by `python -m tools.unasync`: change that file.
"""A dead-letter topic for a plain group: the record moves and the offset is committed in one transaction."""

from penstock.arguments import check, check_text, check_whole, checked_topic
from penstock.consumer.consumer import Consumer
from penstock.dead_letters.headers import check_no_circle, death, with_death
from penstock.model import ConsumerRecord, RecordMetadata, TopicPartition
from penstock.producer.producer import Producer
from penstock.system import wall_clock_ms
from penstock_core.records.codec import time_of


class DeadLetters:
    """Moves records that a group cannot handle to a dead-letter topic, exactly once.

        consumer = Consumer("orders", group_id="billing", enable_auto_commit=False)
        producer = Producer(transactional_id=f"billing-dead-{instance}")
        dead = DeadLetters(consumer, producer, "orders.dead")
        for record in consumer:
            try:
                bill(record)
            except ValueError as error:
                dead.move(record, reason=str(error))

    The consumer must be a member of a group. The record keeps its key, value, timestamp and headers, and gets headers
    `penstock.dead-letter.*` that tell where it was and why it moved. A share group does all this by itself.
    """

    def __init__(self, consumer: Consumer, producer: Producer, topic: str) -> None:
        """The producer needs a `transactional_id`, and `topic` must exist. Makes no call.

        Raises InvalidError if the consumer decrypts values that the producer would not encrypt again, and if the
        producer would encrypt values that are encrypted already. Raises it, too, if only one of them has serializers.
        """
        is_open = consumer.is_decrypting and not producer.is_encrypting
        check(not is_open, "the consumer decrypts, and dead letters would lie open: give the producer its encryption")
        is_twice = producer.is_encrypting and not consumer.is_decrypting
        check(not is_twice, "the producer encrypts, and no value twice: give the consumer its encryption, or neither")
        is_one_way = consumer.is_deserializing is not producer.is_serializing
        check(
            not is_one_way, "give the producer the serializers that match the consumer's deserializers, or none to both"
        )
        self._consumer = consumer
        self._producer = producer
        self._topic = checked_topic(topic)

    def move(self, record: ConsumerRecord, reason: str = "", *, deliveries: int = 1) -> RecordMetadata:
        """Move the record, and commit the offset behind it: the group has dealt with the partition so far.

        One transaction: the record is in the dead-letter topic if and only if the offset is committed. Returns its
        place there. Raises LeaseLostError if another member owns the partition, the errors of a transaction, and
        InvalidError if the consumer is in no group, or if dead letters go in a circle. After an error nothing has
        moved, unless it says `maybe_applied`.
        """
        check_text("reason", reason)
        check_whole("deliveries", deliveries, 1)
        check_no_circle(record, self._topic)
        offsets = {TopicPartition(record.topic, record.partition): record.offset + 1}
        (lease,) = self._consumer.group_offsets(offsets)
        told = death(record, lease.group, reason, deliveries, wall_clock_ms())
        with self._producer.transaction() as transaction:
            sent = transaction.send(
                self._topic,
                record.value,
                key=record.key,
                headers=with_death(record.headers, told),
                timestamp_ms=time_of(record.timestamp_ms, told.time_ms),
            )
            transaction.send_offsets(offsets, self._consumer)
        return sent.result()
