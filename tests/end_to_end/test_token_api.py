"""Callers with tokens on a deployed stage: an issuer in this process, and a second API that checks its tokens."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk import Stack as CdkStack
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from penstock import AccessDeniedError, AccessRule, Admin, Consumer, Producer, ShareConsumer
from penstock.configuration import find_configuration
from penstock.http.transport import HttpTransport
from penstock_cdk import Jwt
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.own_stack import NAME, SETTINGS, OwnStack, deploy_app
from tests.end_to_end.walled_stack import ADMINS
from tests.support.deadlines import until
from tests.support.penstock_command import penstock

from penstock_cdk import Penstock  # isort: skip # own_stack sets a variable of jsii first

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class _Issuer(BaseHTTPRequestHandler):
    """The two documents that a JWT authorizer reads."""

    def do_GET(self) -> None:
        url = f"http://{self.headers['Host']}"
        numbers = KEY.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "alg": "RS256", "n": _text(numbers.n.to_bytes(256, "big")), "e": "AQAB"}
        found = {
            "/.well-known/openid-configuration": {"issuer": url, "jwks_uri": f"{url}/keys"},
            "/keys": {"keys": [key]},
        }.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Issuer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def own(stack: Stack, issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStack]:
    jwt = Jwt(issuer=issuer, audiences=["penstock"], scopes=["use"])
    settings = replace(SETTINGS, jwt=jwt, super_principals=(ADMINS,))  # only they read the trail without a rule

    def make(app: App) -> None:
        Penstock(CdkStack(app, NAME), "Queue", settings=settings)

    try:
        yield deploy_app(stack, tmp_path_factory.mktemp("tokens") / "out", make)
    finally:
        stack.root_client("cloudformation").delete_stack(StackName=NAME)


def signed(issuer: str, key: rsa.RSAPrivateKey = KEY, **changed: Any) -> str:
    """A token of alice, unless `changed` says otherwise. A claim that is None is left out."""
    now_s = int(time.time())
    claims = {"iss": issuer, "sub": "alice", "aud": "penstock", "scope": "use", "iat": now_s - 5, "exp": now_s + 600}
    given = {name: value for name, value in {**claims, **changed}.items() if value is not None}
    head = {"alg": "RS256", "kid": "1"}
    text = ".".join(_text(json.dumps(part).encode()) for part in (head, given))
    return f"{text}.{_text(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def test_commands_change_and_ask_the_rules_of_a_deployed_stage(own: OwnStack, tmp_path: Path) -> None:
    keys = own.configuration.credentials.get_frozen_credentials()
    operator = {
        "PENSTOCK_URL": own.url,
        "AWS_REGION": own.configuration.region,
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
    }
    right = ("jwt:carol", "write", "topic:orders")
    assert penstock(tmp_path, operator, "acls", "check", *right)[0] == 1
    code, told, said = penstock(tmp_path, operator, "acls", "add", *right)
    assert (code, "added: allow jwt:http" in told) == (0, True), said
    assert "no rule is new" in penstock(tmp_path, operator, "acls", "add", *right)[1]
    assert penstock(tmp_path, operator, "acls", "check", *right)[0] == 0
    code, listed, said = penstock(tmp_path, operator, "acls", "list", "--principal", "jwt:carol", "--json")
    assert [each["resource"] for each in json.loads(listed)] == ["topic:orders"], said
    assert penstock(tmp_path, operator, "acls", "add", "*", "write", "topic:orders", "--deny")[0] == 0
    code, told, _ = penstock(tmp_path, operator, "acls", "check", *right)
    assert (code, "a deny rule" in told) == (1, True), told
    assert penstock(tmp_path, operator, "acls", "remove", "*", "write", "topic:orders", "--deny")[0] == 0
    code, told, _ = penstock(tmp_path, operator, "acls", "remove", *right)
    assert (code, told.startswith("removed: allow")) == (0, True), told
    assert penstock(tmp_path, operator, "acls", "check", *right)[0] == 1


Bearer = Callable[[str], HttpTransport]


@pytest.fixture(scope="module")
def bearer(own: OwnStack) -> Bearer:
    """The API for tokens, called with that token."""
    url = f"{own.local.endpoint_url}/_aws/execute-api/{own.outputs['QueueTokenApiId']}"
    return lambda token: HttpTransport(find_configuration(url, token=lambda: token))


def test_caller_with_a_token_has_the_rights_of_its_rules(own: OwnStack, issuer: str, bearer: Bearer) -> None:
    operator = own.admin()
    operator.create_topic("orders")
    alice = bearer(signed(issuer))
    with pytest.raises(AccessDeniedError, match="may not describe") as refused:
        Admin(transport=alice).describe_topic("orders")
    assert refused.value.facts["principal"] == f"jwt:{issuer}#alice"
    rights = (("all", "topic:orders"), ("read", "group:g"), ("all", "share_group:workers"))
    operator.change_acls([AccessRule(principal="jwt:alice", operation=each, resource=name) for each, name in rights])
    assert operator.check_acl("write", "topic:orders", principal="jwt:alice").is_allowed
    until(lambda: _may(alice))
    with Producer(transport=alice) as producer:
        producer.send("orders", b"by token")
    with Consumer("orders", group_id="g", transport=alice, wait="poll") as consumer:
        assert next(iter(consumer)).value == b"by token"
    Admin(transport=alice).create_share_group("workers", ["orders"], {"start": "earliest"})
    with ShareConsumer("orders", group_id="workers", transport=alice) as worker:
        assert next(iter(worker)).value == b"by token"
    until(lambda: f"jwt:{issuer}#alice" in _principals_in_trail(own))


def _may(caller: HttpTransport) -> bool:
    try:
        Admin(transport=caller).describe_topic("orders")
    except AccessDeniedError:
        return False
    return True


def _principals_in_trail(own: OwnStack) -> set[str]:
    own.local.root_client("lambda").invoke(FunctionName=f"{SETTINGS.name}-audit", Payload=b"{}")
    answer = own.transport.call("GET", "/v1/topics/_audit/partitions/0/records", {"offset": "earliest"}, {}, b"")
    return {json.loads(each["value"])["principal"] for each in json.loads(answer.body).get("records", [])}


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"aud": "another"}, 401),
        ({"exp": 1_000_000_000}, 401),
        ({"nbf": 4_000_000_000}, 401),
        ({"iss": "https://login.example"}, 401),
        ({"key": STRANGER}, 401),
        ({"scope": "openid"}, 403),
        ({"scope": None}, 403),
        ({"exp": None}, 403),
        ({"sub": None}, 403),
        ({"sub": "*"}, 403),
        ({"sub": ["alice"]}, 403),
        ({"sub": "bob"}, 403),
    ],
)
def test_token_that_is_not_alices_is_refused(issuer: str, bearer: Bearer, changed: dict[str, Any], status: int) -> None:
    transport = bearer(signed(issuer, **changed))
    answer = transport.call("GET", "/v1/topics/orders", {}, {}, b"")
    assert answer.status == status, answer.body


def test_signature_opens_nothing_of_the_api_for_tokens_and_a_token_nothing_of_the_other(
    own: OwnStack, issuer: str, bearer: Bearer
) -> None:
    mine = own.outputs["QueueApiId"], own.outputs["QueueTokenApiId"]
    signing = HttpTransport(replace(own.configuration, url=own.url.replace(*mine)))
    assert signing.call("GET", "/v1/topics", {}, {}, b"").status in (401, 403)
    alice = HttpTransport(find_configuration(own.url, token=lambda: signed(issuer)))
    assert alice.call("GET", "/v1/topics", {}, {}, b"").status in (401, 403)
    for path in ("/v1/zones", "/v1/acls", "/v1/quotas", "/v1/subscriptions", "/v1/wake-ups"):
        assert bearer(signed(issuer)).call("GET", path, {}, {}, b"").status in (403, 404), path
