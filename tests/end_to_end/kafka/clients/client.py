"""What the matrix asks of each client of another maker, and the clients that are Python."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin

CALL_S = 60.0


class KafkaClient(Protocol):
    """One client library. Records go to partition 0, values are text. `servers` is the gateway's address."""

    def produce(self, servers: str, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        """Return once all are acknowledged."""

    def consume(self, servers: str, topic: str, group: str, count: int) -> list[str]:
        """So many values as a member of a group, from its offset, or from the beginning; commit, and leave."""

    def first_since(self, servers: str, topic: str, time_ms: int) -> str:
        """The first value at this time or later: looked up by time, then read by a seek."""

    def transact(self, servers: str, topic: str, aborted: Sequence[str], committed: Sequence[str]) -> None:
        """A transaction that is aborted, and another one that is committed."""

    def create(self, servers: str, topic: str, partitions: int) -> int:
        """Create a topic, and return the number of partitions that the client is told."""


class ConfluentKafka:
    """confluent-kafka: librdkafka."""

    def produce(self, servers: str, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": is_idempotent})
        failed: list[object] = []
        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(CALL_S) == 0
        assert failed == [None] * len(values)

    def consume(self, servers: str, topic: str, group: str, count: int) -> list[str]:
        consumer = self._consumer(servers, group)
        consumer.subscribe([topic])
        found = [_value(consumer.poll(CALL_S)) for _ in range(count)]
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def first_since(self, servers: str, topic: str, time_ms: int) -> str:
        consumer = self._consumer(servers, "seekers")
        consumer.assign(consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, time_ms)], CALL_S))
        found = _value(consumer.poll(CALL_S))
        consumer.close()
        return found

    def transact(self, servers: str, topic: str, aborted: Sequence[str], committed: Sequence[str]) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": f"confluent-{topic}"})
        producer.init_transactions(CALL_S)
        for values, end in ((aborted, producer.abort_transaction), (committed, producer.commit_transaction)):
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value, partition=0)
            producer.flush(CALL_S)
            end(CALL_S)

    def create(self, servers: str, topic: str, partitions: int) -> int:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
        admin.create_topics([confluent_kafka.admin.NewTopic(topic, partitions)])[topic].result(CALL_S)
        return len(admin.list_topics(topic, CALL_S).topics[topic].partitions)

    def _consumer(self, servers: str, group: str) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )


class KafkaPython:
    """kafka-python."""

    def produce(self, servers: str, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=is_idempotent, acks="all")
        sent = [producer.send(topic, value.encode(), partition=0) for value in values]
        for each in sent:
            each.get(CALL_S)
        producer.close()

    def consume(self, servers: str, topic: str, group: str, count: int) -> list[str]:
        consumer = self._consumer(servers, group)
        consumer.subscribe([topic])
        found = [next(consumer).value.decode() for _ in range(count)]
        consumer.commit()
        consumer.close()
        return found

    def first_since(self, servers: str, topic: str, time_ms: int) -> str:
        consumer = self._consumer(servers, None)
        place = kafka.TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, consumer.offsets_for_times({place: time_ms})[place].offset)
        found = str(next(consumer).value.decode())
        consumer.close()
        return found

    def transact(self, servers: str, topic: str, aborted: Sequence[str], committed: Sequence[str]) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=f"python-{topic}", acks="all")
        producer.init_transactions()
        for values, end in ((aborted, producer.abort_transaction), (committed, producer.commit_transaction)):
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value.encode(), partition=0)
            producer.flush(CALL_S)
            end()
        producer.close()

    def create(self, servers: str, topic: str, partitions: int) -> int:
        admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
        admin.create_topics([kafka.admin.NewTopic(name=topic, num_partitions=partitions, replication_factor=1)])
        [found] = admin.describe_topics([topic])
        admin.close()
        return len(found["partitions"])

    def _consumer(self, servers: str, group: str | None) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )


class AioKafka:
    """aiokafka. Its admin client creates topics only."""

    def produce(self, servers: str, topic: str, values: Sequence[str], *, is_idempotent: bool) -> None:
        async def work() -> None:
            made = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=is_idempotent)
            async with made as producer:
                sent = [await producer.send(topic, value.encode(), partition=0) for value in values]
                await asyncio.gather(*sent)

        asyncio.run(work())

    def consume(self, servers: str, topic: str, group: str, count: int) -> list[str]:
        async def work() -> list[str]:
            made = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            async with made as consumer:
                found = [(await consumer.getone()).value.decode() for _ in range(count)]
                await consumer.commit()
            return found

        return asyncio.run(work())

    def first_since(self, servers: str, topic: str, time_ms: int) -> str:
        async def work() -> str:
            place = aiokafka.TopicPartition(topic, 0)
            async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
                consumer.assign([place])
                consumer.seek(place, (await consumer.offsets_for_times({place: time_ms}))[place].offset)
                return str((await consumer.getone()).value.decode())

        return asyncio.run(work())

    def transact(self, servers: str, topic: str, aborted: Sequence[str], committed: Sequence[str]) -> None:
        async def work() -> None:
            made = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aio-{topic}")
            async with made as producer:
                for values, end in ((aborted, producer.abort_transaction), (committed, producer.commit_transaction)):
                    await producer.begin_transaction()
                    for value in values:
                        await producer.send_and_wait(topic, value.encode(), partition=0)
                    await end()

        asyncio.run(work())

    def create(self, servers: str, topic: str, partitions: int) -> int:
        async def work() -> int:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
            await admin.start()
            try:
                await admin.create_topics([aiokafka.admin.NewTopic(topic, partitions, 1)])
                [found] = await admin.describe_topics([topic])
                return len(found["partitions"])
            finally:
                await admin.close()

        return asyncio.run(work())


def _value(message: Any) -> str:
    assert message is not None
    assert message.error() is None
    return str(message.value().decode())
