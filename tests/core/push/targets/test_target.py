from typing import Any

import pytest

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.targets.target import (
    BusTarget,
    FunctionTarget,
    HttpsTarget,
    QueueTarget,
    Target,
    TopicTarget,
    parse_target,
    target_to_json,
)

FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pack"
BUS = "arn:aws-cn:events:cn-north-1:123456789012:event-bus/orders"
QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/pack"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"


@pytest.mark.parametrize(
    ("document", "target"),
    [
        ({"lambda": FUNCTION}, FunctionTarget(arn=FUNCTION)),
        ({"lambda": f"{FUNCTION}:live"}, FunctionTarget(arn=f"{FUNCTION}:live")),
        ({"sqs": QUEUE}, QueueTarget(url=QUEUE)),
        ({"event_bus": BUS}, BusTarget(arn=BUS)),
        ({"topic": "mirror"}, TopicTarget(topic="mirror")),  # type: ignore[arg-type]  # a name as the caller writes it
    ],
)
def test_target_comes_back_as_it_was_given(document: dict[str, Any], target: Target) -> None:
    assert parse_target(document) == target
    assert target_to_json(target) == document


def test_secret_of_an_endpoint_is_never_shown() -> None:
    target = parse_target({"https": {"url": "https://example.org/in?a=1", "secret": SECRET}})
    assert target == HttpsTarget(url="https://example.org/in?a=1", secret=SECRET)
    assert SECRET not in repr(target)
    assert target_to_json(target) == {"https": {"url": "https://example.org/in?a=1"}}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "give one of lambda, sqs, event_bus, https, topic"),
        ({"sns": "x"}, "target with ['sns']"),
        ({"lambda": FUNCTION, "sqs": QUEUE}, "give one of"),
        ({"lambda": 7}, "target.lambda=7: give a text"),
        ({"lambda": "pack"}, "target.lambda='pack': give an ARN"),
        ({"lambda": f"{FUNCTION}\n"}, "give an ARN"),
        ({"lambda": f"{FUNCTION}:$LATEST"}, "leave out :$LATEST"),
        ({"event_bus": "orders"}, "target.event_bus='orders': give an ARN"),
        ({"sqs": "pack"}, "target.sqs='pack': give a queue's URL"),
        ({"sqs": f"{QUEUE}.fifo"}, "FIFO queues are not served"),
        ({"https": "https://example.org"}, "give an object with url and secret"),
        ({"https": {"url": "http://example.org", "secret": SECRET}}, "'http://example.org': give an https:// address"),
        ({"https": {"url": "https://u:p@example.org", "secret": SECRET}}, "without user"),
        ({"https": {"url": "https://example.org#x", "secret": SECRET}}, "fragment"),
        ({"https": {"url": f"https://example.org/{'x' * limits.PUSH_URL_LENGTH_MAX}", "secret": SECRET}}, "2,048"),
        ({"https": {"url": 7, "secret": SECRET}}, "target.https.url=7"),
        ({"https": {"url": "https://", "secret": SECRET}}, "target.https.url='https://'"),
        ({"https": {"url": "https://[::1", "secret": SECRET}}, "'https://[::1'"),
        ({"https": {"url": "https://example.org:99999", "secret": SECRET}}, ":99999'"),
        ({"https": {"url": "https://example.org:0", "secret": SECRET}}, ":0'"),
        ({"https": {"url": "https://example.org\\@10.0.0.1", "secret": SECRET}}, "give an https:// address"),
        ({"https": {"url": "https://exam\nple.org", "secret": SECRET}}, "give an https:// address"),
        ({"https": {"url": "https://example.org/a b", "secret": SECRET}}, "give an https:// address"),
        ({"https": {"url": "https://bücher.example", "secret": SECRET}}, "in ASCII"),
        ({"https": {"url": "https://example.org/#", "secret": SECRET}}, "fragment"),
        ({"https": {"url": "https://example.org", "secret": "short"}}, "target.https.secret: give whsec_"),
        ({"https": {"url": "https://example.org", "secret": 7}}, "24 to 64 random bytes"),
    ],
)
def test_bad_target_is_refused_with_the_way_out(document: dict[str, Any], told: str) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_target(document)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert told in caught.value.message
    assert "short" not in caught.value.message


@pytest.mark.parametrize(
    "document",
    [
        {"http": {"url": "https://example.org", "secret": SECRET}},
        {"https": {"url": "https://example.org", "secret": SECRET}, "lambda": "x"},
        {"lambda": {"secret": SECRET}},
        {"https": {"url": "https://example.org", "secret": SECRET, "more": 1}},
        {"https": {"url": "example.org", "secret": SECRET}},
    ],
)
def test_refusal_shows_no_secret(document: dict[str, Any]) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_target(document)
    assert SECRET[:20] not in str(caught.value)


def test_endpoint_without_tls_is_taken_only_where_it_is_allowed() -> None:
    url = "http://127.0.0.1:8080/in"
    document = {"https": {"url": url, "secret": SECRET}}
    assert parse_target(document, is_http_allowed=True) == HttpsTarget(url=url, secret=SECRET)
    with pytest.raises(PenstockError):
        parse_target(document)
    with pytest.raises(PenstockError):
        parse_target({"https": {"url": "ftp://127.0.0.1/", "secret": SECRET}}, is_http_allowed=True)


def test_bad_topic_name_is_refused() -> None:
    with pytest.raises(PenstockError) as caught:
        parse_target({"topic": "a b"})
    assert caught.value.code is ErrorCode.INVALID_NAME
