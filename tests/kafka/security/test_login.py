"""SASL/PLAIN over TLS, by a client of others, and as bytes."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Producer

from penstock.testing import MemoryPenstock
from penstock_kafka.gateway import Protection
from penstock_kafka.security.users import Users, UsersFileError, read_users, server_tls
from tests.kafka.running_gateway import RunningGateway, read_answer, request_bytes, running_gateway
from tests.support.deadlines import until

PASSWORD = "correct-horse-battery"
METADATA_OF_ALL = b"\xff\xff\xff\xff"


@pytest.fixture
def guarded() -> Iterator[RunningGateway]:
    with (
        MemoryPenstock() as service,
        running_gateway(service, protection=Protection(users=Users({"anna": PASSWORD}))) as gateway,
    ):
        yield gateway


def _handshake(link: socket.socket, password: str) -> int:
    link.sendall(request_bytes(17, 1, 1, b"\x00\x05PLAIN"))
    assert read_answer(link, 17, 1)[1].error_code == 0
    token = b"\x00anna\x00" + password.encode()
    link.sendall(request_bytes(36, 0, 2, len(token).to_bytes(4, "big") + token))
    return int(read_answer(link, 36, 0)[1].error_code)


def test_client_is_served_when_it_has_logged_in(guarded: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port)) as link:
        assert _handshake(link, PASSWORD) == 0
        link.sendall(request_bytes(3, 1, 3, METADATA_OF_ALL))
        assert read_answer(link, 3, 1)[0] == 3


def test_connection_ends_when_the_password_is_wrong(guarded: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port)) as link:
        assert _handshake(link, PASSWORD + "x") == 58
        assert link.recv(1) == b""


def test_connection_ends_when_a_request_comes_before_the_login(guarded: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port)) as link:
        link.sendall(request_bytes(18, 0, 1, b""))
        assert read_answer(link, 18, 0)[1].error_code == 0
        link.sendall(request_bytes(3, 1, 2, METADATA_OF_ALL))
        assert link.recv(1) == b""


@pytest.mark.parametrize(("key", "version"), [(0, 3), (18, 3), (36, 0)], ids=["produce", "api versions", "login"])
def test_client_that_has_not_logged_in_takes_no_memory_for_a_large_request(
    guarded: RunningGateway, key: int, version: int
) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as link:
        link.sendall(struct.pack(">ihhi", 1_000_000, key, version, 1))  # the rest would never come
        assert link.recv(1) == b""


def test_connection_ends_when_its_client_asks_on_and_on_and_never_logs_in(
    guarded: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_kafka.wire.connection.KAFKA_LOGIN_MS_MAX", 500)

    def is_over() -> bool:
        try:
            link.sendall(request_bytes(18, 0, 1, b""))
            read_answer(link, 18, 0)
        except (EOFError, ConnectionError):
            return True
        return False

    with socket.create_connection(("127.0.0.1", guarded.port)) as link:
        until(is_over)


def test_librdkafka_produces_over_tls_with_a_password(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    certificate, key, trusted = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    certificate.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(trusted))
    protection = Protection(tls=server_tls(certificate, key), users=Users({"anna": PASSWORD}))
    with MemoryPenstock() as service, running_gateway(service, protection=protection) as gateway:
        service.create_topic("orders")
        producer = Producer(
            {
                "bootstrap.servers": gateway.address,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "anna",
                "sasl.password": PASSWORD,
                "ssl.ca.location": str(trusted),
            }
        )
        producer.produce("orders", b"v")
        assert producer.flush(20) == 0
        assert [each.value for each in service.records("orders")] == [b"v"]


def _file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "users"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_users_have_their_own_passwords(tmp_path: Path) -> None:
    users = read_users(_file(tmp_path, "# users\n\nanna:correct:horse-battery\nbo:another-password\n"))
    assert users.has("anna", "correct:horse-battery")
    assert not users.has("anna", "another-password")
    assert not users.has("", "")
    assert not users.has("carl", "")


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("anna:long-enough-password", 0o644, "may be read by others"),
        ("", 0o600, "has no users"),
        ("anna", 0o600, "line 1: give NAME:PASSWORD"),
        ("anna:short-one", 0o640, "may be read by others"),
        ("anna:short", 0o600, "12 characters or more"),
        ("anna:long-enough-1\nanna:long-enough-2", 0o600, "each name once"),
    ],
)
def test_file_of_users_is_refused_without_telling_a_password(tmp_path: Path, text: str, mode: int, said: str) -> None:
    with pytest.raises(UsersFileError, match=said) as refused:
        read_users(_file(tmp_path, text, mode))
    assert "long-enough" not in str(refused.value)


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsersFileError, match="cannot be read"):
        read_users(tmp_path / "none")
