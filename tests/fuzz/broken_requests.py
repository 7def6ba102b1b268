"""Requests as a hostile or faulty client may send them: mostly right, with odd values, forms and bytes."""

import json
import random
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from tests.fuzz.broken_batches import BatchFuzzer

TOPICS = ("orders", "bills", "made", "nothing", "strict")
GROUPS = ("g", "billing", "none")
_ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63 - 1, 2**63, 10**30, 0.5, "", "0", "\0", "é" * 50, "x" * 5_000, "\ud7ff", [], {},
    [[[[[]]]]], {"a": {"a": {}}}, ["orders"], [None],
)  # fmt: skip
_ODD_TEXTS = ("", "0", "-1", "+1", "1_0", "01", "9" * 40, "latest", "\n", "%2f", "a/b", "..", "é", "\0", "x" * 300)
_TEXTS = ("", "a", "key", "значение", '"', "\\", "\n", "\x00", "x" * 2_000, "\U0001f600")
_FILTERS = ('{"name": [{"exists": true}]}', '{"name": ["a"], "b": [null]}', '{"name": [{"prefix": 1}]}', "{", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzedRequest:
    """One request as the gateway gets it, its path percent-encoded."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class RequestFuzzer:
    """Makes requests from a seed. `maker` names the kinds that it chooses from."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._batches = BatchFuzzer(seed)
        self._makers = (
            self._produce, self._produce, self._produce, self._fetch, self._fetch, self._transact, self._producers,
            self._produce_json, self._read_json, self._topics, self._topic, self._offsets, self._truncate,
            self._groups, self._group, self._heartbeat, self._commit, self._reset, self._zone, self._nothing,
            self._share_group, self._acquire, self._acquire, self._acknowledge, self._redrive,
        )  # fmt: skip

    def request(self) -> FuzzedRequest:
        """The next request; one in eight has a broken body."""
        request = self._random.choice(self._makers)()
        if request.body and self._random.random() < 0.125:
            request = FuzzedRequest(
                method=request.method, path=request.path, query=request.query, body=self._broken(request.body)
            )
        return request

    def _produce(self) -> FuzzedRequest:
        return self._framed(
            "/v1/produce", {"acks": self._or_odd(self._random.choice(("quorum", "all", "one", "none")))}
        )

    def _transact(self) -> FuzzedRequest:
        rng = self._random
        header: dict[str, Any] = {
            "transactional_id": self._or_odd("tx"),
            "epoch": self._or_odd(rng.choice((0, 0, 1, 5))),
            "transaction": self._or_odd(rng.choice((1, 1, 2, 3))),
        }
        if rng.random() < 0.4:
            header["stage"] = self._or_odd(rng.choice((0, 1, 63)))
        elif rng.random() < 0.5:
            header["stages"] = self._or_odd(rng.choice((0, 1, 2)))
            header["offsets"] = [self._or_odd(self._offset(with_group=True)) for _ in range(rng.choice((0, 1, 3)))]
        return self._framed("/v1/transactions", header)

    def _framed(self, path: str, header: dict[str, Any]) -> FuzzedRequest:
        bodies = [self._data() for _ in range(self._random.choice((0, 1, 1, 2, 5)))]
        header["batches"] = [
            self._or_odd(
                {
                    "topic": self._or_odd(self._random.choice(TOPICS)),
                    "partition": self._or_odd(self._random.randrange(4)),
                    "length": self._or_odd(len(body)),
                }
            )
            for body in bodies
        ]
        try:
            content = frame.encode(self._extended(header), bodies)
        except ValueError:  # an odd value that JSON does not have
            content = b"".join(bodies)
        return FuzzedRequest(method="POST", path=path, headers={"Content-Type": frame.FRAME_CONTENT_TYPE}, body=content)

    def _data(self) -> bytes:
        rng = self._random
        if rng.random() < 0.5:
            return self._batches.batches()
        records = [NewRecord(rng.randrange(2**41), b"k", rng.randbytes(rng.randrange(60))) for _ in range(3)]
        return encode(records, rng.choice(list(Compression)))

    def _fetch(self) -> FuzzedRequest:
        rng = self._random
        partitions = [
            self._or_odd(
                {
                    "topic": self._or_odd(rng.choice(TOPICS)),
                    "partition": self._or_odd(rng.randrange(4)),
                    "offset": self._or_odd(rng.choice((0, 0, 3, 50, 1_000_000))),
                    **({"max_bytes": self._or_odd(rng.choice((1, 1_000, 2**20)))} if rng.random() < 0.5 else {}),
                    **({"filter": self._or_odd(rng.choice(_FILTERS))} if rng.random() < 0.2 else {}),
                }
            )
            for _ in range(rng.choice((0, 1, 2, 20)))
        ]
        return self._json(
            "POST", "/v1/fetch", {"partitions": partitions, "max_bytes": 2**20, "min_bytes": 0, "wait_ms": 0}
        )

    def _producers(self) -> FuzzedRequest:
        return self._json("POST", "/v1/producers", {"transactional_id": self._random.choice(("tx", "other", ""))})

    def _produce_json(self) -> FuzzedRequest:
        rng = self._random
        records: list[Any] = []
        for _ in range(rng.choice((0, 1, 2, 10))):
            record: dict[str, Any] = {rng.choice(("value", "value_base64")): self._or_odd(rng.choice(_TEXTS))}
            if rng.random() < 0.5:
                record[rng.choice(("key", "key_base64"))] = self._or_odd(rng.choice(_TEXTS))
            if rng.random() < 0.3:
                record["headers"] = self._or_odd([["name", rng.choice(_TEXTS)], ["b", {"base64": "AAE="}]])
            if rng.random() < 0.3:
                record["timestamp_ms"] = self._or_odd(rng.randrange(2**41))
            if rng.random() < 0.3:
                record["partition"] = self._or_odd(rng.randrange(4))
            records.append(self._or_odd(record))
        body: dict[str, Any] = {"records": records}
        if rng.random() < 0.2:
            body["sequence"] = self._or_odd({"producer_id": self._or_odd(7), "first_sequence": self._or_odd(0)})
        return self._json("POST", f"/v1/topics/{self._name(TOPICS)}/records", body)

    def _read_json(self) -> FuzzedRequest:
        path = f"/v1/topics/{self._name(TOPICS)}/partitions/{self._name(('0', '1', '7'))}/records"
        return self._get(
            path, offset=("earliest", "latest", "0", "5"), max_bytes=("1", "100000"), wait_ms=("0",), filter=_FILTERS
        )

    def _topics(self) -> FuzzedRequest:
        if self._random.random() < 0.4:
            return self._get("/v1/topics", limit=("1", "100"), after=TOPICS)
        if self._random.random() < 0.3:
            return self._get("/v1/metadata", topic=TOPICS)
        body = {"name": self._random.choice(("made", "made")), "partitions": self._or_odd(2), "config": self._config()}
        return self._json("POST", "/v1/topics", body)

    def _topic(self) -> FuzzedRequest:
        method, path = self._random.choice(("GET", "GET", "PATCH", "DELETE")), f"/v1/topics/{self._name(TOPICS)}"
        if method == "DELETE" and path.endswith(("orders", "bills", "strict")):
            method = "GET"
        if method != "PATCH":
            return FuzzedRequest(method=method, path=path)
        return self._json("PATCH", path, {"partitions": self._or_odd(4), "config": self._config()})

    def _config(self) -> Any:
        names = (
            "retention_ms",
            "retention_bytes",
            "max_batch_bytes",
            "cleanup_policy",
            "min_insync_zones",
            "validate_records",
        )
        chosen = {self._random.choice(names): self._random.choice((60_000, -1, None, "compact", *_ODD_VALUES))}
        return self._or_odd(chosen if self._random.random() < 0.5 else {})

    def _offsets(self) -> FuzzedRequest:
        times = ("earliest", "latest", "0", "1790000000000", "9223372036854775807")
        return self._get(f"/v1/topics/{self._name(TOPICS)}/offsets", timestamp=times, partition=("0", "1", "9"))

    def _truncate(self) -> FuzzedRequest:
        offsets = {self._random.choice(("0", "1", "x")): self._or_odd(self._random.randrange(50))}
        return self._json("POST", f"/v1/topics/{self._name(TOPICS)}/truncate", {"offsets": self._or_odd(offsets)})

    def _groups(self) -> FuzzedRequest:
        return self._get("/v1/groups", limit=("1", "100"), after=GROUPS)

    def _group(self) -> FuzzedRequest:
        method, path = self._random.choice(("GET", "GET", "PATCH", "DELETE")), f"/v1/groups/{self._name(GROUPS)}"
        if method != "PATCH":
            return FuzzedRequest(method=method, path=path)
        return self._json(method, path, {"config": {"session_timeout_ms": self._or_odd(10_000)}})

    def _heartbeat(self) -> FuzzedRequest:
        rng = self._random
        body = {
            "member_id": self._or_odd(rng.choice(("m1", "m2"))),
            "sequence": self._or_odd(rng.randrange(1_000)),
            "epoch": self._or_odd(rng.choice((0, 0, 1, -1))),
            "topics": self._or_odd([rng.choice(TOPICS)]),
            "owned": self._or_odd({rng.choice(TOPICS): self._or_odd([0, 1])}),
        }
        return self._json("POST", f"/v1/groups/{self._name(GROUPS)}/heartbeat", body)

    def _commit(self) -> FuzzedRequest:
        path = f"/v1/groups/{self._name(GROUPS)}/offsets"
        if self._random.random() < 0.4:
            return self._get(path, topic=TOPICS)
        offsets = [self._or_odd(self._offset(with_group=False)) for _ in range(self._random.choice((0, 1, 2, 30)))]
        return self._json("POST", path, {"offsets": offsets})

    def _offset(self, *, with_group: bool) -> dict[str, Any]:
        rng = self._random
        found: dict[str, Any] = {
            "topic": self._or_odd(rng.choice(TOPICS)),
            "partition": self._or_odd(rng.randrange(4)),
            "offset": self._or_odd(rng.randrange(100)),
        }
        if with_group:
            found["group"] = self._or_odd(rng.choice(GROUPS))
        if rng.random() < 0.3:
            found["metadata"] = self._or_odd(rng.choice(_TEXTS))
        return found

    def _reset(self) -> FuzzedRequest:
        rng = self._random
        name, value = rng.choice(
            (("to", "earliest"), ("timestamp_ms", rng.choice((0, 1, 2**62))), ("shift_by", -3), ("offsets", {"0": 1}))
        )
        body = {"topic": self._or_odd(rng.choice(TOPICS)), name: self._or_odd(value), "dry_run": rng.random() < 0.5}
        return self._json("POST", f"/v1/groups/{self._name(GROUPS)}/reset", body)

    def _share_group(self) -> FuzzedRequest:
        rng = self._random
        method, path = rng.choice(("GET", "PUT", "PUT", "DELETE", "POST")), f"/v1/share-groups/{self._name(GROUPS)}"
        if method == "PUT":
            names = ("lock_ms", "deliveries_max", "dead_letter_topic", "ordering", "filter", "start", "in_flight_max")
            value = rng.choice((5_000, None, "bills", "key", "latest", {"name": ["a"]}, *_ODD_VALUES))
            config = {rng.choice(names): value} if rng.random() < 0.7 else {}
            return self._json(method, path, {"topics": self._or_odd([rng.choice(TOPICS)]), "config": config})
        if method == "POST":
            to = rng.choice(("earliest", "latest", {"offset": rng.randrange(9)}, {"timestamp_ms": 5}, *_ODD_VALUES))
            return self._json(method, f"{path}/reset", {"topic": self._or_odd(rng.choice(TOPICS)), "to": to})
        return FuzzedRequest(method=method, path=path)

    def _acquire(self) -> FuzzedRequest:
        rng = self._random
        body = {
            "nonce": self._or_odd(rng.choice(("aaaaaaaa", "bbbbbbbb", None))),
            "max_records": self._or_odd(rng.choice((1, 5, 500))),
            "max_bytes": self._or_odd(rng.choice((1, 2**20))),
            "lock_ms": self._or_odd(rng.choice((1_000, None))),
            "arm": self._or_odd(rng.random() < 0.5),
            "acknowledge": self._or_odd([self._or_odd(self._acknowledgement()) for _ in range(rng.choice((0, 0, 2)))]),
        }
        path = f"/v1/share-groups/{self._name(GROUPS)}/{rng.choice(('records', 'acquire'))}"
        return self._json("POST", path, body)

    def _acknowledge(self) -> FuzzedRequest:
        entries = [self._or_odd(self._acknowledgement()) for _ in range(self._random.choice((1, 2, 9)))]
        return self._json("POST", f"/v1/share-groups/{self._name(GROUPS)}/acknowledge", {"acknowledge": entries})

    def _acknowledgement(self) -> dict[str, Any]:
        rng = self._random
        start = rng.randrange(20)
        return {
            "topic": self._or_odd(rng.choice(TOPICS)),
            "partition": self._or_odd(rng.randrange(4)),
            "lock_id": self._or_odd(rng.choice(("aaaaaaaa.0", "bbbbbbbb.0~AAABAaIFyyNAAAEBAAQ~1234", "~", "a~~~~"))),
            "offsets": self._or_odd(rng.choice((None, [[start, start + 3]], [[0, 2**63 - 1]]))),
            "type": self._or_odd(rng.choice(("accept", "release", "reject", "renew"))),
        }

    def _redrive(self) -> FuzzedRequest:
        rng = self._random
        body = {"to": self._or_odd(rng.choice((None, "bills"))), "filter": self._or_odd({"name": ["a"]})}
        body["cursor"] = self._or_odd(rng.choice((None, "0-3", "7-0")))
        return self._json("POST", f"/v1/topics/{self._name(TOPICS)}/redrive", body if rng.random() < 0.6 else {})

    def _zone(self) -> FuzzedRequest:
        if self._random.random() < 0.6:
            return FuzzedRequest(method="GET", path="/v1/zones")
        body = {"state": self._or_odd("in_sync"), "reason": self._or_odd("a reason")}
        return self._json("POST", f"/v1/zones/{self._name(('none', 'z'))}", body)

    def _nothing(self) -> FuzzedRequest:
        method = self._random.choice(("GET", "POST", "PUT", "HEAD", "OPTIONS", "BREW"))
        return FuzzedRequest(method=method, path="/v1/" + self._name(("topic", "", "produce")), body=b"{}")

    def _get(self, path: str, **choices: tuple[str, ...]) -> FuzzedRequest:
        rng = self._random
        query = {
            name: rng.choice(_ODD_TEXTS) if self._is_odd() else rng.choice(values)
            for name, values in choices.items()
            if rng.random() < 0.7
        }
        if self._is_odd():
            query[rng.choice(("unknown", "", "offset"))] = "1"
        return FuzzedRequest(method="GET", path=path, query=query)

    def _json(self, method: str, path: str, body: dict[str, Any]) -> FuzzedRequest:
        text = json.dumps(self._extended(body))
        if self._is_odd():
            text = text[:-1] + "," + text[1:]  # every name twice
        return FuzzedRequest(method=method, path=path, headers={"Content-Type": "application/json"}, body=text.encode())

    def _extended(self, fields: dict[str, Any]) -> dict[str, Any]:
        fields = dict(fields)
        if self._is_odd():
            fields[self._random.choice(("unknown", "", *fields))] = self._random.choice(_ODD_VALUES)
        if fields and self._is_odd():
            fields.pop(self._random.choice([*fields]))
        return fields

    def _broken(self, body: bytes) -> bytes:
        rng, changed = self._random, bytearray(body)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(changed) + 1)
            match rng.randrange(4):
                case 0:
                    del changed[at:]
                case 1:
                    changed[at:at] = rng.choice((b"[" * 2_000, b"\xff", b"\xef\xbb\xbf", b"NaN", b"{}", b"\\ud800"))
                case 2 if at < len(changed):
                    changed[at] = rng.randrange(256)
                case _:
                    del changed[at : at + rng.randrange(10)]
        return bytes(changed)

    def _name(self, names: tuple[str, ...]) -> str:
        return quote(self._random.choice(_ODD_TEXTS if self._is_odd() else names), safe="")

    def _or_odd(self, value: Any) -> Any:
        return self._random.choice(_ODD_VALUES) if self._is_odd() else value

    def _is_odd(self) -> bool:
        return self._random.random() < 0.04
