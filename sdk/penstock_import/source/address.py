"""The address on the command line: `kafka://host:port,host:port/topic`, or `sqs://queue`."""

from dataclasses import dataclass

from penstock.errors import InvalidError
from penstock_core.errors import ErrorCode, shown

KAFKA, SQS = "kafka://", "sqs://"
_PORT = 9092
_HTTP = ("http://", "https://")


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
