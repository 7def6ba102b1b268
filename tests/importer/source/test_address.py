import pytest
from confluent_kafka import Consumer, KafkaException

from penstock.errors import InvalidError
from penstock_import.source.address import ALLOWED, OWN, KafkaAddress, QueueAddress, parse_address, parse_properties


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("kafka://a/orders", "a:9092"),
        ("kafka://a:1,b:2/orders", "a:1,b:2"),
        ("kafka://[::1]:9/orders", "[::1]:9"),
        ("kafka://[::1]/orders", "[::1]:9092"),
    ],
)
def test_brokers_have_the_usual_port(text: str, servers: str) -> None:
    assert parse_address(text) == KafkaAddress(servers=servers, topic="orders")


@pytest.mark.parametrize(
    ("text", "queue", "name", "is_url"),
    [
        ("sqs://orders.fifo", "orders.fifo", "orders.fifo", False),
        ("sqs://https://sqs.eu-central-1.amazonaws.com/1/orders", None, "orders", True),
        ("sqs://sqs.eu-central-1.amazonaws.com/1/orders", None, "orders", True),
    ],
)
def test_queue_is_a_name_or_a_url(text: str, queue: str | None, name: str, is_url: bool) -> None:
    found = parse_address(text)
    assert isinstance(found, QueueAddress)
    assert found.queue == (queue or "https://sqs.eu-central-1.amazonaws.com/1/orders")
    assert (found.name, found.is_url) == (name, is_url)


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("orders", "give kafka://host:port/topic or sqs://queue"),
        ("kafka://a", "name one topic"),
        ("kafka:///orders", "no host:port"),
        ("kafka://a:x/orders", "no host:port"),
        ("kafka://a:70000/orders", "no host:port"),
        ("kafka://a/b/c", "name one topic"),
        ("sqs://", "name the queue"),
    ],
)
def test_address_is_refused_with_the_way_out(text: str, way_out: str) -> None:
    with pytest.raises(InvalidError, match=way_out):
        parse_address(text)


def test_password_is_not_repeated_when_it_stands_in_the_address() -> None:
    with pytest.raises(InvalidError, match="--config") as refused:
        parse_address("kafka://user:geheim@a:1/orders")
    assert "geheim" not in str(refused.value)


def test_properties_are_read_as_kafkas_tools_do() -> None:
    text = "# a comment\n! another\n\nsecurity.protocol = SASL_SSL\nsasl.password: a=b:c\nclient.rack=\n"
    assert parse_properties(text) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b:c", "client.rack": ""}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("isolation.level=read_uncommitted", "line 1 .* the importer's own"),
        ("sasl.jaas.config=x", "sasl.username and sasl.password"),
        ("no value", "'no': write name=value"),
        ("plugin.library.paths=/tmp/mine", "'plugin.library.paths' is not taken from a file"),
        ("sasl.kerberos.kinit.cmd=touch /tmp/mine", "is not taken from a file"),
        ("sasl.kerberos.principal=x; touch /tmp/mine", "is not taken from a file"),
        ("ssl.engine.location=/tmp/mine", "is not taken from a file"),
        ("ssl.providers=mine", "is not taken from a file"),
        ("PLUGIN.library.paths=/tmp/mine", "is not taken from a file"),
    ],
)
def test_line_is_refused_with_the_way_out(line: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        parse_properties(line)


def test_each_allowed_name_is_one_of_librdkafka_and_none_of_the_importers_own() -> None:
    assert not ALLOWED & OWN
    for name in ALLOWED:
        with pytest.raises(KafkaException) as refused:  # by a value that no setting has, and not by the name
            Consumer({"group.id": "any", "debug": "nothing", name: "1000"})
        assert "No such configuration property" not in str(refused.value), name


def test_value_is_not_repeated_when_a_line_is_refused() -> None:
    with pytest.raises(InvalidError) as refused:
        parse_properties('sasl.jaas.config=... password="geheim"')
    assert "geheim" not in str(refused.value)
