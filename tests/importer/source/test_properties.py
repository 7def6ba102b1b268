import pytest

from penstock.errors import InvalidError
from penstock_import.source.properties import parse_properties


def test_properties_are_read_as_kafkas_tools_do() -> None:
    text = "# a comment\n! another\n\nsecurity.protocol = SASL_SSL\nsasl.password: a=b:c\nempty=\n"
    assert parse_properties(text) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b:c", "empty": ""}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("isolation.level=read_uncommitted", "line 1 .* the importer's own"),
        ("sasl.jaas.config=x", "sasl.username and sasl.password"),
        ("no value", "'no': write name=value"),
    ],
)
def test_line_is_refused_with_the_way_out(line: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        parse_properties(line)


def test_value_is_not_repeated_when_a_line_is_refused() -> None:
    with pytest.raises(InvalidError) as refused:
        parse_properties('sasl.jaas.config=... password="geheim"')
    assert "geheim" not in str(refused.value)
