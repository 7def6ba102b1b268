"""The item of a consumer group, and the item that lists it.

```
groups table   pk group name   sk "group"
version          N   rises with each change of this item: the condition of the next change
epoch            N   the group epoch; each has one target assignment
target_id        S   names that assignment's items (storage/target_item.py)
member_count     N   members that the target was made for
config           M   settings that differ from their defaults: N, or S for the assignor
next_check_ms    N   when a heartbeat looks at members and topics again
changed_at_ms    N   when this item was last changed
created_at_ms    N   when the group was made; absent in groups of releases up to 0.1.0
empty_since_ms   N   when the group was first seen without members; absent while it has some
protocol_type    S   what the members are; this and the next two in a group whose leader assigns only
document_members N   how many of them the document has
document         B   the document, which gateways write and read (penstock_kafka.groups.led.led_codec)

groups table   pk "#groups"   sk group name      a query of this key lists all groups
is_listed        BOOL true: an update that creates an item has to set something
claimed_by       S   the principal whose claim counts the group (docs/adr/0053); absent without a claim
claim_id         S   tells the claim from others of that group; absent in older items
claimed_at_ms    N   when it was claimed
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.groups.group import GroupConfig, GroupDocument, GroupState, alter_group_config, group_config_to_json
from penstock_core.ids import GroupName
from penstock_core.quotas.quota import GroupClaim
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number

OPTIONAL = ("created_at_ms", "empty_since_ms", "protocol_type", "document_members", "document")


def group_key(group: GroupName) -> Item:
    """The key of the group's own item."""
    return {"pk": {"S": group}, "sk": {"S": keys.GROUP}}


def group_item(group: GroupState) -> Item:
    """The item stores no default setting, so that a default can change with the code."""
    defaults = group_config_to_json(GroupConfig())
    settings = {name: value for name, value in group_config_to_json(group.config).items() if value != defaults[name]}
    item = {
        **group_key(group.name),
        "version": number(group.version),
        "epoch": number(group.epoch),
        "target_id": {"S": group.target_id},
        "member_count": number(group.member_count),
        "config": {"M": {name: {"S": v} if isinstance(v, str) else number(v) for name, v in settings.items()}},
        "next_check_ms": number(group.next_check_ms),
        "changed_at_ms": number(group.changed_at_ms),
    }
    if group.created_at_ms is not None:
        item["created_at_ms"] = number(group.created_at_ms)
    if group.empty_since_ms is not None:
        item["empty_since_ms"] = number(group.empty_since_ms)
    if group.document is not None:
        item["protocol_type"] = {"S": group.document.protocol_type}
        item["document_members"] = number(group.document.member_count)
        item["document"] = {"B": group.document.data}
    return item


def parse_group(item: Mapping[str, Any]) -> GroupState:
    """The inverse of `group_item`. Raises INVALID_CONFIG for a setting that this release does not know."""
    check_item("group", item)
    settings = {name: value["S"] if "S" in value else int(value["N"]) for name, value in item["config"]["M"].items()}
    return GroupState(
        name=GroupName(item["pk"]["S"]),
        version=int(item["version"]["N"]),
        epoch=int(item["epoch"]["N"]),
        target_id=item["target_id"]["S"],
        member_count=int(item["member_count"]["N"]),
        config=alter_group_config(GroupConfig(), settings),
        next_check_ms=int(item["next_check_ms"]["N"]),
        changed_at_ms=int(item["changed_at_ms"]["N"]),
        created_at_ms=int(item["created_at_ms"]["N"]) if "created_at_ms" in item else None,
        empty_since_ms=int(item["empty_since_ms"]["N"]) if "empty_since_ms" in item else None,
        document=_document(item) if "document" in item else None,
    )


def _document(item: Mapping[str, Any]) -> GroupDocument:
    return GroupDocument(
        protocol_type=item["protocol_type"]["S"],
        member_count=int(item["document_members"]["N"]),
        data=bytes(item["document"]["B"]),
    )


def registered_key(group: GroupName) -> Item:
    """The key of the item that lists the group."""
    return {"pk": {"S": keys.GROUPS}, "sk": {"S": group}}


def listing(group: GroupName, claim: GroupClaim | None) -> dict[str, Any]:
    """The arguments of the update that lists a group. A claim that the item has stays."""
    values: Item = {":true": {"BOOL": True}}
    update = "SET is_listed = :true"
    if claim is not None:
        update += ", claimed_by = if_not_exists(claimed_by, :principal)"
        update += ", claim_id = if_not_exists(claim_id, :id)"
        update += ", claimed_at_ms = if_not_exists(claimed_at_ms, :claimed)"
        values |= {":principal": {"S": claim.principal}, ":id": {"S": claim.claim_id}}
        values[":claimed"] = number(claim.claimed_at_ms)
    return {"Key": registered_key(group), "UpdateExpression": update, "ExpressionAttributeValues": values}


def parse_group_claim(item: Mapping[str, Any]) -> GroupClaim | None:
    """The claim in an item that lists a group. None if nobody has claimed it."""
    if "claimed_by" not in item:
        return None
    return GroupClaim(
        principal=item["claimed_by"]["S"],
        claim_id=item["claim_id"]["S"] if "claim_id" in item else "",
        claimed_at_ms=int(item["claimed_at_ms"]["N"]),
    )
