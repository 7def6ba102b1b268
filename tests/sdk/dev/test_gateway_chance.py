"""Whatever comes in, the gateway refuses it or answers it: it never breaks, and no unsigned request gets through."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.dev.gateway import Caller, Gateway, Refused
from penstock.http.sigv4 import Keys, Scope, signed_headers
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.adapters.system import SequentialExecutor

HOST = "127.0.0.1:4567"
NOW_S = 1_790_000_000.0
KEYS = Keys("key", "secret")
SCOPE = Scope(region="us-east-1", service="execute-api")

texts = st.text(max_size=30)
names = st.sampled_from(["Authorization", "Host", "X-Amz-Date", "X-Amz-Security-Token", "Cookie"]) | texts
targets = texts | texts.map("/v1/topics".__add__) | st.sampled_from(["/v1/topics?%ff=%", "/v1//topics", "*", "/%"])
paths = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"), max_size=20).map(
    "/".__add__
)


@pytest.fixture(scope="module")
def gateway() -> Gateway:
    instance = memory_instance(executor=SequentialExecutor())
    return Gateway(
        instance=instance,
        callers={KEYS.access_key: Caller(KEYS, LOCAL_PRINCIPAL)},
        scope=SCOPE,
        settle=lambda: None,
    )


@given(target=targets, headers=st.lists(st.tuples(names, texts), max_size=6))
def test_unsigned_request_is_refused(gateway: Gateway, target: str, headers: list[tuple[str, str]]) -> None:
    with pytest.raises(Refused):
        gateway.admit(target, [("Host", HOST), *headers], NOW_S)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE", "OPTIONS"]),
    path=paths | st.sampled_from(["/v1/topics", "/v1/topics/%ff", "/v1/groups/%00/offsets", "/v1/produce"]),
    query=st.lists(st.tuples(st.sampled_from(["limit", "%ff", "a"]), st.sampled_from(["", "%", "%ff", "1", "+"]))),
    body=st.binary(max_size=60) | st.sampled_from([b"{}", b"[]", b'{"name": "\\ud800"}']),
)
def test_signed_request_gets_an_answer_of_the_handlers(
    gateway: Gateway, method: str, path: str, query: list[tuple[str, str]], body: bytes
) -> None:
    target = path + ("?" + "&".join(f"{name}={value}" for name, value in query) if query else "")
    signed = signed_headers(KEYS, SCOPE, method, f"http://{HOST}{target}", {}, body, NOW_S)
    headers = [("Host", HOST), *signed.items()]
    answer = gateway.respond(gateway.admit(target, headers, NOW_S), method, target, headers, body)
    assert answer.status < 500
    assert answer.body
