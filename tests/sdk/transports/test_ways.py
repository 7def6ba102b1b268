"""The choice of `auto` between functions and HTTP, on clocks that a test steps."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.configuration import Configuration, StaticCredentials
from penstock.http.http_message import Response
from penstock.system import Instant
from penstock.transports.functions_place import FunctionsAccess, access_by
from penstock.transports.ways import METADATA_PATH, Trial, Ways
from penstock_core.limits import DIRECT_PATH_LENGTH_MAX, SDK_DETOUR_MS
from penstock_core.routes import ROUTES, Route

ARN = "arn:aws:lambda:eu-west-1:111122223333:function:penstock"
SIGNER = Configuration(url="https://api", region="eu-west-1", credentials=StaticCredentials("k", "s"))
FETCH = ("POST", "/v1/fetch")
PRODUCE = ("POST", "/v1/produce")
METADATA = ("GET", METADATA_PATH)


def access_of(text: str) -> FunctionsAccess:
    return access_by(SIGNER, {}, text)


class Clocks:
    """Both clocks of a machine."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.monotonic_ms = 5_000

    def now(self) -> Instant:
        return Instant(self.wall_ms, self.monotonic_ms)

    def step(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def ways(clocks: Clocks) -> Ways:
    """Of a client that knows the functions, and that Lambda has answered."""
    made = Ways(access_of(ARN), access_of, lasts=True, now=clocks.now)
    let_in(made, METADATA)
    return made


@pytest.fixture
def learner(clocks: Clocks) -> Ways:
    """Of a client that knows nothing."""
    return Ways(None, access_of, lasts=True, now=clocks.now)


def told(*addresses: tuple[str, str]) -> Response:
    listed = [{"transport": transport, "address": address} for transport, address in addresses]
    return Response(200, {}, json.dumps({"addresses": listed}).encode())


def tried(ways: Ways, call: tuple[str, str]) -> Trial:
    trial = ways.trial(*call)
    assert trial is not None
    ways.ended(trial)
    return trial


def let_in(ways: Ways, call: tuple[str, str]) -> str:
    trial = tried(ways, call)
    ways.note_answer(trial, 200, is_refused=False)
    return trial.target


def refused(ways: Ways, call: tuple[str, str], status: int = 403) -> str:
    trial = tried(ways, call)
    ways.note_answer(trial, status, is_refused=True)
    return trial.target


def test_client_asks_with_its_second_call_and_once(learner: Ways) -> None:
    assert not learner.asks_beside(FETCH[1])
    learner.note_http(*FETCH, Response(200, {}, b""))
    assert learner.asks_beside(FETCH[1])
    assert not learner.asks_beside(FETCH[1])


def test_client_does_not_ask_when_its_first_call_was_for_metadata(learner: Ways) -> None:
    assert not learner.asks_beside(METADATA_PATH)
    learner.note_http(*METADATA, told(("lambda", ARN)))
    assert not learner.asks_beside(FETCH[1])
    assert tried(learner, PRODUCE).target == f"{ARN}-produce:direct-produce"


@pytest.mark.parametrize(
    "answer",
    [
        told(),
        told(("grpc", "https://elsewhere")),
        told(("lambda", "https://elsewhere")),
        Response(200, {}, b"{}"),
        Response(200, {}, b"<html>"),
        Response(200, {}, b'{"addresses": 1}'),
        Response(200, {}, b'{"addresses": [1, {"transport": "lambda"}]}'),
        Response(404, {}, told(("lambda", ARN)).body),
    ],
)
def test_client_stays_on_http_when_it_is_told_nothing_that_it_knows(
    learner: Ways, clocks: Clocks, answer: Response
) -> None:
    learner.note_http(*FETCH, Response(200, {}, b""))
    assert learner.asks_beside(FETCH[1])
    learner.note_http(*METADATA, answer)
    assert learner.trial(*FETCH) is None
    clocks.step(SDK_DETOUR_MS - 1)
    assert not learner.asks_beside(FETCH[1])
    clocks.step(1)
    assert learner.asks_beside(FETCH[1])


def test_client_takes_the_first_address_that_it_knows(learner: Ways) -> None:
    learner.note_http(*METADATA, told(("grpc", "https://a"), ("lambda", ARN), ("lambda", f"{ARN}-other")))
    assert tried(learner, FETCH).target == f"{ARN}-fetch:direct-consume"


def test_address_of_another_answer_is_no_address(learner: Ways) -> None:
    learner.note_http("GET", "/v1/topics/orders", told(("lambda", ARN)))
    assert learner.trial(*FETCH) is None


def test_domain_that_may_lead_elsewhere_is_asked_again(clocks: Clocks) -> None:
    ways = Ways(None, access_of, lasts=False, now=clocks.now)
    ways.note_http(*METADATA, told(("lambda", ARN)))
    clocks.step(SDK_DETOUR_MS - 1)
    tried(ways, FETCH)
    clocks.step(1)
    assert ways.asks_beside(FETCH[1])
    assert ways.trial(*FETCH) is None
    ways.note_http(*METADATA, told(("lambda", f"{ARN}-green")))
    assert tried(ways, FETCH).target.startswith(f"{ARN}-green-fetch:")


def test_address_of_an_api_of_aws_lasts(learner: Ways, clocks: Clocks) -> None:
    learner.note_http(*METADATA, told(("lambda", ARN)))
    clocks.step(100 * SDK_DETOUR_MS)
    assert not learner.asks_beside(FETCH[1])
    assert learner.trial(*FETCH) is not None


def test_client_with_a_hint_asks_before_its_first_call_until_it_has_asked(clocks: Clocks) -> None:
    ways = Ways(None, access_of, lasts=False, hint=ARN, now=clocks.now)
    assert not ways.must_know(METADATA_PATH)  # which brings the answer itself
    assert ways.must_know(FETCH[1])
    assert ways.must_know(PRODUCE[1])  # of another thread meanwhile
    ways.note_http(*METADATA, told(("lambda", ARN)))
    assert not ways.must_know(FETCH[1])
    assert tried(ways, FETCH).target.startswith(ARN)
    clocks.step(SDK_DETOUR_MS)
    assert ways.must_know(FETCH[1])  # the domain may lead elsewhere by now
    ways.asked()
    assert not ways.must_know(FETCH[1])
    assert not ways.asks_beside(FETCH[1])


def test_client_without_a_hint_may_call_before_it_knows(learner: Ways) -> None:
    assert not learner.must_know(FETCH[1])


def test_hint_is_not_invoked_and_a_differing_answer_is_noted(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    ways = Ways(None, access_of, lasts=True, hint=f"{ARN}-prod", now=clocks.now)
    assert ways.trial(*FETCH) is None
    ways.note_http(*METADATA, told(("lambda", ARN)))
    assert tried(ways, FETCH).target == f"{ARN}-fetch:direct-consume"
    assert caplog.messages == [f"PENSTOCK_FUNCTIONS is {ARN}-prod, and the service at the URL has {ARN}"]


def test_call_of_no_route_goes_by_http(ways: Ways) -> None:
    assert ways.trial("GET", "/v2/topics") is None


@pytest.mark.parametrize("route", ROUTES, ids=[route.key for route in ROUTES])
def test_change_that_the_trail_notes_goes_by_http_and_all_else_may_be_direct(ways: Ways, route: Route) -> None:
    """The trail notes the caller's address, which API Gateway alone tells, and IAM sees the route there."""
    path = "/".join("x" if part.startswith("{") else part for part in route.segments)
    assert (ways.trial(route.method, path) is None) == bool(route.audit)


def test_path_that_is_too_long_for_a_function_goes_by_http(ways: Ways) -> None:
    group = "g" * (DIRECT_PATH_LENGTH_MAX - len("/v1/groups//heartbeat"))
    assert ways.trial("POST", f"/v1/groups/{group}/heartbeat") is not None
    assert ways.trial("POST", f"/v1/groups/{group}g/heartbeat") is None


def test_refused_alias_is_left_and_the_next_call_tries_another(ways: Ways) -> None:
    assert refused(ways, FETCH) == f"{ARN}-fetch:direct-consume"
    assert refused(ways, FETCH) == f"{ARN}-fetch:direct-admin"
    assert ways.trial(*FETCH) is None
    assert tried(ways, PRODUCE).target == f"{ARN}-produce:direct-produce"  # another function is another question


def test_alias_that_has_let_in_goes_first_at_other_functions(ways: Ways) -> None:
    refused(ways, FETCH)
    let_in(ways, FETCH)
    assert tried(ways, PRODUCE).alias == "direct-produce"  # let in by METADATA, as direct-admin
    refused(ways, PRODUCE)
    assert let_in(ways, PRODUCE) == f"{ARN}-produce:direct-admin"


@pytest.mark.parametrize("stands", ["wall_ms", "monotonic_ms"])
def test_refused_way_is_tried_again_after_ten_minutes_by_either_clock(ways: Ways, clocks: Clocks, stands: str) -> None:
    refused(ways, FETCH)
    refused(ways, FETCH)
    kept = getattr(clocks, stands)
    clocks.step(SDK_DETOUR_MS - 1)
    setattr(clocks, stands, kept)  # a freeze, or a step back
    assert ways.trial(*FETCH) is None
    clocks.step(1)
    setattr(clocks, stands, kept)
    assert let_in(ways, FETCH) == f"{ARN}-fetch:direct-consume"


def test_stage_whose_function_is_missing_is_forgotten_and_asked_anew(learner: Ways, clocks: Clocks) -> None:
    learner.note_http(*METADATA, told(("lambda", ARN)))
    refused(learner, FETCH, status=404)
    assert learner.trial(*PRODUCE) is None
    assert not learner.asks_beside(PRODUCE[1])
    clocks.step(SDK_DETOUR_MS)
    assert learner.asks_beside(PRODUCE[1])
    learner.note_http(*METADATA, told(("lambda", f"{ARN}-renamed")))
    assert tried(learner, PRODUCE).target.startswith(f"{ARN}-renamed-produce:")


def test_functions_of_the_environment_are_not_forgotten(ways: Ways) -> None:
    refused(ways, FETCH, status=404)
    assert ways.trial(*PRODUCE) is not None
    assert not ways.asks_beside(PRODUCE[1])


def test_no_connection_leaves_all_functions_and_one_call_tries_again(ways: Ways, clocks: Clocks) -> None:
    ways.note_no_answer(maybe_sent=False)
    assert ways.trial(*FETCH) is None
    clocks.step(SDK_DETOUR_MS)
    probe = ways.trial(*FETCH)
    assert probe is not None
    assert probe.is_probe
    assert ways.trial(*PRODUCE) is None  # while the probe is under way
    ways.note_no_answer(maybe_sent=False)
    ways.ended(probe)
    assert ways.trial(*PRODUCE) is None
    clocks.step(SDK_DETOUR_MS)
    let_in(ways, PRODUCE)
    assert not tried(ways, FETCH).is_probe


def test_probe_that_was_cancelled_lets_the_next_call_try(ways: Ways, clocks: Clocks) -> None:
    ways.note_no_answer(maybe_sent=False)
    clocks.step(SDK_DETOUR_MS)
    tried(ways, FETCH)  # ends, and nothing is noted
    assert ways.trial(*FETCH) is not None


def test_one_lost_answer_leaves_nothing_and_a_second_one_in_a_row_does(
    ways: Ways, caplog: pytest.LogCaptureFixture
) -> None:
    ways.note_no_answer(maybe_sent=True)
    let_in(ways, FETCH)
    ways.note_no_answer(maybe_sent=True)
    assert ways.trial(*FETCH) is not None
    assert not caplog.messages
    ways.note_no_answer(maybe_sent=True)
    assert ways.trial(*FETCH) is None
    assert caplog.messages == ["Lambda does not answer: calls go by HTTP for 600 s"]


def test_answer_that_never_came_leaves_lambda_at_once(learner: Ways) -> None:
    learner.note_http(*METADATA, told(("lambda", ARN)))
    learner.note_no_answer(maybe_sent=True)
    assert learner.trial(*FETCH) is None


def test_one_of_many_threads_waits_for_a_connection() -> None:
    ways, both = Ways(access_of(ARN), access_of, lasts=True), threading.Barrier(8)

    def try_one(_: int) -> Trial | None:
        both.wait()
        return ways.trial(*PRODUCE)

    with ThreadPoolExecutor(8) as threads:
        found = [trial for trial in threads.map(try_one, range(8)) if trial is not None]
    assert [each.is_probe for each in found] == [True]


def test_one_of_many_threads_asks() -> None:
    ways, both = Ways(None, access_of, lasts=True), threading.Barrier(8)
    ways.note_http(*FETCH, Response(200, {}, b""))

    def ask(_: int) -> bool:
        both.wait()
        return ways.asks_beside(FETCH[1])

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(8))) == 1


@pytest.fixture
def fork(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this process what a child by fork() is, in the middle of whatever its parent did."""

    def be_child() -> None:
        monkeypatch.setattr("penstock.system._forks", 1_000_001)

    return be_child


def test_child_of_a_fork_neither_waits_for_the_probe_of_its_parent_nor_for_its_lock(
    ways: Ways, clocks: Clocks, fork: Callable[[], None]
) -> None:
    ways.note_no_answer(maybe_sent=False)
    clocks.step(SDK_DETOUR_MS)
    probe = ways.trial(*FETCH)
    assert ways.trial(*FETCH) is None
    ways._lock._lock.acquire()  # by a thread that the child does not have
    fork()
    assert ways.trial(*FETCH) is not None
    assert probe is not None
