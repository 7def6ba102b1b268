"""DeadLetters for asyncio: dead_letters.py has the rules."""

from penstock.arguments import check_text, check_whole, checked_topic
from penstock.consumer.async_consumer import AsyncConsumer
from penstock.dead_letters.headers import check_no_circle, death, with_death
from penstock.model import ConsumerRecord, RecordMetadata, TopicPartition
from penstock.producer.async_producer import AsyncProducer
from penstock.system import wall_clock_ms
from penstock_core.records.codec import time_of


class AsyncDeadLetters:
    """`DeadLetters` with an AsyncConsumer and an AsyncProducer."""

    def __init__(self, consumer: AsyncConsumer, producer: AsyncProducer, topic: str) -> None:
        """As `DeadLetters`."""
        self._consumer = consumer
        self._producer = producer
        self._topic = checked_topic(topic)

    async def move(self, record: ConsumerRecord, reason: str = "", *, deliveries: int = 1) -> RecordMetadata:
        """As `DeadLetters.move`, awaited."""
        check_text("reason", reason)
        check_whole("deliveries", deliveries, 1)
        check_no_circle(record, self._topic)
        offsets = {TopicPartition(record.topic, record.partition): record.offset + 1}
        (lease,) = self._consumer.group_offsets(offsets)
        told = death(record, lease.group, reason, deliveries, wall_clock_ms())
        async with self._producer.transaction() as transaction:
            sent = await transaction.send(
                self._topic,
                record.value,
                key=record.key,
                headers=with_death(record.headers, told),
                timestamp_ms=time_of(record.timestamp_ms, told.time_ms),
            )
            transaction.send_offsets(offsets, self._consumer)
        return await sent
