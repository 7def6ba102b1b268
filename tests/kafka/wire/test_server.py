import socket
from dataclasses import replace

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import SETTINGS, read_answer, request_bytes, running_gateway


def test_connection_is_refused_when_too_many_are_open() -> None:
    with MemoryPenstock() as service, running_gateway(service, replace(SETTINGS, connections_max=1)) as gateway:
        first = socket.create_connection(("127.0.0.1", gateway.port))
        first.sendall(request_bytes(18, 0, 1, b""))
        assert read_answer(first, 18, 0)[0] == 1
        second = socket.create_connection(("127.0.0.1", gateway.port))
        try:
            ended = second.recv(1) == b""
        except ConnectionResetError:
            ended = True
        assert ended
        first.close()
        second.close()
