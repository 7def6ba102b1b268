import socket
import struct

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.kafka.running_gateway import RunningGateway, read_answer, request_bytes


def test_offsets_are_found_by_word_and_by_time(gateway: RunningGateway) -> None:
    with gateway.service.producer() as producer:
        for number, time in enumerate((1_000, 9_000, 5_000)):
            producer.send("orders", b"%d" % number, partition=0, timestamp_ms=time)
    admin = AdminClient({"bootstrap.servers": gateway.address})
    where = TopicPartition("orders", 0)
    specs = {
        "earliest": OffsetSpec.earliest(),
        "latest": OffsetSpec.latest(),
        "time": OffsetSpec.for_timestamp(4_000),
        "newest": OffsetSpec.max_timestamp(),
        "late": OffsetSpec.for_timestamp(9_001),
    }
    found = {name: admin.list_offsets({where: spec})[where].result() for name, spec in specs.items()}
    assert {name: (each.offset, each.timestamp) for name, each in found.items()} == {
        "earliest": (0, -1),
        "latest": (3, -1),
        "time": (1, 9_000),
        "newest": (1, 9_000),
        "late": (-1, -1),
    }


def test_unknown_partition_has_an_error(gateway: RunningGateway) -> None:
    body = struct.pack(">ib", -1, 0) + struct.pack(">ih6si", 1, 6, b"orders", 2)
    body += struct.pack(">iq", 0, -1) + struct.pack(">iq", 9, -1)
    with socket.create_connection(("127.0.0.1", gateway.port)) as link:
        link.sendall(request_bytes(2, 2, 1, body))
        (topic,) = read_answer(link, 2, 2)[1].topics
    assert [(each.partition_index, int(each.error_code), each.offset) for each in topic.partitions] == [
        (0, 0, 0),
        (9, 3, -1),
    ]
