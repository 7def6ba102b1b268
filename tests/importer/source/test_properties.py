import pytest
from confluent_kafka import Consumer, KafkaException

from penstock.errors import InvalidError
from penstock_import.source.properties import ALLOWED, OWN, parse_properties


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
