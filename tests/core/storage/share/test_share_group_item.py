from dataclasses import replace

import pytest

from penstock_core.ids import GroupName, ShareGroupId, TopicId, TopicName
from penstock_core.share.share_group import ShareGroup, ShareGroupConfig, new_share_group_config
from penstock_core.storage.item import item_bytes
from penstock_core.storage.share.share_group_item import SHARE_GROUP_OPTIONAL, parse_share_group, share_group_item

PLAIN = ShareGroup(
    name=GroupName("workers"), share_group_id=ShareGroupId("ab" * 10), topics={TopicName("orders"): TopicId("00ff")}
)
FULL = ShareGroup(
    name=GroupName("workers"),
    share_group_id=ShareGroupId("ab" * 10),
    version=3,
    created_at_ms=7,
    topics={TopicName("orders"): TopicId("00ff"), TopicName("bills"): TopicId("11ff")},
    config=new_share_group_config(
        {
            "lock_ms": 5_000,
            "dead_letter_topic": "orders.dead",
            "deliveries_max": 9,
            "ordering": "key",
            "key_batch_max": 4,
            "filter": {"type": ["order"]},
            "start": "latest",
        }
    ),
    left_topics=frozenset({TopicId("33ff"), TopicId("22ff")}),
)


LISTED = replace(
    FULL,
    config=new_share_group_config({"topic_order": "listed"}),
    order=(TopicName("orders"), TopicName("bills")),
)


@pytest.mark.parametrize("group", [PLAIN, FULL, LISTED])
def test_group_is_read_back(group: ShareGroup) -> None:
    assert parse_share_group(share_group_item(group)) == group


def test_order_of_listed_topics_is_a_list_because_a_map_has_none() -> None:
    assert share_group_item(LISTED)["order"] == {"L": [{"S": "orders"}, {"S": "bills"}]}
    assert parse_share_group(share_group_item(LISTED)).ordered_topics == ("orders", "bills")
    assert PLAIN.ordered_topics == ("orders",)


@pytest.mark.parametrize("config", [{"sharing": "fair"}, {"sharing": "fair", "fair_by": "team"}])
def test_group_that_older_releases_do_not_know_has_a_format_that_they_refuse(config: dict[str, str]) -> None:
    fair = replace(PLAIN, config=ShareGroupConfig(**config))  # type: ignore[arg-type]
    assert {share_group_item(each)["format_version"]["N"] for each in (LISTED, fair)} == {"2"}
    assert "format_version" not in share_group_item(PLAIN)
    assert "format_version" in SHARE_GROUP_OPTIONAL


def test_group_stores_no_setting_that_is_the_default() -> None:
    assert share_group_item(PLAIN)["config"] == {"S": "{}"}


def test_group_item_is_what_is_stored_today() -> None:
    assert share_group_item(FULL) == {
        "pk": {"S": "#share_groups"},
        "sk": {"S": "workers"},
        "share_group_id": {"S": "ab" * 10},
        "version": {"N": "3"},
        "created_at_ms": {"N": "7"},
        "topics": {"M": {"orders": {"S": "00ff"}, "bills": {"S": "11ff"}}},
        "config": {
            "S": '{"dead_letter_topic":"orders.dead","deliveries_max":9,"filter":{"type":["order"]},'
            '"in_flight_max":500,"key_batch_max":4,"lock_ms":5000,"ordering":"key","start":"latest"}'
        },
        "left_topics": {"SS": ["22ff", "33ff"]},
    }
    assert item_bytes(share_group_item(FULL)) < 1_024
