"""botocore's clients as drivers: what its errors say about a call, and that nothing else needs botocore.

The clients of botocore: how they read times.

The requests to S3 as they leave: headers, signature, host, and how many sessions are opened.
"""

import base64
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    ReadTimeoutError,
)
from botocore.utils import parse_timestamp
from crc32c import crc32c

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.limits import ARCHIVE_PART_BYTES
from penstock_service.adapters.aws import MakeDrivers, Storage, ZoneBucket, aws_instance, botocore_drivers, open_zones
from penstock_service.adapters.botocore_drivers import BotocoreDriver, BotocoreDrivers, parse_time
from penstock_service.adapters.direct.drivers import DirectDrivers
from penstock_service.adapters.direct.places import Keys, Places
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, DriverError, NeverSentError, NoAnswerError
from penstock_service.adapters.s3.segments import is_directory_bucket
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from penstock_service.ports.segments import SegmentStore
from tests.support.deadlines import DEADLINE_S
from tests.support.wire import Wire

STORAGE = Storage(
    topics_table="t", log_table="l", groups_table="g", repair_queue_url=None, zones=(), archive="a", region="us-east-1"
)
URL = "https://dynamodb.test"
NEVER_SENT = [ConnectTimeoutError(endpoint_url=URL), EndpointConnectionError(endpoint_url=URL)]
NO_ANSWER = [
    ReadTimeoutError(endpoint_url=URL),
    ConnectionClosedError(endpoint_url=URL),
    HTTPClientError(error="broken"),
    ChecksumError(checksum_type="crc32", expected_checksum="1", actual_checksum="2"),
    NoCredentialsError(),
]
ITEM = {"pk": {"S": "a"}}
REASONS = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": ITEM}]


class Client:
    """A client of botocore whose calls raise this error, or give this answer."""

    def __init__(self, outcome: object) -> None:
        self._outcome = outcome

    def call(self, *_arguments: object, **_named: object) -> object:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    read = call


def _raised(error: Exception) -> DriverError:
    with pytest.raises(DriverError) as caught:
        BotocoreDriver(Client(error)).call(Key="a")
    assert str(caught.value) == str(error)
    assert caught.value.__cause__ is error
    return caught.value


def _refusal(**answer: Any) -> ClientError:
    return ClientError({"Error": {"Code": "Code", "Message": "text"}, **answer}, "UpdateItem")


@pytest.mark.parametrize("error", NEVER_SENT, ids=repr)
def test_call_was_never_sent_when_no_connection_came_about(error: BotoCoreError) -> None:
    assert type(_raised(error)) is NeverSentError


@pytest.mark.parametrize("error", NO_ANSWER, ids=repr)
def test_call_has_no_answer_when_botocore_fails_in_another_way(error: BotoCoreError) -> None:
    assert type(_raised(error)) is NoAnswerError


@pytest.mark.parametrize("status", [400, 503])
def test_answer_is_an_error_with_its_code_status_item_and_reasons(status: int) -> None:
    error = _raised(_refusal(ResponseMetadata={"HTTPStatusCode": status}, Item=ITEM, CancellationReasons=REASONS))
    assert isinstance(error, AnsweredError)
    assert (error.code, error.status, error.item, error.reasons) == ("Code", status, ITEM, REASONS)


def test_answer_may_have_been_applied_when_it_has_no_status() -> None:
    error = _raised(_refusal())
    assert isinstance(error, AnsweredError)
    assert (error.status, error.item, error.reasons) == (500, None, ())


def test_error_survives_pickling() -> None:
    error = _raised(_refusal(Item=ITEM, CancellationReasons=REASONS))
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), vars(copied)) == (str(error), vars(error))


def test_answer_is_the_one_of_botocore() -> None:
    assert BotocoreDriver(Client({"Item": ITEM})).call() == {"Item": ITEM}


def test_body_that_breaks_off_has_no_answer() -> None:
    body = Client(ReadTimeoutError(endpoint_url=URL))
    answer = BotocoreDriver(Client({"Body": body})).call()
    with pytest.raises(NoAnswerError, match="Read timeout"):
        answer["Body"].read()


def test_driver_has_the_methods_of_its_client_only() -> None:
    assert not hasattr(BotocoreDriver(Client({})), "open_session")


def _fail(*_arguments: object) -> None:
    raise NoRegionError


@pytest.mark.parametrize(
    ("method", "use"),
    [("_client", lambda drivers: drivers.s3()), ("_frozen_credentials", lambda drivers: drivers.keys())],
)
def test_client_that_cannot_be_made_is_an_error_of_its_driver(
    monkeypatch: pytest.MonkeyPatch, method: str, use: Callable[[BotocoreDrivers], object]
) -> None:
    monkeypatch.setattr(BotocoreDrivers, method, _fail)
    with pytest.raises(NoAnswerError, match="region"):
        use(BotocoreDrivers(STORAGE, StorageCalls()))


_IMPORT_WITHOUT_BOTOCORE = """
import pkgutil, sys
sys.path[:0] = {path!r}
sys.modules["botocore"] = sys.modules["boto3"] = None
import penstock_service.adapters.dynamodb as room
from importlib import import_module
for module in pkgutil.iter_modules(room.__path__):
    if module.name != "botocore_driver":
        import_module(f"{{room.__name__}}.{{module.name}}")
"""


@pytest.mark.slow
def test_room_of_dynamodb_needs_no_botocore_without_its_driver() -> None:
    path = [entry for entry in sys.path if entry]
    script = _IMPORT_WITHOUT_BOTOCORE.format(path=path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T10:20:30.123Z",
        "2026-11-21T10:20:30Z",
        "2026-11-21T10:20:30+02:00",
        "Sat, 21 Nov 2026 10:20:30 GMT",
        1_790_000_000,
        1_790_000_000.5,
        "1790000000",
    ],
)
def test_times_are_parsed_as_botocore_does(value: object) -> None:
    """botocore reads the end of an S3 Express session from such a time."""
    assert parse_time(value) == parse_timestamp(value)
    assert parse_time(value).tzinfo is not None


def test_bad_time_is_refused() -> None:
    with pytest.raises(ValueError, match="noon"):
        parse_time("2026-11-21Tnoon")
    assert parse_time("2026-11-21T00:00:00Z") == datetime(2026, 11, 21, tzinfo=UTC)


BODY = b"x" * 100_000
SEGMENT = SegmentId(b"s" * 16)
DIRECTORY_BUCKETS = tuple((zone, f"zone-{zone}--use1-az{number}--x-s3") for number, zone in enumerate("abc", start=4))
BUCKETS = (("a", "zone-a"), ("b", "zone-b"), ("c", "zone-c"))
THREADS = 8
_make_drivers: MakeDrivers = botocore_drivers  # of this test


def _direct_drivers(storage: Storage, runtime: Runtime, calls: StorageCalls) -> DirectDrivers:
    places = Places(region="us-east-1", endpoints={})
    return DirectDrivers(
        places, Keys("key", "secret"), runtime, calls, lambda: botocore_drivers(storage, runtime, calls)
    )


@pytest.fixture(params=["botocore", "direct"])
def make_drivers(request: pytest.FixtureRequest) -> MakeDrivers:
    return _direct_drivers if request.param == "direct" else botocore_drivers


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, make_drivers: MakeDrivers) -> Wire:
    made = Wire()
    made.replace_connections(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "_make_drivers", make_drivers)
    monkeypatch.setattr(botocore.session, "get_session", made.sessions())
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return made


def _instance(zones: tuple[tuple[str, str], ...], calls: StorageCalls | None = None) -> Instance:
    storage = Storage(
        topics_table="topics",
        log_table="log",
        groups_table="groups",
        repair_queue_url="https://sqs.us-east-1.amazonaws.com/123456789012/repairs",
        zones=tuple(ZoneBucket(name=name, bucket=bucket) for name, bucket in zones),
        archive="archive",
        region="us-east-1",
        access_key="key",
        secret_key="secret",
    )
    return aws_instance(storage, calls or StorageCalls(), make_drivers=_make_drivers)


def _put(store: SegmentStore, body: bytes = BODY) -> None:
    store.put(SEGMENT, body, crc32c(body))


def _put_by_many_threads(store: SegmentStore) -> None:
    barrier = Barrier(THREADS, timeout=DEADLINE_S)

    def put(_number: int) -> None:
        barrier.wait()
        _put(store)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(put, range(THREADS)))


@pytest.mark.parametrize("zones", [BUCKETS, DIRECTORY_BUCKETS])
def test_put_neither_waits_for_100_continue_nor_hashes_its_body(wire: Wire, zones: tuple[tuple[str, str], ...]) -> None:
    _put(_instance(zones).stores.zones[0])
    [put] = wire.of("PutObject")
    assert "expect" not in put.headers
    assert put.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert put.headers["x-amz-checksum-crc32c"] == base64.b64encode(crc32c(BODY).to_bytes(4, "big")).decode()
    assert "x-amz-checksum-crc32c" in put.headers["authorization"]
    assert put.headers["if-none-match"] == "*"
    assert put.body == BODY


def test_upload_of_parts_neither_waits_for_100_continue_nor_hashes_its_parts(wire: Wire) -> None:
    _instance(BUCKETS).stores.archive.upload(SEGMENT, [b"x" * ARCHIVE_PART_BYTES, b"y"])
    parts = wire.of("UploadPart")
    assert len(parts) == 2
    for part in parts:
        assert "expect" not in part.headers
        assert part.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert "x-amz-checksum-crc32c" in part.headers


def test_calls_to_an_ordinary_bucket_open_no_session(wire: Wire) -> None:
    _put(_instance(BUCKETS).stores.zones[0])
    assert wire.operations() == ["PutObject"]
    assert wire.requests[0].host in ("zone-a.s3.amazonaws.com", "zone-a.s3.us-east-1.amazonaws.com")


def test_calls_to_a_directory_bucket_go_to_its_zone_with_one_session(wire: Wire) -> None:
    store = _instance(DIRECTORY_BUCKETS).stores.zones[0]
    for _ in range(2):
        _put(store)
    store.overwrite(SEGMENT, BODY, crc32c(BODY))
    assert wire.operations() == ["CreateSession", *["PutObject"] * 3]
    for request in wire.requests:
        assert request.host == "zone-a--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com"
    for put in wire.of("PutObject"):
        assert put.headers["x-amz-s3session-token"] == "token"
        assert "x-amz-security-token" not in put.headers
        assert "Credential=session-key/" in put.headers["authorization"]
        assert "/s3express/aws4_request" in put.headers["authorization"]


def test_zones_are_opened_by_one_session_each_and_by_no_other_call(wire: Wire) -> None:
    calls = StorageCalls()
    instance = _instance(DIRECTORY_BUCKETS, calls)
    open_zones(instance)
    assert sorted(request.host[:8] for request in wire.of("CreateSession")) == ["zone-a--", "zone-b--", "zone-c--"]
    assert wire.operations() == ["CreateSession"] * 3
    for store in instance.stores.zones:
        _put(store)
    assert calls.snapshot() == {"s3.CreateSession": 3, "s3.PutObject": 3}


def test_open_zones_raises_nothing_when_no_session_can_be_opened(wire: Wire) -> None:
    instance = _instance(DIRECTORY_BUCKETS)
    wire.refusals = [403, 403, 403]
    open_zones(instance)
    _put(instance.stores.zones[0])
    assert wire.operations() == [*["CreateSession"] * 4, "PutObject"]


def test_put_says_so_when_the_session_is_refused(wire: Wire) -> None:
    store = _instance(DIRECTORY_BUCKETS).stores.zones[0]
    wire.refusals = [403]
    with pytest.raises(PenstockError, match="zone a could not store segment") as caught:
        _put(store)
    assert caught.value.code is ErrorCode.STORAGE_UNAVAILABLE
    assert wire.operations() == ["CreateSession"]


def test_many_threads_open_one_session_when_there_is_none(wire: Wire) -> None:
    _put_by_many_threads(_instance(DIRECTORY_BUCKETS).stores.zones[0])
    assert wire.operations() == ["CreateSession", *["PutObject"] * THREADS]


def test_many_threads_open_one_session_when_the_last_one_has_ended(wire: Wire) -> None:
    """As after a freeze of five minutes."""
    store = _instance(DIRECTORY_BUCKETS).stores.zones[0]
    wire.session_s = iter([-60, 300])
    _put_by_many_threads(store)
    assert len(wire.of("CreateSession")) == 2
    assert len(wire.of("PutObject")) == THREADS


@pytest.mark.parametrize(
    ("bucket", "asks_for_sessions"),
    [
        ("zone-a--use1-az4--x-s3", True),
        ("produce--use1-az4--xa-s3", True),
        ("zone-a", False),
        ("--x-s3", False),
        ("zone-a--x-s3-copy", False),
    ],
)
def test_directory_buckets_are_known_by_name(bucket: str, asks_for_sessions: bool) -> None:
    assert is_directory_bucket(bucket) is asks_for_sessions
