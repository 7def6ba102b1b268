"""A service in memory that arms partitions and sends its wake-ups through a FakeAppSync."""

import json
import threading
from collections.abc import Mapping
from typing import Any, cast

from penstock.configuration import Configuration, StaticCredentials
from penstock.http.http_message import Response
from penstock.http.signature import event_headers
from penstock.http.sigv4 import Keys
from penstock.http.transport import Transport
from penstock_core.records import frame
from tests.support.fake_app_sync import FakeAppSync

KEYS = Keys("AKIDEXAMPLE", "secret", "token")


class RotatingCredentials:
    """Temporary credentials: `keys` are the valid ones. `calls` counts who asked."""

    def __init__(self, keys: Keys = KEYS) -> None:
        self.keys = keys
        self.calls = 0

    def get_frozen_credentials(self) -> StaticCredentials:
        self.calls += 1
        return StaticCredentials(*self.keys)


class WakingTransport:
    """Wraps a transport of the service. `place` answers GET /v1/wake-ups: None for a stage without wake-ups.

    A write sends a wake-up, with no offset, for each partition that was armed since the last one. `loses` drops them.
    A partition is `armed` in the answer to a heartbeat as long as it has a waiter. `looks` counts such heartbeats.
    """

    def __init__(self, inner: Transport, events: FakeAppSync) -> None:
        self._inner = inner
        self._events = events
        self._lock = threading.Lock()
        self._waiters: set[tuple[str, int]] = set()
        self._channels: set[str] = set()
        self.credentials = RotatingCredentials()
        self.place: Mapping[str, str] | None = events.place
        self.loses = False
        self.asked = 0
        self.looks = 0
        self.metadata = 0  # looks at topics
        self.fetches: list[dict[str, Any]] = []

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == "/v1/wake-ups":
            self.asked += 1
            return Response(200, {}, json.dumps(self.place or {"realtime": None}).encode())
        if path == "/v1/fetch":
            return self._fetch(query, headers, json.loads(body))
        self.metadata += path == "/v1/metadata"
        if path.endswith("/heartbeat"):
            return self._beat(path, headers, json.loads(body))
        if path.endswith("/acquire"):
            return self._acquire(path, headers, json.loads(body))
        answer = self._inner.call(method, path, query, headers, body)
        if path in ("/v1/produce", "/v1/topics/orders/records") or path.endswith("/acknowledge"):
            self._wake()
        return answer

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        configuration = Configuration(url="https://unused", region="us-east-1", credentials=self.credentials)
        return event_headers(configuration, host, body)

    def armed(self) -> int:
        """How many partitions have a waiter."""
        with self._lock:
            return len(self._waiters)

    def close(self) -> None:
        self._inner.close()

    def _fetch(self, query: Mapping[str, str], headers: Mapping[str, str], asked: dict[str, Any]) -> Response:
        self.fetches.append(dict(asked))
        arm = asked.pop("arm", False)
        with self._lock:  # no write comes between the read and the waiter
            answer = self._inner.call("POST", "/v1/fetch", query, headers, json.dumps(asked).encode())
            if not arm or answer.status != 200:
                return answer
            header, batches = frame.decode(answer.body)
            partitions = self._partitions({each["topic"] for each in asked["partitions"]}, headers)
            is_empty = not len(batches)
            for each in cast(list[dict[str, Any]], header["partitions"]):
                if "error" not in each:
                    each["armed"] = is_empty
                    each["topic_partitions"] = partitions[each["topic"]]
                    if is_empty:
                        self._waiters.add((each["topic_id"], each["partition"]))
        return answer._replace(body=frame.encode(header, [batches]))

    def _partitions(self, topics: set[str], headers: Mapping[str, str]) -> dict[str, int]:
        found = {each: self._inner.call("GET", "/v1/metadata", {"topic": each}, headers, b"") for each in topics}
        return {topic: json.loads(answer.body)["partitions"] for topic, answer in found.items()}

    def _beat(self, path: str, headers: Mapping[str, str], asked: dict[str, Any]) -> Response:
        watched = asked.pop("watched", [])
        answer = self._inner.call("POST", path, {}, headers, json.dumps(asked).encode())
        if not watched or answer.status != 200:
            return answer
        armed: dict[str, list[int]] = {}
        with self._lock:
            self.looks += 1
            for each in watched:
                if (each["topic_id"], each["partition"]) in self._waiters:
                    armed.setdefault(each["topic_id"], []).append(each["partition"])
        return answer._replace(body=json.dumps({**json.loads(answer.body), "armed": armed}).encode())

    def _acquire(self, path: str, headers: Mapping[str, str], asked: dict[str, Any]) -> Response:
        self.fetches.append(dict(asked))
        with self._lock:
            answer = self._inner.call("POST", path, {}, headers, json.dumps({**asked, "arm": False}).encode())
            if not asked["arm"] or answer.status != 200:
                return answer
            header, batches = frame.decode(answer.body)
            if not header["partitions"]:
                self._channels.add(f"/wake/{header['share_group_id']}/share")
                for each in cast(list[dict[str, Any]], header["watch"]):
                    each["armed"] = True
                    self._waiters.add((each["topic_id"], each["partition"]))
        return answer._replace(body=frame.encode(header, [batches]))

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, set()
            channels, self._channels = self._channels, set()
        if not self.loses:
            for topic_id, partition in waiters:
                event = {"topic_id": topic_id, "partition": partition, "next_offset": None}
                self._events.publish(f"/wake/{topic_id}/{partition}", event)
                for channel in channels:  # of share groups: any of their partitions
                    self._events.publish(channel, {**event, "share_group_id": channel.split("/")[2]})
