"""A client of S3 for segments: PutObject and GetObject go out here, any other operation through botocore's client.

It takes and gives what botocore's client takes and gives, for the arguments that S3SegmentStore has. Its errors are
those of `driver_errors`. TLS protects the bodies on their way, and each put has a CRC-32C, so their signature needs no
hash of them.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html, and of GetObject and CreateSession

The keys of a directory bucket's session, which S3 gives for five minutes.

A minute before their end every call waits for new ones. In the minute before that, one call renews them, and the others
go on with those they have. If S3 gives no new ones then, that call goes on, too. The next try comes ten seconds later.
"""

import io
import logging
import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from penstock_core.backoff import full_jitter_ms
from penstock_core.limits import STORAGE_BACKOFF_MS_MAX
from penstock_service.adapters.direct.connections import Connections, HttpAnswer
from penstock_service.adapters.direct.places import READ_ONLY, UNSIGNED, Keys, KeySource, Places, Signer
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, DriverError, NoAnswerError
from penstock_service.adapters.s3.segments import is_directory_bucket
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.ports.runtime import Clock, Runtime

_SERVICE = "s3"
_EXPRESS = "s3express"
_ATTEMPTS_MAX = 2
# Besides the statuses from 500 on, and 429. A process that stood still may send an old signature: each try signs anew.
_PASSING = {"SlowDown", "RequestTimeout", "RequestTimeTooSkewed"}
_ZONE_ID = re.compile(r".+--([a-z0-9-]+)--xa?-s3")
_CODE = re.compile(rb"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]*)</Message>")
_MUST_RENEW_S = 60
_MAY_RENEW_S = 120
_NEXT_TRY_S = 10  # after one that failed, while the held keys are good
_log = logging.getLogger(__name__)


class DirectS3:
    """S3 in one region. `others` makes botocore's client when an operation first needs it. `calls` counts each call.

    Repeats a call once, because a repeated put meets its own object.
    """

    def __init__(
        self, places: Places, keys: KeySource, runtime: Runtime, calls: StorageCalls, others: Callable[[], Any]
    ) -> None:
        self._places = places
        self._keys = keys
        self._runtime = runtime
        self._calls = calls
        self._others = others
        self._lock = threading.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def put_object(self, **arguments: Any) -> dict[str, Any]:
        """As botocore's, of `Bucket`, `Key`, `Body`, `ChecksumCRC32C` and `IfNoneMatch`. Its answer names nothing."""
        headers = {"x-amz-checksum-crc32c": arguments.pop("ChecksumCRC32C")}
        if "IfNoneMatch" in arguments:
            headers["if-none-match"] = arguments.pop("IfNoneMatch")
        body = arguments.pop("Body")
        self._sent("PutObject", "PUT", headers, body, **arguments)
        return {}

    def get_object(self, **arguments: Any) -> dict[str, Any]:
        """As botocore's, of `Bucket`, `Key` and `Range`. The body is read already."""
        headers = {"range": arguments.pop("Range")} if "Range" in arguments else {}
        answer = self._sent("GetObject", "GET", headers, b"", **arguments)
        return {"Body": io.BytesIO(answer.body)}

    def open_session(self, bucket: str) -> None:
        """Opens the session of a directory bucket: one CreateSession. Later calls to the bucket renew it."""
        of = self._bucket(bucket)
        if of.session is not None:
            of.session.current()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._others(), name)

    def _sent(self, operation: str, method: str, headers: Mapping[str, str], body: bytes, **place: str) -> HttpAnswer:
        of = self._bucket(place.pop("Bucket"))
        target = f"{of.path}/{quote(place.pop('Key'), safe='/~')}"
        if place:
            raise TypeError(f"{operation} takes no {', '.join(place)} here")
        for attempt in range(_ATTEMPTS_MAX):
            try:
                keys, token_header = self._keys_of(of)
                return self._once(of, operation, method, target, headers, body, keys, token_header)
            except DriverError as error:
                if attempt == _ATTEMPTS_MAX - 1 or not _helps_again(error):
                    raise
            chance = int.from_bytes(self._runtime.entropy.random_bytes(2), "big") / 2**16
            self._runtime.clock.sleep_ms(
                full_jitter_ms(attempt, STORAGE_BACKOFF_MS_MAX, STORAGE_BACKOFF_MS_MAX, chance)
            )
        raise AssertionError("the last attempt returns or raises")

    def _keys_of(self, of: "_Bucket") -> tuple[Keys, str]:
        """The keys that sign a call to the bucket, and the header that takes their token."""
        if of.session is not None:
            return of.session.current(), "x-amz-s3session-token"
        return self._keys(), "x-amz-security-token"

    def _once(
        self,
        of: "_Bucket",
        operation: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        keys: Keys,
        token_header: str,
    ) -> HttpAnswer:
        payload = UNSIGNED if of.connections.origin.startswith("https:") else sha256(body).hexdigest()
        own = {**headers, "x-amz-content-sha256": payload}
        if keys.token:
            own[token_header] = keys.token
        signed = of.signer.signed(keys, method, of.connections.host, target, own, payload)
        self._calls.count(_SERVICE, operation)
        answer = of.connections.send(method, target, signed, body)
        if answer.status >= 300:
            raise _refusal(answer, operation)
        return answer

    def _create_session(self, of: "_Bucket") -> tuple[Keys, float]:
        # Without a mode S3 tries ReadWrite, and only then what the role may.
        mode = {"x-amz-create-session-mode": READ_ONLY} if self._places.reads_only else {}
        target = f"{of.path or '/'}?session"
        answer = self._once(of, "CreateSession", "GET", target, mode, b"", self._keys(), "x-amz-security-token")
        return parse_session(answer.body)

    def _bucket(self, name: str) -> "_Bucket":
        with self._lock:
            if name not in self._buckets:
                self._buckets[name] = self._new_bucket(name)
            return self._buckets[name]

    def _new_bucket(self, name: str) -> "_Bucket":
        """A name with dots goes into the path: no wildcard certificate covers it, and an emulator knows no hosts."""
        clock, region = self._runtime.clock, self._places.region
        is_directory = is_directory_bucket(name)
        signer = Signer(_EXPRESS if is_directory else _SERVICE, region, clock.now_ms)
        if self._places.endpoint(_SERVICE) is None and "." not in name:
            zone = _ZONE_ID.fullmatch(name) if is_directory else None
            bucket = _Bucket(Connections(self._places.bucket_origin(name, zone[1] if zone else None)), "", signer)
        else:
            bucket = _Bucket(self._shared(), f"/{name}", signer)
        if is_directory:
            bucket.session = SessionKeys(lambda: self._create_session(bucket), clock)
        return bucket

    def _shared(self) -> Connections:
        """The connections of all buckets that the path names."""
        origin = self._places.origin(_SERVICE)
        found = (each.connections for each in self._buckets.values() if each.connections.origin == origin)
        return next(found, None) or Connections(origin)


class _Bucket:
    """How to reach one bucket: `path` comes before each key. A directory bucket has a `session`."""

    def __init__(self, connections: Connections, path: str, signer: Signer) -> None:
        self.connections = connections
        self.path = path
        self.signer = signer
        self.session: SessionKeys | None = None


def _refusal(answer: HttpAnswer, operation: str) -> AnsweredError:
    code = _found(_CODE, answer.body) or str(answer.status)
    return answer.refusal(operation, code, _found(_MESSAGE, answer.body))


def _found(pattern: re.Pattern[bytes], body: bytes) -> str:
    from html import unescape  # with a table of 2,000 names, for errors only

    match = pattern.search(body)
    return unescape(match[1].decode(errors="replace")) if match else ""


def _helps_again(error: DriverError) -> bool:
    if not isinstance(error, AnsweredError):
        return True  # no answer came
    return error.status >= 500 or error.status == 429 or error.code in _PASSING


class SessionKeys:
    """The keys of one session. `create` sends CreateSession, and gives keys and the second in which they end.

    Safe for use by several threads: one of them sends. Raises what `create` raises if the held keys are not good for a
    minute; the next call then tries again.
    """

    def __init__(self, create: Callable[[], tuple[Keys, float]], clock: Clock) -> None:
        self._create = create
        self._clock = clock
        self._renewing = threading.Lock()
        self._held: tuple[Keys, float] | None = None
        self._may_renew_s: float = _MAY_RENEW_S  # before the end; less after a try that failed

    def current(self) -> Keys:
        """Keys that are good for a minute at least. No call, or one CreateSession."""
        held = self._held
        left_s = self._left_s(held)
        if held is not None and left_s > self._may_renew_s:
            return held[0]
        if held is None or left_s <= _MUST_RENEW_S:
            with self._renewing:
                if self._left_s(self._held) <= _MUST_RENEW_S:
                    self._renew()
                assert self._held is not None
                return self._held[0]
        if self._renewing.acquire(blocking=False):
            try:
                self._renew_early()
            finally:
                self._renewing.release()
        return (self._held or held)[0]

    def _renew(self) -> None:
        self._held, self._may_renew_s = self._create(), _MAY_RENEW_S

    def _renew_early(self) -> None:
        try:
            if self._left_s(self._held) <= self._may_renew_s:
                self._renew()
        except DriverError as error:
            self._may_renew_s = max(_MUST_RENEW_S, self._left_s(self._held) - _NEXT_TRY_S)
            _log.warning("no new keys for a directory bucket yet; the held ones go on: %s", error)

    def _left_s(self, held: tuple[Keys, float] | None) -> float:
        return -1.0 if held is None else held[1] - self._clock.now_ms() / 1_000


def parse_session(body: bytes) -> tuple[Keys, float]:
    """The keys of CreateSession's answer, and the second in which they end. Raises NoAnswerError for another body."""
    try:
        ending = datetime.fromisoformat(_text(body, "Expiration"))
        keys = Keys(_text(body, "AccessKeyId"), _text(body, "SecretAccessKey"), _text(body, "SessionToken"))
    except ValueError as error:
        raise NoAnswerError(f"the answer to CreateSession holds no session: {error}") from error
    return keys, ending.timestamp()


def _text(body: bytes, name: str) -> str:
    found = re.search(f"<{name}>([^<]+)</{name}>", body.decode(errors="replace"))
    if found is None:
        raise ValueError(f"{name} is missing")
    return found[1].strip()
