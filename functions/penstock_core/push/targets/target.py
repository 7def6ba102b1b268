"""The targets of subscriptions. Parsed once, at the edge."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.ids import TopicName, parse_own_topic_name
from penstock_core.limits import BUS_BYTES_MAX, PUSH_HOPS_MAX, PUSH_PAYLOAD_BYTES_MAX, QUEUE_BYTES_MAX
from penstock_core.push.batch import PushBatch
from penstock_core.push.targets.bus_event import bus_event
from penstock_core.push.targets.kafka_event import encode_kafka_event, event_bytes
from penstock_core.push.targets.queue_message import queue_message
from penstock_core.push.targets.webhook import parse_secret
from penstock_core.records.codec import NewRecord, Record, time_of

_FUNCTION_ARN = re.compile(r"arn:[\w-]+:lambda:[\w-]+:\d{12}:function:[\w-]{1,64}(:[\w-]{1,128})?", re.ASCII)
_BUS_ARN = re.compile(r"arn:[\w-]+:events:[\w-]+:\d{12}:event-bus/[\w./-]{1,256}", re.ASCII)
_ROLE_ARN = re.compile(r"arn:[\w-]+:iam::\d{12}:role/[\w+=,.@/-]{1,512}", re.ASCII)
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d{1,2}", re.ASCII)
_QUEUE_PATH = re.compile(r"/\d{12}/[\w-]{1,80}", re.ASCII)
_URL = re.compile(r"[!-\[\]-~]+")  # printable ASCII without blanks and backslashes
_FIFO = ".fifo"
_LATEST = ":$LATEST"
HOPS_HEADER = "penstock-hops"
TOO_LARGE = "too_large"  # the begin of the reason of such a dead letter
_ENVELOPE_BYTES_MAX = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTarget:
    """A Lambda function, invoked with the records of one partition. Its answer decides."""

    arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTarget:
    """A standard SQS queue: one message for each record. It keeps no order."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BusTarget:
    """An EventBridge bus: one event for each record. It keeps no order."""

    arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpsTarget:
    """An HTTPS endpoint. `secret` signs each request (`push/webhook.py`); no answer and no log shows it."""

    url: str
    secret: str

    def __repr__(self) -> str:
        return f"HttpsTarget(url={self.url!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """Another topic: a copy of the records, each exactly once."""

    topic: TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTarget:
    """Another stage, which mirrors the topics under the same names behind `prefix` (docs/protocol/mirrors).

    `url` is its API in `region`. The role that delivers calls it under `role`, or as itself for "". Clients of the
    mirror are told `source`, the URL of this stage.
    """

    url: str
    region: str = ""
    role: str = ""
    prefix: str = ""
    source: str = ""


Target = FunctionTarget | QueueTarget | BusTarget | HttpsTarget | TopicTarget | StageTarget
KINDS = ("lambda", "sqs", "event_bus", "https", "topic", "stage")


def parse_target(document: Mapping[str, Any], *, is_http_allowed: bool = False) -> Target:
    """The target that the API's object tells, as `{"lambda": "<arn>"}`.

    `is_http_allowed` lets an endpoint have an http:// address. Raises INVALID_CONFIG naming the kind, the value and
    what is allowed.
    """
    # The messages show no value that is an object: it may hold a secret.
    if len(document) != 1 or next(iter(document)) not in KINDS:
        raise _refused(f"target with {shown(sorted(document))}: give one of {', '.join(KINDS)}")
    [(kind, value)] = document.items()
    if kind == "https":
        return _https(value, ("https", "http") if is_http_allowed else ("https",))
    if kind == "stage":
        return _stage(value, ("https", "http") if is_http_allowed else ("https",))
    if not isinstance(value, str):
        told = "an object" if isinstance(value, Mapping | list) else shown(value)
        raise _refused(f"target.{kind}={told}: give a text")
    if kind == "topic":
        return TopicTarget(topic=parse_own_topic_name(value))
    if kind == "sqs":
        return QueueTarget(url=_queue_url(value))
    pattern, example = _ARNS[kind]
    if value.endswith(_LATEST):
        raise _refused(f"target.{kind}={shown(value)}: leave out {_LATEST}, because Lambda takes no grant for it")
    if not pattern.fullmatch(value):
        raise _refused(f"target.{kind}={shown(value)}: give an ARN such as {example}")
    return FunctionTarget(arn=value) if kind == "lambda" else BusTarget(arn=value)


def target_to_json(target: Target) -> dict[str, Any]:
    """The object that the API shows. The secret of an HTTPS endpoint is left out."""
    match target:
        case FunctionTarget(arn=arn):
            return {"lambda": arn}
        case QueueTarget(url=url):
            return {"sqs": url}
        case BusTarget(arn=arn):
            return {"event_bus": arn}
        case HttpsTarget(url=url):
            return {"https": {"url": url}}
        case TopicTarget(topic=topic):
            return {"topic": topic}
        case StageTarget():
            return {"stage": {name: value for name, value in asdict(target).items() if value}}


_ARNS = {
    "lambda": (_FUNCTION_ARN, "arn:aws:lambda:eu-west-1:123456789012:function:pack"),
    "event_bus": (_BUS_ARN, "arn:aws:events:eu-west-1:123456789012:event-bus/orders"),
}


def _queue_url(text: str) -> str:
    parts = urlsplit(text)
    if text.endswith(_FIFO):
        raise _refused(
            f"target.sqs={shown(text)}: FIFO queues are not served; take a standard queue, or a target that keeps the "
            "order itself: a function, an endpoint or a topic"
        )
    if parts.scheme not in ("https", "http") or not parts.hostname or not _QUEUE_PATH.fullmatch(parts.path):
        raise _refused(
            f"target.sqs={shown(text)}: give a queue's URL such as https://sqs.eu-west-1.amazonaws.com/123456789012/pack"
        )
    return text


def _https(value: object, schemes: Sequence[str]) -> HttpsTarget:
    if not isinstance(value, Mapping) or set(value) != {"url", "secret"}:
        raise _refused("target.https: give an object with url and secret")
    url, secret = value["url"], value["secret"]
    if not isinstance(url, str) or len(url) > limits.PUSH_URL_LENGTH_MAX or not _is_endpoint(url, schemes):
        raise _refused(
            f"target.https.url={shown(url)}: give an https:// address in ASCII, without user, password and fragment, "
            f"{limits.PUSH_URL_LENGTH_MAX:,} characters at most"
        )
    try:
        parse_secret(secret if isinstance(secret, str) else "")
    except PenstockError as error:
        raise _refused(f"target.https.{error.message}") from None
    return HttpsTarget(url=url, secret=secret)


def _stage(value: object, schemes: Sequence[str]) -> StageTarget:
    known = [each.name for each in fields(StageTarget)]
    if not isinstance(value, Mapping) or not {"url"} <= set(value) <= set(known):
        raise _refused(f"target.stage: give an object with url, and if you need them {', '.join(known[1:])}")
    for name, text in value.items():
        if not isinstance(text, str) or len(text) > limits.PUSH_URL_LENGTH_MAX:
            raise _refused(
                f"target.stage.{name}={shown(text)}: give a text of {limits.PUSH_URL_LENGTH_MAX:,} characters at most"
            )
    target = StageTarget(**{name: text.rstrip("/") if name == "url" else text for name, text in value.items()})
    if not _is_endpoint(target.url, schemes) or "?" in target.url:
        raise _refused(
            f"target.stage.url={shown(target.url)}: give the URL of the other stage, as its output ApiUrl tells it"
        )
    if target.role and not _ROLE_ARN.fullmatch(target.role):
        raise _refused(
            f"target.stage.role={shown(target.role)}: give an ARN such as arn:aws:iam::123456789012:role/mirror"
        )
    if target.region and not _REGION.fullmatch(target.region):
        raise _refused(f"target.stage.region={shown(target.region)}: give a region such as eu-west-1")
    parse_own_topic_name(f"{target.prefix}t")  # a prefix that no name can have
    return target


def _is_endpoint(url: str, schemes: Sequence[str]) -> bool:
    """Two parsers understand such an address in the same way: it has no characters that some drop or change."""
    try:
        parts = urlsplit(url)
        is_plain = parts.username is None and parts.password is None and "#" not in url and parts.port != 0
    except ValueError:  # brackets that do not close, or no port
        return False
    return bool(_URL.fullmatch(url) and parts.scheme in schemes and parts.hostname and is_plain)


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, why)


def copied(record: Record, now_ms: int) -> NewRecord | None:
    """The record's next copy, made now, None for one that was copied `PUSH_HOPS_MAX` times.

    Key, value, timestamp and all other headers are those of the record. A dead letter keeps the count, too. A count
    that is no number is one that a producer has made up: it counts as 0.
    """
    hops = max((_count(value) for name, value in record.headers if name == HOPS_HEADER), default=0)
    if hops >= PUSH_HOPS_MAX:
        return None
    headers = [(name, value) for name, value in record.headers if name != HOPS_HEADER]
    return NewRecord(
        timestamp_ms=time_of(record.timestamp, now_ms),
        key=record.key,
        value=record.value,
        headers=[*headers, (HOPS_HEADER, str(hops + 1).encode())],
    )


def _count(value: bytes | None) -> int:
    return int(value) if value is not None and len(value) < 10 and value.isdigit() else 0


def why_too_large(target: Target, batch: PushBatch) -> str:
    """The reason for which the target can never take the only record of the batch, "" if it can.

    A topic's copies have bounds of theirs. No form of a record is longer than that of an event, and each has the bytes
    of the value at least. So few forms are made.
    """
    [record] = batch.records
    content = record.record
    match target:
        case FunctionTarget() | HttpsTarget():
            bytes_max = PUSH_PAYLOAD_BYTES_MAX
        case QueueTarget():
            bytes_max = QUEUE_BYTES_MAX
        case BusTarget():
            bytes_max = BUS_BYTES_MAX
        case _:
            return ""
    if event_bytes(record) + _ENVELOPE_BYTES_MAX <= bytes_max:
        return ""
    size = len(content.value or b"")
    if size <= bytes_max:
        match target:
            case QueueTarget():
                size = queue_message(record).size_bytes
            case BusTarget():
                size = bus_event(record).size_bytes
            case _:
                size = len(encode_kafka_event(batch))
    return f"{TOO_LARGE}: it has {size:,} bytes or more, and a delivery {bytes_max:,}" if size > bytes_max else ""
