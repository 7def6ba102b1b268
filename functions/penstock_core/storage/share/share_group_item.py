"""The item of a share group.

```
groups table   pk "#share_groups"   sk group name
share_group_id   S   in the keys of the group's state items
version          N   rises with each change of this item: the condition of the next change
created_at_ms    N
topics           M   topic name -> S, the topic's id
config           S   JSON of the settings that differ from their defaults
order            L   S each, the names of the topics with topic_order=listed, the highest first; absent without it
left_topics      SS  ids of topics that the group read before; absent if there are none
format_version   N   2 with topic_order=listed or sharing=fair, which older releases do not know; else absent
```
One query of the key lists all share groups with their settings. A name that begins with `#` is that of a hidden group.
"""

import json
from collections.abc import Mapping
from typing import Any

from penstock_core.formats import FORMAT_ATTRIBUTE, check_item
from penstock_core.ids import GroupName, ShareGroupId, TopicId, TopicName
from penstock_core.share.share_group import (
    ShareGroup,
    ShareGroupConfig,
    new_share_group_config,
    share_group_config_to_json,
)
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number

SHARE_GROUP_OPTIONAL = ("left_topics", "order", FORMAT_ATTRIBUTE)
_CHOOSING_FORMAT = 2


def share_group_key(group: GroupName) -> Item:
    """The key of the group's item."""
    return {"pk": {"S": keys.SHARE_GROUPS}, "sk": {"S": group}}


def share_group_item(group: ShareGroup) -> Item:
    """The item stores no default setting, so that a default can change with the code."""
    defaults = share_group_config_to_json(ShareGroupConfig())
    config = share_group_config_to_json(group.config)
    order = {"order": {"L": [{"S": name} for name in group.order]}} if group.order else {}
    left = {"left_topics": {"SS": sorted(group.left_topics)}} if group.left_topics else {}
    changed = {name: value for name, value in config.items() if value != defaults[name]}
    has_choice = group.config.is_listed or group.config.is_fair
    return {
        **share_group_key(group.name),
        "share_group_id": {"S": group.share_group_id},
        "version": number(group.version),
        "created_at_ms": number(group.created_at_ms),
        "topics": {"M": {name: {"S": topic_id} for name, topic_id in group.topics.items()}},
        "config": {"S": json.dumps(changed, separators=(",", ":"), sort_keys=True)},
        **order,
        **left,
        **({FORMAT_ATTRIBUTE: number(_CHOOSING_FORMAT)} if has_choice else {}),
    }


def parse_share_group(item: Mapping[str, Any]) -> ShareGroup:
    """The inverse of `share_group_item`. Raises INVALID_CONFIG for a setting that this release does not know."""
    check_item("share_group", item)
    return ShareGroup(
        name=GroupName(item["sk"]["S"]),
        share_group_id=ShareGroupId(item["share_group_id"]["S"]),
        version=int(item["version"]["N"]),
        created_at_ms=int(item["created_at_ms"]["N"]),
        topics={TopicName(name): TopicId(topic_id["S"]) for name, topic_id in item["topics"]["M"].items()},
        config=new_share_group_config(json.loads(item["config"]["S"])),
        order=tuple(TopicName(name["S"]) for name in item["order"]["L"]) if "order" in item else (),
        left_topics=frozenset(map(TopicId, item["left_topics"]["SS"] if "left_topics" in item else ())),
    )
