"""The source by librdkafka (`confluent-kafka`). It assigns partitions, joins no group and commits nothing."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.errors import ConnectionFailedError, InvalidError, NotFoundError, OffsetOutOfRangeError, UnavailableError
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import (
    IMPORT_CALL_MS_MAX,
    IMPORT_QUEUED_KIB,
    IMPORT_READ_RECORDS,
    IMPORT_SILENCE_MS_MAX,
)
from penstock_import.source.address import KafkaAddress
from penstock_import.source.records import PartitionBounds, ReachedEnd, SourceEvent, SourceRecord, SourceTopic

try:
    from confluent_kafka import (
        TIMESTAMP_NOT_AVAILABLE,
        Consumer,
        ConsumerGroupTopicPartitions,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType
except ModuleNotFoundError as missing:
    hint = f"{missing}: penstock_import.source.confluent needs `pip install 'penstock[import]'`"
    raise ModuleNotFoundError(hint, name=missing.name) from missing

_CALL_S = IMPORT_CALL_MS_MAX / 1_000
_log = logging.getLogger("penstock.import")
_librdkafka_log = logging.getLogger("penstock.import.librdkafka")
_librdkafka_log.addHandler(logging.NullHandler())  # a line for each refused connection; the error says it once


class ConfluentSource:
    """A TopicSource over librdkafka. `settings` are librdkafka's own, for TLS and SASL."""

    def __init__(self, address: KafkaAddress, settings: Mapping[str, str]) -> None:
        self.topic = address.topic
        self._servers = address.servers
        self._last_error = ""
        self._heard_ms = monotonic_ms()
        self._reached: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        common: dict[str, Any] = {
            "client.id": "penstock-import",
            **{name: value for name, value in settings.items() if name != "group.id"},
            "bootstrap.servers": address.servers,
            "error_cb": self._note,
            "logger": _librdkafka_log,
        }
        reader = {
            # librdkafka wants a name, and asks for its coordinator. Nothing joins, so no group comes into being.
            "group.id": settings.get("group.id", "penstock-import"),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": IMPORT_QUEUED_KIB,
        }
        try:
            self._consumer = Consumer({**common, **reader})
            self._admin = AdminClient(common)
        except (KafkaException, ValueError, TypeError) as error:
            raise InvalidError(ErrorCode.INVALID_CONFIG, f"the client's properties: {_text(error)}") from error

    def describe(self) -> SourceTopic:
        """As TopicSource.describe. One request."""
        found = self._call(lambda: self._consumer.list_topics(self.topic, timeout=_CALL_S))
        topic = found.topics.get(self.topic)
        if topic is None or topic.error is not None or not topic.partitions:
            why = "" if topic is None or topic.error is None else f" ({topic.error.str()})"
            raise NotFoundError(
                ErrorCode.UNKNOWN_TOPIC,
                f"Kafka at {self._servers} has no topic {shown(self.topic)}{why}: look at `kafka-topics.sh --list`",
            )
        return SourceTopic(
            cluster=found.cluster_id or self._servers, topic=self.topic, partitions=len(topic.partitions)
        )

    def topic_settings(self) -> Mapping[str, str]:
        """As TopicSource.topic_settings. One request."""
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        [answer] = self._admin.describe_configs([resource], request_timeout=_CALL_S).values()
        found = self._call(lambda: answer.result(_CALL_S))
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    def bounds(self) -> Mapping[int, PartitionBounds]:
        """As TopicSource.bounds. Two requests, and two to each leader."""
        self._call(lambda: self._admin.list_topics(self.topic, timeout=_CALL_S))  # or it knows no new partitions
        places = [TopicPartition(self.topic, each) for each in range(self.describe().partitions)]
        starts = self._offsets(places, OffsetSpec.earliest())
        self._ends = self._offsets(places, OffsetSpec.latest())
        return {each: PartitionBounds(start, self._ends[each]) for each, start in starts.items()}

    def _offsets(self, places: Sequence[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
        answers = self._admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_CALL_S
        )
        return {each.partition: self._call(partial(answer.result, _CALL_S)).offset for each, answer in answers.items()}

    def start(self, positions: Mapping[int, int]) -> None:
        """As TopicSource.start."""
        self._reached = {}
        self._heard_ms = monotonic_ms()
        self._call(
            lambda: self._consumer.assign([TopicPartition(self.topic, each, at) for each, at in positions.items()])
        )

    def read(self, wait_ms: int) -> Sequence[SourceEvent]:
        """As TopicSource.read."""
        events = []
        for message in self._call(lambda: self._consumer.consume(IMPORT_READ_RECORDS, wait_ms / 1_000)):
            event = self._event(message)
            if event is not None:
                events.append(event)
        if events:
            self._heard_ms, self._last_error = monotonic_ms(), ""
        elif self._last_error and monotonic_ms() - self._heard_ms > IMPORT_SILENCE_MS_MAX:
            raise self._unreachable(f"no answer for {IMPORT_SILENCE_MS_MAX // 1_000} s")
        return events

    def lag(self, positions: Mapping[int, int]) -> int:
        """As TopicSource.lag."""
        behind = 0
        for each, at in positions.items():
            if each in self._reached:
                continue
            known = self._consumer.get_watermark_offsets(TopicPartition(self.topic, each), cached=True)
            end = max(known[1] if known else 0, self._ends.get(each, 0))
            behind += max(0, end - at)
        return behind

    def committed(self, group: str) -> Mapping[int, int]:
        """As TopicSource.committed. One request to the group's coordinator."""
        places = [TopicPartition(self.topic, each) for each in range(self.describe().partitions)]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        [answer] = self._admin.list_consumer_group_offsets(wanted, request_timeout=_CALL_S).values()
        found = self._call(lambda: answer.result(_CALL_S))
        return {each.partition: each.offset for each in found.topic_partitions if each.offset >= 0}

    def close(self) -> None:
        """As TopicSource.close."""
        self._consumer.close()

    def _event(self, message: Any) -> SourceEvent | None:
        error = message.error()
        if error is not None:
            return self._told(error, message)
        self._reached.pop(message.partition(), None)
        kind, timestamp_ms = message.timestamp()
        try:
            headers = tuple(message.headers() or ())
        except UnicodeDecodeError as undecodable:
            raise InvalidError(
                ErrorCode.UNSUPPORTED_FORMAT,
                f"{self.topic}[{message.partition()}] offset {message.offset()}: a header's name is not UTF-8",
            ) from undecodable
        return SourceRecord(
            message.partition(),
            message.offset(),
            None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            message.key(),
            message.value(),
            headers,
        )

    def _told(self, error: Any, message: Any) -> ReachedEnd | None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._reached[message.partition()] = message.offset()
            return ReachedEnd(message.partition(), message.offset())
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise OffsetOutOfRangeError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}[{message.partition()}] has no offset {message.offset()}: {error.str()}",
                partition=message.partition(),
                offset=message.offset(),
            )
        if error.retriable() or code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self._note(error)
            return None
        raise _as_penstock_error(error, self._servers)

    def _note(self, error: Any) -> None:
        """Remember what librdkafka complains of. It goes on by itself; silence makes it an error."""
        if not (
            self._last_error and error.code() == KafkaError._ALL_BROKERS_DOWN
        ):  # it only counts what the others say
            self._last_error = error.str()
        _log.debug("librdkafka: %s", error.str())

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except KafkaException as failure:
            self._admin.poll(0)  # what its connections met
            raise _as_penstock_error(failure.args[0], self._servers, self._last_error) from failure
        except TimeoutError as failure:
            raise self._unreachable(f"no answer in {_CALL_S:.0f} s") from failure

    def _unreachable(self, what: str) -> ConnectionFailedError:
        return _unreachable(self._servers, what, self._last_error)


def _as_penstock_error(error: Any, servers: str, last_error: str = "") -> PenstockError:
    denied = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    )
    if error.code() in denied:
        return PenstockError(
            ErrorCode.NOT_AUTHORIZED,
            f"Kafka at {servers}: {error.str()}. Give the credentials by --config, and allow DESCRIBE and READ of the "
            "topic, and DESCRIBE of the groups",
        )
    if error.code() in (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    ):
        return _unreachable(servers, error.str(), last_error)
    return UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, f"Kafka at {servers}: {error.name()}: {error.str()}")


def _unreachable(servers: str, what: str, last_error: str) -> ConnectionFailedError:
    detail = f" ({last_error})" if last_error and last_error != what else ""
    return ConnectionFailedError(
        f"Kafka at {servers}: {what}{detail}. Check the address, and give TLS and SASL settings by --config",
        maybe_applied=False,
    )


def _text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return str(first.str() if isinstance(first, KafkaError) else first)
