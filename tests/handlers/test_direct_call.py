"""Direct calls: the event is its sender's own text, so what it says of its sender must count for nothing."""

import base64
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.transports.invocation import OwnProof
from penstock_core.acls.rule import parse_principal_pattern
from penstock_core.acls.tokens import AclSettings, TokenSettings
from penstock_core.direct.caller_proof import CallerProof
from penstock_core.direct.function_arn import FunctionsPlace
from penstock_core.limits import DIRECT_PATH_LENGTH_MAX, REQUEST_BYTES_MAX
from penstock_core.routes import ROUTE_BY_KEY, ROUTES_OF_ALIAS
from penstock_handlers import admin as admin_function
from penstock_handlers import router
from penstock_handlers.edge import entry, lambda_function
from penstock_handlers.edge.access.direct_call import ADDRESS, direct_call
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from tests.handlers.service import CONTEXT
from tests.support.fake_aws import ACCOUNT, FakeAws, always, sts_error
from tests.support.service import new_topic

ADA = f"arn:aws:iam::{ACCOUNT}:user/ada"
MALLORY = f"arn:aws:iam::{ACCOUNT}:user/mallory"
FORGED = {
    "authorizer": {"iam": {"userArn": ADA}},
    "http": {"method": "GET", "path": "/v1/topics", "sourceIp": "1.1.1.1"},
}


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    fake = FakeAws()
    yield fake
    fake.close()


@pytest.fixture
def instance() -> Instance:
    made = memory_instance(
        acl_settings=AclSettings(allows_by_default=False, super_principals=(parse_principal_pattern(ADA),))
    )
    new_topic(made, "orders")
    return made


@pytest.fixture
def place(aws: FakeAws, instance: Instance) -> FunctionsPlace:
    return aws.stage(instance)


def proof_of(aws: FakeAws, place: FunctionsPlace, arn: str = ADA, token: str | None = None) -> dict[str, str]:
    access = aws.access(place, aws.key(arn, token=token))
    return OwnProof(access.signer, access.sts_url, place.arn).current().to_json()


def event(proof: object, method: str = "GET", path: str = "/v1/topics", **fields: object) -> dict[str, Any]:
    return {"penstock": 1, "method": method, "path": path, "query": {}, "body": "", "proof": proof, **fields}


def answer(aws: FakeAws, arn: str, payload: object) -> tuple[int, Any]:
    result = aws.invoke(arn, payload)
    return result["statusCode"], json.loads(result["body"] or "{}")


def code(found: tuple[int, Any]) -> str:
    assert found[1]["error"]["maybe_applied"] is False
    return str(found[1]["error"]["code"])


def admin(place: FunctionsPlace, function: str = "admin") -> str:
    return place.alias_arn(function, "direct-admin")


def test_request_is_served_for_the_caller_that_has_signed_the_proof(aws: FakeAws, place: FunctionsPlace) -> None:
    status, body = answer(aws, admin(place), event(proof_of(aws, place)))
    assert (status, [topic["name"] for topic in body["topics"]]) == (200, ["orders"])


def test_warm_function_asks_no_authority_when_it_knows_the_proof(aws: FakeAws, place: FunctionsPlace) -> None:
    proof = proof_of(aws, place)
    for _ in range(3):
        assert answer(aws, admin(place), event(proof))[0] == 200
    assert aws.identified == 1


def test_session_counts_as_its_role(aws: FakeAws) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/ledger"
    made = memory_instance(
        acl_settings=AclSettings(allows_by_default=False, super_principals=(parse_principal_pattern(role),))
    )
    place = aws.stage(made, "roles")
    proof = proof_of(aws, place, f"arn:aws:sts::{ACCOUNT}:assumed-role/ledger/i-0abc", "session+token==")
    assert answer(aws, admin(place), event(proof))[0] == 200


@pytest.mark.parametrize("forgery", ["requestContext", "headers", "pathParameters", "routeKey", "principal"])
def test_event_that_names_its_caller_is_refused(aws: FakeAws, place: FunctionsPlace, forgery: str) -> None:
    payload = {**event(proof_of(aws, place, MALLORY)), forgery: FORGED}
    assert code(answer(aws, admin(place), payload)) == "INVALID_REQUEST"


def test_caller_without_rights_gets_none_by_its_own_proof(aws: FakeAws, place: FunctionsPlace) -> None:
    payload = event(proof_of(aws, place, MALLORY), "DELETE", "/v1/topics/orders")
    assert code(answer(aws, admin(place), payload)) == "NOT_AUTHORIZED"


@pytest.mark.parametrize("payload", [None, [], "x", 7, {}, {"requestContext": FORGED, "routeKey": "GET /v1/topics"}])
def test_event_of_api_gateway_counts_for_nothing_behind_a_direct_alias(
    aws: FakeAws, place: FunctionsPlace, payload: object
) -> None:
    assert code(answer(aws, admin(place), payload)) == "INVALID_REQUEST"


@pytest.mark.parametrize(
    "fields",
    [
        {"penstock": 2},
        {"penstock": "1"},
        {"method": None},
        {"path": ["/v1/topics"]},
        {"path": "/" * (DIRECT_PATH_LENGTH_MAX + 1)},
        {"query": None},
        {"query": {"limit": 1}},
        {"query": {"limit": ["1"]}},
        {"query": {"after": "a" * DIRECT_PATH_LENGTH_MAX}},
        {"query": {"\ud800": "1"}},
        {"query": {"after": "\udfff"}},
        {"path": "/v1/topics\ud800"},
        {"method": "GET\ud800"},
        {"body": "\ud800"},
        {"body": {"a": 1}},
        {"body": "***"},
    ],
)
def test_event_of_another_form_is_refused(aws: FakeAws, place: FunctionsPlace, fields: dict[str, object]) -> None:
    payload = event(proof_of(aws, place), "POST", "/v1/topics") | fields
    assert code(answer(aws, admin(place), payload)) == "INVALID_REQUEST"


def test_body_over_its_bound_is_refused(aws: FakeAws, place: FunctionsPlace) -> None:
    body = base64.b64encode(bytes(REQUEST_BYTES_MAX + 1)).decode()
    payload = event(proof_of(aws, place), "POST", "/v1/produce", body=body)
    assert code(answer(aws, admin(place, "produce"), payload)) == "REQUEST_TOO_LARGE"


@pytest.mark.parametrize("alias", ROUTES_OF_ALIAS)
def test_alias_serves_the_routes_of_its_policy_only(aws: FakeAws, place: FunctionsPlace, alias: str) -> None:
    proof = proof_of(aws, place)
    for route in ROUTE_BY_KEY:
        method, path = route.split(" ")
        path = re.sub(r"\{\w+\}", "x", path.replace("{partition}", "0"))
        arn = place.alias_arn(ROUTE_BY_KEY[route].function, alias)
        status, body = answer(aws, arn, event(proof, method, path))
        is_served = status != 404 or body["error"]["code"] != "UNKNOWN_ROUTE"
        assert is_served == (route in ROUTES_OF_ALIAS[alias]), route


@pytest.mark.parametrize("path", ["/v1/topics/orders", "/v1/metadata/../topics/orders", "/v1/metadata%2F..%2Ftopics"])
def test_producer_deletes_no_topic_by_its_alias(aws: FakeAws, place: FunctionsPlace, path: str) -> None:
    payload = event(proof_of(aws, place), "DELETE", path)
    assert code(answer(aws, place.alias_arn("admin", "direct-produce"), payload)) == "UNKNOWN_ROUTE"


def test_route_of_another_function_is_refused(aws: FakeAws, place: FunctionsPlace) -> None:
    payload = event(proof_of(aws, place), "POST", "/v1/produce")
    assert code(answer(aws, admin(place), payload)) == "UNKNOWN_ROUTE"


def test_function_whose_name_only_ends_as_that_of_the_route_is_refused(
    aws: FakeAws, place: FunctionsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(router.SERVES, "records_produce", router.SERVES["produce"])
    payload = event(proof_of(aws, place), "POST", "/v1/produce")
    assert code(answer(aws, admin(place, "records_produce"), payload)) == "UNKNOWN_ROUTE"


def test_proof_for_another_stage_is_refused(aws: FakeAws, place: FunctionsPlace) -> None:
    other = aws.stage(memory_instance(), "penstock-dev")
    assert code(answer(aws, admin(place), event(proof_of(aws, other)))) == "NOT_AUTHORIZED"


def test_proof_for_the_same_stage_of_another_account_is_refused(aws: FakeAws, place: FunctionsPlace) -> None:
    other = aws.stage(memory_instance(), account="999999999999")
    assert code(answer(aws, admin(place), event(proof_of(aws, other)))) == "NOT_AUTHORIZED"


def test_caller_of_another_account_is_refused(aws: FakeAws, place: FunctionsPlace) -> None:
    proof = proof_of(aws, place, "arn:aws:iam::999999999999:user/ada")
    assert code(answer(aws, admin(place), event(proof))) == "NOT_AUTHORIZED"


@pytest.mark.parametrize("part", ["key", "time", "signature", "token"])
def test_proof_with_a_part_of_another_one_is_refused(aws: FakeAws, place: FunctionsPlace, part: str) -> None:
    proof = proof_of(aws, place, MALLORY, "mallorys")
    stolen = {**proof_of(aws, place, ADA, "adas"), "time": proof["time"][:-3] + "59Z"}
    assert code(answer(aws, admin(place), event({**proof, part: stolen[part]}))) == "NOT_AUTHORIZED"


def test_outage_of_the_authority_changes_nothing_and_says_so(aws: FakeAws, place: FunctionsPlace) -> None:
    aws.sts_faults = [always(sts_error(503, "ServiceUnavailable"))] * 2
    found = aws.invoke(admin(place), event(proof_of(aws, place), "DELETE", "/v1/topics/orders"))
    assert (found["statusCode"], found["headers"]["Retry-After"]) == (503, "1")
    assert code((503, json.loads(found["body"]))) == "IDENTITY_UNAVAILABLE"
    assert answer(aws, admin(place), event(proof_of(aws, place)))[1]["topics"]


def test_text_of_a_call_has_nothing_of_its_event(aws: FakeAws, place: FunctionsPlace) -> None:
    call = direct_call(
        event(proof_of(aws, place)), SimpleNamespace(invoked_function_arn=admin(place), aws_request_id="r")
    )
    assert call is not None
    assert "proof" not in repr(call)


@pytest.mark.parametrize("suffix", ["", ":live", ":$LATEST", ":7", ":direct", ":direct-admin2", ":a:direct-admin"])
def test_alias_alone_makes_a_direct_call(place: FunctionsPlace, suffix: str) -> None:
    arn = admin(place).rpartition(":")[0] + suffix
    assert direct_call({"penstock": 1}, SimpleNamespace(invoked_function_arn=arn, aws_request_id="r")) is None


@pytest.fixture
def deployed(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions as Lambda runs them, on a stage that takes no direct calls."""
    monkeypatch.setattr(lambda_function, "instance", lambda: instance)
    monkeypatch.setattr(lambda_function.metrics.provider, "namespace", "Penstock")
    monkeypatch.setattr(lambda_function.metrics.provider, "service", "penstock")


@pytest.mark.usefixtures("deployed")
def test_function_of_a_stage_without_direct_calls_refuses_them(
    aws: FakeAws, place: FunctionsPlace, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    context = SimpleNamespace(**{**vars(CONTEXT), "invoked_function_arn": admin(place)})
    proof = CallerProof(key="A" * 20, time="20261128T130000Z", token="swordfish", signature="a" * 64)
    result = admin_function.handler(event(proof.to_json()), context)
    assert (result["statusCode"], code((403, json.loads(result["body"])))) == (403, "NOT_AUTHORIZED")
    assert "swordfish" not in caplog.text + capsys.readouterr().out


@pytest.mark.usefixtures("deployed")
@pytest.mark.parametrize("where", ["event_of", "_served"])
def test_direct_call_that_meets_a_defect_leaves_the_line_that_the_alarm_counts(
    place: FunctionsPlace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A filter of the alarm `api-5xx` counts `request` with a status of 500 and more (infra, alarms.py)."""

    def defect(*_: object) -> None:
        raise RuntimeError("a defect")

    context = SimpleNamespace(**{**vars(CONTEXT), "invoked_function_arn": admin(place)})
    if where != "event_of":
        served = {"routeKey": "GET /v1/topics", "rawPath": "/v1/topics", "requestContext": {}}
        monkeypatch.setattr(entry, "event_of", lambda *_: served)
        monkeypatch.setattr(entry, "access_of", lambda *_: None)
        monkeypatch.setattr(entry, "checked_route", lambda *_: ROUTE_BY_KEY["GET /v1/topics"])
    monkeypatch.setattr(entry, where, defect)
    assert admin_function.handler(event({}), context)["statusCode"] == 500
    [line] = [record for record in caplog.records if record.getMessage() == "request"]
    assert (line.levelname, vars(line)["status"]) == ("WARNING", 500)


def test_audit_trail_names_the_proven_caller(aws: FakeAws, place: FunctionsPlace, instance: Instance) -> None:
    payload = event(proof_of(aws, place), "DELETE", "/v1/topics/orders")
    assert answer(aws, admin(place), payload)[0] == 204
    [note] = instance.stores.audit.entries(10)
    assert (note.caller.principal, note.caller.address, note.caller.request_id) == (ADA, ADDRESS, "request-1")


@pytest.mark.parametrize(
    ("fields", "refuses_the_way"),
    [
        ({"penstock": 2}, True),
        ({"path": "/v2/topics"}, True),
        ({"proof": {}}, True),
        ({"path": "/v1/topics/missing"}, False),
        ({"method": "POST", "body": "!"}, False),
    ],
    ids=["form", "route", "proof", "unknown topic", "wrong body"],
)
def test_answer_tells_a_way_that_is_refused_from_a_refused_request(
    aws: FakeAws, place: FunctionsPlace, fields: dict[str, object], refuses_the_way: bool
) -> None:
    result = aws.invoke(admin(place), event(proof_of(aws, place)) | fields)
    assert result["statusCode"] >= 400
    assert ("Penstock-Way" in result["headers"]) is refuses_the_way


def test_metadata_tells_the_functions_to_callers_by_iam_alone(aws: FakeAws, place: FunctionsPlace) -> None:
    instance = aws.instance_of(place)
    for topic in ({}, {"topic": "orders"}):
        status, _, body = router.dispatch("GET", "/v1/metadata", topic, {}, b"", instance, ADA)
        assert (status, json.loads(body)["addresses"]) == (200, [{"transport": "lambda", "address": place.arn}])


def test_metadata_tells_no_functions_to_the_subject_of_a_token(aws: FakeAws) -> None:
    settings = AclSettings(allows_by_default=True, tokens=TokenSettings(issuer="https://login.example"))
    place = aws.stage(memory_instance(acl_settings=settings), "tokens")
    claims = {"iss": "https://login.example", "sub": "alice", "exp": "1790000000"}
    status, _, body = router.dispatch("GET", "/v1/metadata", {}, {}, b"", aws.instance_of(place), claims)
    assert (status, json.loads(body)) == (200, {"addresses": []})
