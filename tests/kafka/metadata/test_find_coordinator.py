import socket

from kafka import KafkaAdminClient

from tests.kafka.running_gateway import RunningGateway, read_answer, request_bytes


def test_gateway_coordinates_every_group(gateway: RunningGateway) -> None:
    link = socket.create_connection(("127.0.0.1", gateway.port))
    link.sendall(request_bytes(10, 1, 1, b"\x00\x01g\x00") + request_bytes(10, 1, 2, b"\x00\x01g\x09"))
    group, unknown = read_answer(link, 10, 1)[1], read_answer(link, 10, 1)[1]
    assert (group.error_code, group.node_id, group.port) == (0, 1, gateway.port)
    assert (unknown.error_code, unknown.node_id) == (42, -1)
    link.close()


def test_cluster_is_the_gateway(gateway: RunningGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.address)
    cluster = admin.describe_cluster()
    assert [each["port"] for each in cluster["brokers"]] == [gateway.port]
    admin.close()
