"""Lists in pages: every answer is one that Lambda can return, and the pages join to the whole."""

from typing import Any

import pytest

from penstock_core.limits import COMMIT_METADATA_BYTES_MAX, GROUP_PAGE_MAX, JSON_RESPONSE_BYTES_MAX
from penstock_handlers.edge.http import bytes_in_envelope
from tests.handlers.service import Service

PARTITIONS = 500
OFFSETS = "/v1/groups/billing/offsets"
GROUP = "/v1/groups/billing"


@pytest.fixture(params=['"', "\x01", "a"], ids=["quotes", "control characters", "letters"])
def billing(request: pytest.FixtureRequest, service: Service) -> Service:
    """A group whose offsets have as much metadata as a commit may have."""
    service.create("orders", PARTITIONS)
    for number in range(PARTITIONS):
        offset = {"topic": "orders", "partition": number, "offset": 0}
        offset["metadata"] = request.param * COMMIT_METADATA_BYTES_MAX
        assert service.call("POST", OFFSETS, {"offsets": [offset]}).json == {
            "results": [{"topic": "orders", "partition": number}]
        }
    return service


def _pages(service: Service, path: str, **query: str) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        answer = service.call("GET", path, **query, after=after)
        assert answer.status == 200, answer.body[:200]
        assert bytes_in_envelope(answer.body.decode()) < JSON_RESPONSE_BYTES_MAX + 1_000
        pages.append(answer.json)
        after = answer.json["next_after"]
    return pages


@pytest.mark.parametrize("query", [{}, {"topic": "orders"}, {"limit": "7"}])
def test_offsets_come_in_pages_that_lambda_can_return(billing: Service, query: dict[str, str]) -> None:
    found = [each for page in _pages(billing, OFFSETS, **query) for each in page["offsets"]]
    assert sorted(each["partition"] for each in found) == [*range(PARTITIONS)]
    assert {len(each["metadata"]) for each in found} == {COMMIT_METADATA_BYTES_MAX}


def test_description_comes_in_pages_that_lambda_can_return(billing: Service) -> None:
    found = _pages(billing, GROUP)
    assert sorted(each["partition"] for page in found for each in page["partitions"]) == [*range(PARTITIONS)]
    assert {page["group"] for page in found} == {"billing"}


def test_members_come_in_pages_before_partitions(service: Service) -> None:
    service.create("orders", 3)
    names = [f"{number:02}" + "\x01" * 80 for number in range(90)]
    for number in range(90):
        body = {
            "member_id": f"m{number:02}",
            "sequence": 1,
            "epoch": 0,
            "subscription": {"topics": ["orders", *names]},
        }
        assert service.call("POST", f"{GROUP}/heartbeat", body).status == 200
    found = _pages(service, GROUP)
    assert len(found) > 1
    assert [each["member_id"] for page in found for each in page["members"]] == [f"m{n:02}" for n in range(90)]
    assert {page["member_count"] for page in found} == {90}
    assert sorted(each["partition"] for page in found for each in page["partitions"]) == [0, 1, 2]
    assert not any(page["partitions"] for page in found[:-1])


@pytest.mark.parametrize("path", [OFFSETS, GROUP])
@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": str(GROUP_PAGE_MAX + 1)}, {"after": "x" * 250}, {"offset": "1"}]
)
def test_page_is_refused(service: Service, path: str, query: dict[str, str]) -> None:
    refused = service.call("GET", path, **query)
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/groups"])
def test_list_refuses_a_place_that_no_key_can_have(service: Service, path: str) -> None:
    refused = service.call("GET", path, after="x" * 250)
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")
