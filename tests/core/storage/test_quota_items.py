"""The item of a quota: layout and round trip."""

from penstock_core.quotas.quota import Subject, parse_quota
from penstock_core.storage.quota_items import parse_quota_item, quota_item, quota_key


def test_item_has_its_golden_layout() -> None:
    quota = parse_quota("topic", "orders", {"produce_bytes_per_s": 5})
    assert quota_item(quota) == {
        "pk": {"S": "#quotas"},
        "sk": {"S": "topic#orders"},
        "limits": {"M": {"produce_bytes_per_s": {"N": "5"}}},
    }


def test_item_of_a_shared_quota_says_so() -> None:
    item = quota_item(parse_quota("topic", "shop.*", {"fetch_bytes_per_s": 1}, is_shared=True))
    assert item["shared"] == {"BOOL": True}


def test_item_gives_the_quota_back() -> None:
    for quota in (
        parse_quota("principal", "*", {"fetch_requests_per_s": 9}),
        parse_quota("principal", "jwt:https://login.example#ada", {"fetch_bytes_per_s": 1}),
        parse_quota("topic", "shop.*", {"fetch_bytes_per_s": 1}),
        parse_quota("topic", "shop.*", {"fetch_bytes_per_s": 1}, is_shared=True),
    ):
        assert parse_quota_item(quota_item(quota)) == quota


def test_limit_of_a_later_release_is_left_out() -> None:
    item = {**quota_key(Subject.TOPIC, "t"), "limits": {"M": {"delete_requests_per_s": {"N": "5"}}}}
    assert parse_quota_item(item).to_json() == {}
