"""Client settings from a properties file, as Kafka's own tools take by `--config`.

A line is `name=value` or `name: value`. Lines that begin with # or ! are comments. Names are librdkafka's.
"""

from collections.abc import Mapping

from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode, shown

# The reader sets these itself: its promises rest on them.
OWN = frozenset(
    [
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "isolation.level",
        "auto.offset.reset",
    ]
)
# Names of the Java client that librdkafka has under other names.
_INSTEAD = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "ssl.truststore.location": "ssl.ca.location, a PEM file",
    "ssl.truststore.password": "ssl.ca.location, a PEM file",
    "ssl.keystore.type": "ssl.keystore.location, a PKCS#12 file",
    "key.deserializer": "nothing: the bytes are copied as they are",
    "value.deserializer": "nothing: the bytes are copied as they are",
}


def parse_properties(text: str) -> Mapping[str, str]:
    """The settings of a file. Raises InvalidError for a line without a value, and for a name that cannot be given."""
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, value = _pair(number, stripped)
        if name in OWN:
            raise _refused(number, f"{name} is the importer's own: remove the line")
        if name in _INSTEAD:
            raise _refused(number, f"{name} is a setting of Java clients; librdkafka takes {_INSTEAD[name]}")
        settings[name] = value
    return settings


def _pair(number: int, line: str) -> tuple[str, str]:
    ends = [at for at in (line.find("="), line.find(":")) if at > 0]
    if not ends:
        raise _refused(number, f"{shown(line.split()[0])}: write name=value")
    return line[: min(ends)].strip(), line[min(ends) + 1 :].strip()


def _refused(number: int, why: str) -> InvalidError:
    return InvalidError(ErrorCode.INVALID_CONFIG, f"line {number} of the client's properties: {why}", line=number)
