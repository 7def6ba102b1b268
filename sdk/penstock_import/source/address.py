"""The address on the command line: `kafka://host:port,host:port/topic`, or `sqs://queue`.

Client settings from a properties file, as Kafka's own tools take by `--config`.

A line is `name=value` or `name: value`. Lines that begin with # or ! are comments. Names are librdkafka's, for TLS,
SASL and the network. Other ones are refused: by some, such as plugins, engines and the command of Kerberos, a file from
somebody else would run code on this machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode, shown

KAFKA, SQS = "kafka://", "sqs://"
_PORT = 9092
_HTTP = ("http://", "https://")
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
# Kerberos is left out: librdkafka puts its settings into a shell command. So are `ssl.engine.*` and `ssl.providers`.
ALLOWED = frozenset(
    [
        *("client.id", "client.rack", "client.dns.lookup", "group.id", "debug", "check.crcs", "broker.address.family"),
        *("connections.max.idle.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms"),
        *("socket.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable", "socket.receive.buffer.bytes"),
        *("socket.connection.setup.timeout.ms", "socket.send.buffer.bytes", "metadata.max.age.ms"),
        *("fetch.wait.max.ms", "fetch.max.bytes", "fetch.message.max.bytes", "max.partition.fetch.bytes"),
        *("receive.message.max.bytes", "fetch.error.backoff.ms", "queued.min.messages"),
        *("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        *("sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
        *("sasl.oauthbearer.scope", "sasl.oauthbearer.extensions", "sasl.oauthbearer.token.endpoint.url"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.crl.location"),
        *("ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password"),
        *("ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list", "ssl.endpoint.identification.algorithm"),
        "enable.ssl.certificate.verification",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAddress:
    """A topic and the brokers to ask for it first, as librdkafka takes them."""

    servers: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAddress:
    """A queue by its URL or its name."""

    queue: str

    @property
    def is_url(self) -> bool:
        """True for a URL, false for a name."""
        return self.queue.startswith(_HTTP)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.queue.rsplit("/", 1)[-1]


def parse_address(text: str) -> KafkaAddress | QueueAddress:
    """The address of a source. Raises InvalidError."""
    if text.startswith(KAFKA):
        return _kafka(text)
    if text.startswith(SQS):
        return _queue(text)
    raise _refused(text, "give kafka://host:port/topic or sqs://queue")


def _kafka(text: str) -> KafkaAddress:
    brokers, slash, topic = text.removeprefix(KAFKA).partition("/")
    servers = [_server(text, each) for each in brokers.split(",")]
    if not slash or not topic or "/" in topic:
        raise _refused(text, "name one topic behind the brokers, as kafka://host:9092/orders")
    return KafkaAddress(servers=",".join(servers), topic=topic)


def _server(text: str, server: str) -> str:
    if "@" in server:
        raise _refused(text.partition("://")[0] + "://…", "put user and password into a file, and name it by --config")
    host, colon, port = server.rpartition(":")
    if server.endswith("]") or not colon:
        host, port = server, str(_PORT)
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 2**16:
        raise _refused(text, f"{server!r:.100} is no host:port")
    return f"{host}:{port}"


def _queue(text: str) -> QueueAddress:
    queue = text.removeprefix(SQS)
    if not queue:
        raise _refused(
            text, "name the queue, as sqs://orders or sqs://https://sqs.eu-central-1.amazonaws.com/1234/orders"
        )
    if "/" in queue and not queue.startswith(_HTTP):
        queue = f"https://{queue}"
    return QueueAddress(queue=queue)


def _refused(text: str, way_out: str) -> InvalidError:
    return InvalidError(ErrorCode.INVALID_REQUEST, f"source {shown(text)}: {way_out}")


def parse_properties(text: str) -> Mapping[str, str]:
    """The settings of a file. Raises InvalidError for a line without a value, and for a name that cannot be given."""
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, value = _pair(number, stripped)
        if name in OWN:
            raise _property_refused(number, f"{name} is the importer's own: remove the line")
        if name in _INSTEAD:
            raise _property_refused(number, f"{name} is a setting of Java clients; librdkafka takes {_INSTEAD[name]}")
        if name not in ALLOWED:
            allowed = "settings for TLS, SASL and the network only (docs/how-to/move-from-kafka.md)"
            raise _property_refused(number, f"{shown(name)} is not taken from a file: {allowed}")
        settings[name] = value
    return settings


def _pair(number: int, line: str) -> tuple[str, str]:
    ends = [at for at in (line.find("="), line.find(":")) if at > 0]
    if not ends:
        raise _property_refused(number, f"{shown(line.split()[0])}: write name=value")
    return line[: min(ends)].strip(), line[min(ends) + 1 :].strip()


def _property_refused(number: int, why: str) -> InvalidError:
    return InvalidError(ErrorCode.INVALID_CONFIG, f"line {number} of the client's properties: {why}", line=number)
