"""Functions where the client may invoke them, HTTP else: how many calls it takes, and that nothing happens twice."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from threading import Event

import pytest

from penstock import Admin, Consumer, Producer, TopicPartition
from penstock.errors import AccessDeniedError, ConnectionFailedError, ThrottledError, UnavailableError
from penstock.http.http_message import Response, json_request, raise_for_status
from penstock.http.threaded_transport import ThreadedTransport
from penstock.http.transport import Transport
from penstock.system import Instant, wall_clock_ms
from penstock.testing import MemoryTransport
from penstock.transports.async_by_auto import AsyncAutoTransport
from penstock.transports.by_auto import AutoTransport
from penstock.transports.ways import Ways
from penstock_core.acls.tokens import AclSettings
from penstock_core.direct.function_arn import FunctionsPlace, parse_functions_place
from penstock_core.errors import PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, REQUEST_BYTES_MAX, SDK_DETOUR_MS
from penstock_service.adapters.memory.service import memory_instance
from tests.sdk.http.faulty_transport import FaultyTransport
from tests.support.deadlines import DEADLINE_S
from tests.support.fake_aws import ACCOUNT, FakeAws, FakeKey, Told, always, lambda_error, lost, sts_error
from tests.support.service import new_topic

ADA = f"arn:aws:iam::{ACCOUNT}:user/ada"
TOPIC = "orders"
LIST = ("GET", "/v1/topics", dict[str, str](), dict[str, str](), b"")
APPEND = json_request("POST", f"/v1/topics/{TOPIC}/records", body={"records": [{"value": "v"}]})
BY_HTTP = f"POST /v1/topics/{TOPIC}/records"


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    fake = FakeAws()
    yield fake
    fake.close()


@pytest.fixture
def place(aws: FakeAws) -> FunctionsPlace:
    instance = memory_instance()
    new_topic(instance, TOPIC)
    return aws.stage(instance)


class Client:
    """A client of the stage: what it sent by HTTP is in `http`, and what it invoked in `aws`. Its clock can be set."""

    def __init__(self, aws: FakeAws, place: FunctionsPlace, key: FakeKey) -> None:
        self.aws, self.place, self.key = aws, place, key
        self.http = FaultyTransport(MemoryTransport(aws.instance_of(place), key.arn))
        self.now_ms = 1_000
        self.ways = Ways(
            None,
            lambda text: aws.access(parse_functions_place(text), key),
            lasts=True,
            now=lambda: Instant(self.now_ms, self.now_ms),
        )
        self.transport = AutoTransport(self.http, self.ways)

    @property
    def by_http(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.http.calls]

    def invoked(self) -> list[str]:
        """The functions and aliases that were invoked, in order."""
        return [each.removeprefix(f"{self.place.arn}-") for each in self.aws.invoked]

    def denied(self) -> list[str]:
        return [each.removeprefix(f"{self.place.arn}-") for each in self.aws.denied]

    def append(self) -> Response:
        """One call that may not come twice."""
        return self.transport.call(APPEND.method, APPEND.path, APPEND.query, APPEND.headers, APPEND.body)

    def list_topics(self) -> int:
        """One call, and the question next to it to its end."""
        status = self.transport.call(*LIST).status
        self.transport._question.wait(DEADLINE_S)
        return status


@pytest.fixture
def make(aws: FakeAws, place: FunctionsPlace) -> Callable[..., Client]:
    """A client that may invoke these functions by these aliases, by default all."""

    def make(*may_invoke: str) -> Client:
        allowed = frozenset(f"{place.arn}-{each}" for each in may_invoke) if may_invoke else None
        return Client(aws, place, aws.key(ADA, allowed))

    return make


def aware(client: Client) -> Client:
    """The client, once it knows the functions."""
    for _ in range(3):
        client.list_topics()
    client.http.calls.clear()
    client.aws.invoked.clear()
    client.aws.denied.clear()
    return client


def test_producer_sends_one_call_by_http_which_it_sends_anyway(make: Callable[..., Client]) -> None:
    client = make("produce:direct-produce", "admin:direct-produce")
    with Producer(transport=client.transport) as producer:
        for number in range(5):
            assert producer.send(TOPIC, b"v", partition=0).result().offset == number
    assert client.by_http == ["GET /v1/metadata"]
    assert client.invoked() == ["produce:direct-produce"] * 5
    assert client.denied() == []


def test_consumer_asks_once_at_most(make: Callable[..., Client]) -> None:
    client = make()
    with Producer(transport=make().transport) as producer:
        producer.send(TOPIC, b"v", partition=0)
    with Consumer(transport=client.transport, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        assert next(consumer).value == b"v"
    assert client.by_http.count("GET /v1/metadata") <= 1
    assert len(client.by_http) <= 3


def test_program_of_one_call_sends_one(make: Callable[..., Client]) -> None:
    client = make()
    assert client.list_topics() == 200
    assert client.by_http == ["GET /v1/topics"]
    assert client.invoked() == []


def test_second_call_asks_and_the_next_one_invokes(make: Callable[..., Client]) -> None:
    client = make()
    assert [client.list_topics() for _ in range(4)] == [200] * 4
    assert sorted(client.by_http) == ["GET /v1/metadata", "GET /v1/topics", "GET /v1/topics"]
    assert client.invoked() == ["admin:direct-admin"] * 2


def test_no_call_waits_for_the_question(make: Callable[..., Client]) -> None:
    client, answers = make(), Event()

    def late(call: Callable[[], Response]) -> Response:
        assert answers.wait(DEADLINE_S)
        return call()

    client.http.faults["/v1/metadata"] = [late]
    assert [client.transport.call(*LIST).status for _ in range(3)] == [200] * 3
    assert client.invoked() == []
    answers.set()
    client.transport._question.wait(DEADLINE_S)
    assert client.list_topics() == 200
    assert client.invoked() == ["admin:direct-admin"]


def _hinted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has a hint and may only invoke. The answer to its question comes after its first refusal by HTTP."""
    for module in ("by_auto", "async_by_auto"):
        monkeypatch.setattr(f"penstock.transports.{module}.DIRECT_CONNECT_TIMEOUT_S", 0)
    client.ways._hint = client.place.arn
    refused = Event()

    def late(call: Callable[[], Response]) -> Response:
        assert refused.wait(DEADLINE_S)
        return call()

    def refuse(_: Callable[[], Response]) -> Response:
        refused.set()
        return Response(403, {}, b'{"message":"User is not authorized to perform: execute-api:Invoke"}')

    client.http.faults = {"/v1/metadata": [late], "/v1/topics": [refuse] * 9}


def test_caller_that_may_only_invoke_waits_for_a_late_answer_to_its_question(
    make: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    _hinted(client, monkeypatch)
    assert [client.transport.call(*LIST).status for _ in range(2)] == [200] * 2
    assert sorted(client.by_http) == ["GET /v1/metadata", "GET /v1/topics"]
    assert client.invoked() == ["admin:direct-admin"] * 2


def test_asynchronous_caller_that_may_only_invoke_waits_for_a_late_answer_to_its_question(
    make: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    _hinted(client, monkeypatch)
    assert _looped(client, 2) == [200] * 2
    assert sorted(client.by_http) == ["GET /v1/metadata", "GET /v1/topics"]
    assert client.invoked() == ["admin:direct-admin"] * 2


def test_refusal_stands_when_the_question_finds_no_functions(
    make: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make()
    _hinted(client, monkeypatch)
    client.http.faults["/v1/metadata"] = [lambda _: Response(200, {}, b"{}")]
    assert client.transport.call(*LIST).status == 403
    assert client.invoked() == []


def test_no_asynchronous_call_waits_for_the_question_and_close_ends_it(make: Callable[..., Client]) -> None:
    client, answers = make(), Event()

    def late(call: Callable[[], Response]) -> Response:
        answers.wait(DEADLINE_S)
        return call()

    async def main() -> list[int]:
        transport = AsyncAutoTransport(ThreadedTransport(client.http), client.ways)
        found = [(await transport.call(*LIST)).status for _ in range(3)]
        await transport.close()
        answers.set()
        return found

    client.http.faults["/v1/metadata"] = [late]
    assert asyncio.run(main()) == [200] * 3
    assert client.invoked() == []


def test_client_without_the_right_falls_back_function_by_function(make: Callable[..., Client]) -> None:
    client = make("produce:direct-produce")
    for _ in range(3):
        Admin(transport=client.transport).partitions([TOPIC])
    with Producer(transport=client.transport) as producer:
        producer.send(TOPIC, b"v", partition=0).result()
    assert client.invoked() == ["produce:direct-produce"]
    assert client.denied() == ["admin:direct-produce", "admin:direct-consume", "admin:direct-transact"]
    assert client.by_http == ["GET /v1/metadata"] * 4  # each is there at once, behind one refusal at most


def test_refused_client_comes_back_after_ten_minutes(make: Callable[..., Client]) -> None:
    client = aware(make("produce:direct-produce"))
    for _ in range(3):
        assert client.list_topics() == 200
    assert client.denied() == []  # it was refused when it became aware
    client.now_ms += SDK_DETOUR_MS
    client.aws.keys[client.key.keys.access_key] = FakeKey(client.key.keys, ADA)  # it has got the right meanwhile
    assert client.list_topics() == 200
    assert client.invoked() == ["admin:direct-admin"]
    assert client.by_http == ["GET /v1/topics"] * 3


def test_refusal_of_the_service_is_an_answer(aws: FakeAws) -> None:
    place = aws.stage(memory_instance(acl_settings=AclSettings(allows_by_default=False)), "strict")
    client = Client(aws, place, aws.key(ADA))
    admin = Admin(transport=client.transport)
    for _ in range(4):
        with pytest.raises(AccessDeniedError):
            admin.describe_topic("fresh")
        client.transport._question.wait(DEADLINE_S)
    assert sorted(client.by_http) == ["GET /v1/metadata", *["GET /v1/topics/fresh"] * 2]
    assert client.invoked() == ["admin:direct-consume"] * 2


@pytest.mark.parametrize(
    ("told", "kind", "maybe_applied"),
    [
        (lambda_error(429, "TooManyRequestsException"), ThrottledError, False),
        (lambda_error(409, "ResourceConflictException"), UnavailableError, False),
        (lambda_error(500, "ServiceException"), UnavailableError, True),
        (Told(200, b"{}", {"X-Amz-Function-Error": "Unhandled"}), UnavailableError, True),
    ],
    ids=["throttle", "update", "5xx", "crash"],
)  # fmt: skip
def test_answer_that_http_would_give_too_is_no_reason_to_leave(
    make: Callable[..., Client], told: Told, kind: type[PenstockError], maybe_applied: bool
) -> None:
    client = aware(make())
    client.aws.lambda_faults = [always(told)]
    with pytest.raises(kind) as failed:
        raise_for_status(APPEND, client.append())
    assert failed.value.maybe_applied is maybe_applied
    assert client.by_http == []


def test_function_of_another_program_is_left_for_the_next_call(make: Callable[..., Client]) -> None:
    client = aware(make())
    foreign = always(Told(200, b'"hello"'))
    client.aws.lambda_faults = [foreign, foreign]
    for _ in client.aws.lambda_faults.copy():
        with pytest.raises(UnavailableError) as failed:
            raise_for_status(APPEND, client.append())
        assert failed.value.maybe_applied
        assert client.by_http == []
    assert client.append().status == 200
    assert client.by_http == [BY_HTTP]


@pytest.mark.parametrize(
    "told",
    [
        lambda_error(403, "AccessDeniedException"),
        lambda_error(403, "InvalidSignatureException"),
        lambda_error(404, "ResourceNotFoundException"),
        lambda_error(400, "ValidationException"),
    ],
    ids=["denied", "signature", "missing", "invalid"],
)
def test_refusal_of_lambda_lets_the_same_call_go_by_http(make: Callable[..., Client], told: Told) -> None:
    client = aware(make())
    client.aws.lambda_faults = [always(told)]
    assert client.append().status == 200
    assert client.by_http == [BY_HTTP]


def test_proof_that_the_function_cannot_check_lets_the_same_call_go_by_http(make: Callable[..., Client]) -> None:
    client = make()
    client.aws.sts_faults = [always(sts_error(503, "ServiceUnavailable"))] * 9
    for _ in range(3):
        assert client.list_topics() == 200
    assert sorted(client.by_http) == ["GET /v1/metadata", *["GET /v1/topics"] * 3]


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_client_whose_clock_is_wrong_invokes_by_the_time_of_lambda(
    make: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    for module in ("penstock.http.signature", "penstock.transports.invocation"):
        monkeypatch.setattr(f"{module}.wall_clock_ms", lambda: wall_clock_ms() + ahead_ms)
    client = make()
    for _ in range(5):
        assert client.list_topics() == 200
    assert sorted(client.by_http) == ["GET /v1/metadata", *["GET /v1/topics"] * 2]
    assert client.invoked() == ["admin:direct-admin"] * 3


def test_lost_answers_apply_once_when_the_producer_goes_the_other_way(make: Callable[..., Client]) -> None:
    client = make()
    with Producer(transport=client.transport, retry_backoff_ms=1) as producer:
        assert producer.send(TOPIC, b"0", partition=0).result().offset == 0
        client.http.calls.clear()
        client.aws.lambda_faults = [lost, lost]
        assert producer.send(TOPIC, b"1", partition=0).result().offset == 1
        assert producer.send(TOPIC, b"2", partition=0).result().offset == 2
    assert client.by_http == ["POST /v1/produce"] * 2
    assert Admin(transport=client.http).list_offsets(TOPIC)[0] == 3


def test_lost_answer_of_a_write_may_have_applied_and_is_not_sent_again(make: Callable[..., Client]) -> None:
    client = aware(make())
    client.aws.lambda_faults = [lost]
    with pytest.raises(ConnectionFailedError) as failed:
        client.append()
    assert failed.value.maybe_applied
    assert client.by_http == []
    assert len(client.invoked()) == 1


def test_lambda_that_cannot_be_reached_is_asked_once_in_ten_minutes(make: Callable[..., Client]) -> None:
    client = aware(make())
    client.transport.close()
    client.aws.close()
    for _ in range(3):
        assert client.append().status == 200  # certainly once, so it raises nothing
    assert client.by_http == [BY_HTTP] * 3
    assert client.ways.trial("POST", APPEND.path) is None
    client.now_ms += SDK_DETOUR_MS
    assert client.ways.trial("POST", APPEND.path) is not None


def test_question_that_nothing_answers_says_nothing_of_the_call(make: Callable[..., Client]) -> None:
    def no_answer(_: Callable[[], Response]) -> Response:
        raise ConnectionFailedError("reset", maybe_applied=True)

    client = make()
    client.list_topics()
    client.http.faults["/v1/metadata"] = [no_answer]
    assert client.append().status == 200
    assert client.by_http == ["GET /v1/topics", "GET /v1/metadata", BY_HTTP]


def test_audited_change_goes_by_http_and_its_trail_has_the_callers_address(make: Callable[..., Client]) -> None:
    client = aware(make())
    Admin(transport=client.transport).create_topic("fresh")
    assert client.by_http == ["POST /v1/topics"]
    assert client.invoked() == []
    [note] = client.aws.instance_of(client.place).stores.audit.entries(10)
    assert (note.caller.principal, note.caller.address) == (ADA, "127.0.0.1")


def test_two_stages_with_one_credential_are_not_mixed(aws: FakeAws) -> None:
    key, clients = aws.key(ADA), []
    for name in ("left", "right"):
        instance = memory_instance()
        new_topic(instance, name)
        clients.append(Client(aws, aws.stage(instance, name), key))
    for _ in range(4):
        assert [[topic.name for topic in Admin(transport=each.transport).list_topics()] for each in clients] == [
            ["left"],
            ["right"],
        ]
        for each in clients:
            each.transport._question.wait(DEADLINE_S)
    assert len(aws.invoked) == 4


def test_quota_that_was_spent_by_http_is_spent_for_lambda_too(aws: FakeAws, place: FunctionsPlace) -> None:
    """Nobody doubles a quota by taking both ways: the principal is the same."""
    client = aware(Client(aws, place, aws.key(ADA)))
    Admin(transport=client.http).set_quota("principal", ADA, {"produce_bytes_per_s": 2_000})
    append = json_request("POST", f"/v1/topics/{TOPIC}/records", body={"records": [{"value": "v" * 100}]})

    def status(transport: Transport) -> int:
        return transport.call(append.method, append.path, append.query, append.headers, append.body).status

    while status(client.http) == 200:
        pass
    client.http.calls.clear()
    assert status(client.transport) == 429
    assert client.http.calls == []  # a refusal of ours is an answer


@pytest.mark.parametrize("size", [0, 1, 3_930_000])
def test_body_of_any_size_that_http_takes_goes_by_lambda_too(make: Callable[..., Client], size: int) -> None:
    client = aware(make())
    Admin(transport=client.http).alter_topic(TOPIC, config={"max_batch_bytes": BATCH_BYTES_MAX})
    client.http.calls.clear()
    with Producer(transport=client.transport, compression_type="none", max_request_bytes=REQUEST_BYTES_MAX) as producer:
        producer.send(TOPIC, bytes(size), partition=0).result()
    assert client.by_http == []


def test_stage_without_direct_calls_is_asked_once(make: Callable[..., Client]) -> None:
    instance = memory_instance()
    client = make()
    client.http = FaultyTransport(MemoryTransport(instance))
    client.transport = AutoTransport(client.http, client.ways)
    for _ in range(4):
        client.list_topics()
    assert client.by_http.count("GET /v1/metadata") == 1
    assert client.invoked() == []


class _Signing:
    """A transport that signs for wake-ups, and answers nothing."""

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        raise NotImplementedError

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        return {"host": host}

    def close(self) -> None:
        pass


def test_wake_ups_are_signed_as_by_http(make: Callable[..., Client]) -> None:
    signing: Transport = _Signing()
    assert AutoTransport(signing, make().ways).event_headers("events", b"") == {"host": "events"}


def test_asynchronous_client_goes_both_ways_as_the_other_one(make: Callable[..., Client]) -> None:
    client = make("admin:direct-admin", "produce:direct-admin")

    async def main() -> list[int]:
        transport = AsyncAutoTransport(ThreadedTransport(client.http), client.ways)
        try:
            found = [await _status(transport) for _ in range(4)]
            client.aws.lambda_faults = [always(lambda_error(403, "AccessDeniedException"))]
            found += [(await transport.call(*LIST)).status for _ in range(2)]
            client.now_ms += SDK_DETOUR_MS
            client.aws.lambda_faults = [lost]
            with pytest.raises(ConnectionFailedError) as failed:
                await transport.call(APPEND.method, APPEND.path, APPEND.query, APPEND.headers, APPEND.body)
            return [*found, int(failed.value.maybe_applied)]
        finally:
            await transport.close()

    assert asyncio.run(main()) == [200] * 6 + [1]
    assert sorted(client.by_http) == ["GET /v1/metadata", *["GET /v1/topics"] * 4]


async def _status(transport: AsyncAutoTransport) -> int:
    """The answer to one call, when the question next to it has ended."""
    status = (await transport.call(*LIST)).status
    await transport._question.wait(DEADLINE_S)
    return status


def _looped(client: Client, count: int) -> list[int]:
    """The answers to calls of an asynchronous client."""

    async def main() -> list[int]:
        transport = AsyncAutoTransport(ThreadedTransport(client.http), client.ways)
        try:
            return [await _status(transport) for _ in range(count)]
        finally:
            await transport.close()

    return asyncio.run(main())


def test_asynchronous_call_goes_by_http_when_the_function_cannot_check_its_proof(make: Callable[..., Client]) -> None:
    client = make()
    client.aws.sts_faults = [always(sts_error(503, "ServiceUnavailable"))] * 9
    assert _looped(client, 3) == [200] * 3
    assert sorted(client.by_http) == ["GET /v1/metadata", *["GET /v1/topics"] * 3]


def test_asynchronous_call_goes_by_http_when_lambda_cannot_be_reached(make: Callable[..., Client]) -> None:
    client = aware(make())
    client.transport.close()
    client.aws.close()
    assert _looped(client, 3) == [200] * 3
    assert client.by_http == ["GET /v1/topics"] * 3


def test_question_that_nothing_answers_says_nothing_of_an_asynchronous_call(make: Callable[..., Client]) -> None:
    def no_answer(_: Callable[[], Response]) -> Response:
        raise ConnectionFailedError("reset", maybe_applied=True)

    client = make()
    client.http.faults["/v1/metadata"] = [no_answer]
    assert _looped(client, 3) == [200] * 3
    assert sorted(client.by_http) == ["GET /v1/metadata", *["GET /v1/topics"] * 3]
