"""The HTTP API as typed calls, with retries: what Producer, Consumer, Admin and the CLI have in common.

Reads, and writes that are the same when done twice, are tried again on every retriable error; other writes only where
the failure certainly changed nothing. Produce and fetch are not retried here: their callers decide per partition.
"""

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from penstock.errors import UnavailableError, as_sdk_error, error_from_json, error_from_response
from penstock.model import (
    CommittedOffset,
    OffsetAndTimestamp,
    PartitionOffsets,
    Topic,
    TopicDescription,
    TopicPartition,
    Zone,
)
from penstock.retry import RetryPolicy
from penstock.transport import Response, Transport
from penstock_core import frame
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_group_name, parse_topic_name
from penstock_core.limits import COMMIT_OFFSETS_MAX

JSON_TYPE = "application/json"
BATCHES_TYPE = "application/vnd.penstock.batches"
CALL_TIMEOUT_MS = 30_000

_READS = ("GET", "HEAD")


def monotonic_ms() -> int:
    """A clock that never goes back, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Client:
    """The calls of the HTTP API. Raises the classes of penstock.errors. Safe for use by several threads."""

    def __init__(
        self, transport: Transport, *, retry: RetryPolicy | None = None, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> None:
        self._transport = transport
        self._retry = retry or RetryPolicy()
        self._timeout_ms = timeout_ms

    def close(self) -> None:
        """Give back connections."""
        self._transport.close()

    # Topics.

    def create_topic(self, name: str, partitions: int, config: Mapping[str, Any]) -> Topic:
        body = {"name": checked_topic(name), "partitions": partitions, "config": dict(config)}
        return _topic(self._json("POST", "/v1/topics", body=body))

    def list_topics(self) -> list[Topic]:
        topics: list[Topic] = []
        query: dict[str, str] = {}
        while True:
            page = self._json("GET", "/v1/topics", query)
            topics += [_topic(each) for each in page["topics"]]
            if not page.get("next_after"):
                return topics
            query = {"after": page["next_after"]}

    def describe_topic(self, name: str) -> TopicDescription:
        answer = self._json("GET", topic_path(name))
        offsets = (
            PartitionOffsets(
                partition=each["partition"],
                log_start_offset=each["log_start_offset"],
                high_watermark=each["high_watermark"],
            )
            for each in answer["offsets"]
        )
        return TopicDescription(topic=_topic(answer), offsets=tuple(offsets))

    def topic_metadata(self, name: str) -> Topic:
        """Partitions and settings without offsets: all that producing and consuming need, for one read."""
        return _topic(self._json("GET", "/v1/metadata", {"topic": name}))

    def alter_topic(self, name: str, *, partitions: int | None, config: Mapping[str, Any] | None) -> Topic:
        body: dict[str, Any] = {}
        if partitions is not None:
            body["partitions"] = partitions
        if config:
            body["config"] = dict(config)
        return _topic(self._json("PATCH", topic_path(name), body=body, is_repeatable=True))

    def delete_topic(self, name: str) -> None:
        self._json("DELETE", topic_path(name))

    def truncate(self, name: str, before_offsets: Mapping[int, int]) -> dict[int, int]:
        body = {str(partition): offset for partition, offset in before_offsets.items()}
        partitions = self._json("POST", f"{topic_path(name)}/truncate", body=body, is_repeatable=True)["partitions"]
        _raise_first_error(partitions)
        return {each["partition"]: each["log_start_offset"] for each in partitions}

    # Offsets.

    def list_offsets(
        self, name: str, timestamp: int | str, partition: int | None = None
    ) -> dict[int, OffsetAndTimestamp | None]:
        """By partition; `timestamp_ms` is -1 for "earliest" and "latest"."""
        query = {"timestamp": str(timestamp)}
        if partition is not None:
            query["partition"] = str(partition)
        answer = self._json("GET", f"{topic_path(name)}/offsets", query)
        _raise_first_error(answer["offsets"])
        return {each["partition"]: _offset_and_timestamp(each) for each in answer["offsets"]}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit (offset, metadata) per partition. Raises the first partition's error after all were tried."""
        items = [
            {"topic": checked_topic(topic), "partition": partition, "offset": offset, "metadata": metadata}
            for (topic, partition), (offset, metadata) in offsets.items()
        ]
        results: list[Mapping[str, Any]] = []
        for start in range(0, len(items), COMMIT_OFFSETS_MAX):
            body = {"offsets": items[start : start + COMMIT_OFFSETS_MAX]}
            results += self._json("POST", f"{_group_path(group)}/offsets", body=body, is_repeatable=True)["results"]
        _raise_first_error(results)

    def committed_offsets(self, group: str, topic: str | None = None) -> dict[TopicPartition, CommittedOffset]:
        query = {} if topic is None else {"topic": checked_topic(topic)}
        answer = self._json("GET", f"{_group_path(group)}/offsets", query)
        return {
            TopicPartition(each["topic"], each["partition"]): CommittedOffset(
                topic=each["topic"],
                partition=each["partition"],
                offset=each["offset"],
                metadata=each.get("metadata", ""),
                committed_at_ms=each["committed_at_ms"],
            )
            for each in answer["offsets"]
        }

    # Zones.

    def list_zones(self) -> list[Zone]:
        return [_zone(each) for each in self._json("GET", "/v1/zones")["zones"]]

    def move_zone(self, zone: str, state: str, reason: str) -> Zone:
        body = {"state": state, "reason": reason}
        return _zone(self._json("POST", f"/v1/zones/{quote(zone, safe='')}", body=body, is_repeatable=True))

    # Records: one try each.

    def produce(self, header: Mapping[str, Any], batches: Iterable[bytes]) -> list[dict[str, Any]]:
        """The results of a produce request, in the order of `header["batches"]`."""
        body = frame.encode(header, batches)
        response = self._transport.call("POST", "/v1/produce", {}, {"Content-Type": BATCHES_TYPE}, body)
        results = _checked(response, is_read=False).get("results")
        if not isinstance(results, list) or len(results) != len(header["batches"]):
            raise _misunderstood("POST /v1/produce")
        return results

    def fetch(self, request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], memoryview]:
        """One answer per partition, in the order of `request["partitions"]`, and the bytes that they count."""
        body = json.dumps(request, separators=(",", ":")).encode()
        headers = {"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE}
        response = self._transport.call("POST", "/v1/fetch", {}, headers, body)
        if response.status != 200:
            raise error_from_response(response.status, response.headers, response.body, is_read=True)
        try:
            header, batches = frame.decode(response.body)
        except PenstockError as error:
            raise _misunderstood("POST /v1/fetch") from error
        answers = header.get("partitions")
        if not isinstance(answers, list) or len(answers) != len(request["partitions"]):
            raise _misunderstood("POST /v1/fetch")
        return answers, batches

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        is_repeatable: bool = False,
    ) -> dict[str, Any]:
        headers = {"Accept": JSON_TYPE}
        data = b""
        if body is not None:
            headers["Content-Type"] = JSON_TYPE
            data = json.dumps(body, separators=(",", ":")).encode()
        is_read = method in _READS

        def call() -> dict[str, Any]:
            return _checked(self._transport.call(method, path, query or {}, headers, data), is_read=is_read)

        return self._with_retries(call, is_repeatable=is_repeatable or is_read)

    def _with_retries(self, call: Callable[[], dict[str, Any]], *, is_repeatable: bool) -> dict[str, Any]:
        deadline_ms = monotonic_ms() + self._timeout_ms
        failures = 0
        while True:
            try:
                return call()
            except PenstockError as error:
                failures += 1
                retry_at_ms = self._retry.retry_at_ms(
                    error,
                    failures=failures,
                    now_ms=monotonic_ms(),
                    deadline_ms=deadline_ms,
                    chance=random.random(),  # noqa: S311 - jitter, not a secret
                )
                if retry_at_ms is None or (error.maybe_applied and not is_repeatable):
                    raise
                time.sleep(max(0, retry_at_ms - monotonic_ms()) / 1_000)


def topic_path(name: str) -> str:
    """`/v1/topics/{name}`. Raises InvalidError for what cannot be a name (and could be another path)."""
    return f"/v1/topics/{checked_topic(name)}"


def checked_topic(name: str) -> str:
    """The name, if it may be one. Raises InvalidError."""
    return _as_sdk_error(parse_topic_name, name)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _group_path(name: str) -> str:
    return f"/v1/groups/{_as_sdk_error(parse_group_name, name)}"


def _as_sdk_error(parse: Callable[[str], str], name: str) -> str:
    try:
        return parse(name)
    except PenstockError as error:
        raise as_sdk_error(error) from None


def _checked(response: Response, *, is_read: bool) -> dict[str, Any]:
    if not 200 <= response.status < 300:
        raise error_from_response(response.status, response.headers, response.body, is_read=is_read)
    try:
        document = json.loads(response.body or b"{}")
    except ValueError as error:
        raise _misunderstood("a request") from error
    if not isinstance(document, dict):
        raise _misunderstood("a request")
    return document


def _raise_first_error(results: Iterable[Mapping[str, Any]]) -> None:
    for each in results:
        if "error" in each:
            raise error_from_json(each["error"])


def _misunderstood(route: str) -> PenstockError:
    return UnavailableError(
        ErrorCode.INTERNAL, f"{route} was answered by something that is not Penstock: check the URL", maybe_applied=True
    )


def _topic(answer: Mapping[str, Any]) -> Topic:
    return Topic(
        name=answer["name"],
        topic_id=answer["topic_id"],
        partitions=answer["partitions"],
        config=answer["config"],
        created_at_ms=answer["created_at_ms"],
    )


def _zone(answer: Mapping[str, Any]) -> Zone:
    return Zone(
        zone=answer["zone"],
        state=answer["state"],
        version=answer["version"],
        since_ms=answer["since_ms"],
        reason=answer["reason"],
    )


def _offset_and_timestamp(each: Mapping[str, Any]) -> OffsetAndTimestamp | None:
    if each["offset"] is None:
        return None
    timestamp_ms = each.get("timestamp_ms")
    return OffsetAndTimestamp(each["offset"], -1 if timestamp_ms is None else timestamp_ms)
