"""Tokens of a dev server: who they make you, and what makes you somebody else (nothing)."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock import AccessDeniedError, AccessRule, Admin, Consumer, Producer
from penstock.configuration import Configuration
from penstock.dev.gateway import ISSUER, LIFETIME_S, DevTokens, TokenRefused
from penstock.dev.service import DevAccess
from penstock.http.transport import HttpTransport
from penstock.tokens import BearerTokens
from tests.sdk.dev.conftest import RunningServer, Server

NOW_S = 1_790_000_000.0
TOKENS = DevTokens(secret="a" * 32)


def _part(claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


def test_issued_token_names_its_subject_until_it_ends() -> None:
    token = TOKENS.issue("alice", NOW_S)
    assert TOKENS.claims(token, NOW_S + LIFETIME_S - 1)["sub"] == "alice"
    with pytest.raises(TokenRefused, match="expired"):
        TOKENS.claims(token, NOW_S + LIFETIME_S)


def test_forged_token_is_refused() -> None:
    header, claims, signature = TOKENS.issue("alice", NOW_S).split(".")
    bob = _part({"iss": ISSUER, "sub": "bob", "aud": "penstock", "exp": NOW_S + 60})
    forged = [
        f"{header}.{bob}.{signature}",
        f"{_part({'alg': 'none'})}.{bob}.",
        f"{_part({'alg': 'none', 'typ': 'JWT'})}.{claims}.{signature}",
        f"{header}.{claims}.",
        f"{header}.{claims}.{signature}=",
        f"{header}.{claims}",
        f"{header}.{claims}.{signature}é",
        DevTokens(secret="b" * 32).issue("alice", NOW_S),
        "",
        "...",
    ]
    for token in forged:
        with pytest.raises(TokenRefused):
            TOKENS.claims(token, NOW_S)


@pytest.fixture
def running() -> Iterator[Server]:
    running = RunningServer(access=DevAccess(subjects=["alice"]))
    yield running.server
    running.stop()


def _as_alice(server: Server) -> HttpTransport:
    token = server.service.environment(server.port, "alice")["PENSTOCK_TOKEN"]
    own: Configuration = server.configuration()
    return HttpTransport(replace(own, tokens=BearerTokens(lambda: token)))


def test_subject_works_by_rules_of_its_own(running: Server) -> None:
    operator = Admin(transport=running.transport())
    operator.create_topic("orders")
    with pytest.raises(AccessDeniedError, match="alice"):
        Admin(transport=_as_alice(running)).describe_topic("orders")
    rights = (("all", "topic:orders"), ("read", "group:g"))
    operator.change_acls([AccessRule(principal="jwt:alice", operation=each, resource=name) for each, name in rights])
    with Producer(transport=_as_alice(running)) as producer:
        producer.send("orders", b"by token")
    with Consumer("orders", group_id="g", transport=_as_alice(running), wait="poll") as consumer:
        assert next(iter(consumer)).value == b"by token"
    with pytest.raises(AccessDeniedError, match="takes no tokens"):
        Admin(transport=_as_alice(running)).list_zones()


def test_token_that_the_server_did_not_issue_is_told_so(running: Server) -> None:
    own = running.configuration()
    forged = DevTokens(secret="guessed").issue("alice", NOW_S)
    stranger = HttpTransport(replace(own, tokens=BearerTokens(lambda: forged)))
    with pytest.raises(AccessDeniedError, match="not of this server"):
        Admin(transport=stranger).list_topics()
