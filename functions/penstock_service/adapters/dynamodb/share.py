"""ShareStore on the groups table.

Each change of a state is one UpdateItem that returns the item as it was before. The state after it follows, by
`share_update.apply`. The client may send an update again after a lost answer: every lock that an update sets is
expected absent or as it was read, and every entry that it takes away is expected as it was read. So its own first
attempt refuses the second.
"""

from collections.abc import Container, Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import concurrent_update
from penstock_core.ids import GroupName, Offset
from penstock_core.limits import SHARE_BEGIN_ATTEMPTS_MAX
from penstock_core.share.draft import ShareOutcome, ShareUpdate, apply
from penstock_core.share.share_group import HIDDEN_PREFIX, ShareGroup, deletion_note
from penstock_core.share.share_state import ShareKey, ShareState
from penstock_core.storage.item import Item, number, rewriting
from penstock_core.storage.keys import SHARE_GROUPS
from penstock_core.storage.share.share_group_item import (
    SHARE_GROUP_OPTIONAL,
    parse_share_group,
    share_group_item,
    share_group_key,
)
from penstock_core.storage.share.share_state_item import (
    parse_share,
    parse_share_key,
    reset_update,
    share_item,
    share_item_key,
    share_update,
)
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused

_BEHIND_HIDDEN = chr(ord(HIDDEN_PREFIX) + 1)
_IS_SEEN = "share_group_id = :id AND version = :version"


class DynamoDbShareStore:
    """ShareStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get_group(self, group: GroupName) -> ShareGroup | None:
        item = self._client.get(self._table, share_group_key(group))
        return None if item is None else parse_share_group(item)

    def change_group(self, old: ShareGroup | None, new: ShareGroup) -> None:
        item = share_group_item(new)
        if old is None:
            condition: dict[str, object] = {"ConditionExpression": "attribute_not_exists(pk)"}
            done = self._client.conditional(
                "put_item", is_repeatable=False, TableName=self._table, Item=item, **condition
            )
        else:
            update = rewriting(item, _IS_SEEN, _seen_values(old), optional=SHARE_GROUP_OPTIONAL)
            done = self._client.conditional(
                "update_item", is_repeatable=False, TableName=self._table, **update.arguments()
            )
        if isinstance(done, Refused):
            raise concurrent_update(f"share group {new.name}")

    def delete_group(self, seen: ShareGroup) -> None:
        delete = {
            "TableName": self._table,
            "Key": share_group_key(seen.name),
            "ConditionExpression": _IS_SEEN,
            "ExpressionAttributeValues": _seen_values(seen),
        }
        put = {"TableName": self._table, "Item": share_group_item(deletion_note(seen))}
        cancelled = self._client.transact_once([{"Delete": delete}, {"Put": put}], is_repeatable=False)
        if cancelled is not None and cancelled.is_refused(0):
            raise concurrent_update(f"share group {seen.name}")
        if cancelled is not None:
            raise PenstockError(
                ErrorCode.THROTTLED, f"share group {seen.name}: consumers that begin to read it hold it. Try again"
            )

    def forget_group(self, hidden: ShareGroup) -> None:
        key = share_group_key(hidden.name)
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=key)

    def list_groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        return self._groups(max(after, _BEHIND_HIDDEN), limit)

    def hidden_groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        return [group for group in self._groups(max(after, HIDDEN_PREFIX), limit) if group.name < _BEHIND_HIDDEN]

    def _groups(self, after: str, limit: int) -> Sequence[ShareGroup]:
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :groups AND sk > :after",
            ExpressionAttributeValues={":groups": {"S": SHARE_GROUPS}, ":after": {"S": after}},
            Limit=limit,
            ConsistentRead=True,
        )
        return [*map(parse_share_group, answer["Items"])]

    def find_states(self, keys: Sequence[ShareKey]) -> Mapping[ShareKey, ShareState]:
        if len(keys) == 1:
            item = self._client.get(self._table, share_item_key(keys[0]))
            return {} if item is None else {keys[0]: parse_share(item)}
        items = self._client.batch_get(self._table, [share_item_key(key) for key in keys])
        return {parse_share_key(item): parse_share(item) for item in items}

    def create_state(self, key: ShareKey, position: Offset) -> ShareState:
        created = ShareState(position=position)
        done = self._client.conditional(
            "put_item",
            is_repeatable=True,
            TableName=self._table,
            Item=share_item(key, created),
            ConditionExpression="attribute_not_exists(pk)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return created if isinstance(done, Applied) or done.item is None else parse_share(done.item)

    def begin_state(self, group: GroupName, key: ShareKey, position: Offset) -> ShareState | None:
        created = ShareState(position=position)
        cancelled = self._client.transact([self._is_there(group, key), self._beginning(key, position)])
        if cancelled is None:
            return created
        return None if cancelled.is_refused(0) else self.find_states([key]).get(key)

    def begin_states(self, group: GroupName, begins: Mapping[ShareKey, Offset]) -> bool:
        found: Container[ShareKey] = ()
        for _ in range(SHARE_BEGIN_ATTEMPTS_MAX):
            missing = [self._beginning(key, position) for key, position in begins.items() if key not in found]
            cancelled = self._client.transact([self._is_there(group, next(iter(begins))), *missing])
            if cancelled is None:
                return True
            if cancelled.is_refused(0):
                return False
            found = self.find_states([*begins])
        raise PenstockError(
            ErrorCode.THROTTLED, f"share group {group}: others begin its states at the same time. Try again"
        )

    def _is_there(self, group: GroupName, key: ShareKey) -> dict[str, object]:
        """The action that lets a transaction through only while the group has the id of the key."""
        return {
            "ConditionCheck": {
                "TableName": self._table,
                "Key": share_group_key(group),
                "ConditionExpression": "share_group_id = :id",
                "ExpressionAttributeValues": {":id": {"S": key.share_group_id}},
            }
        }

    def _beginning(self, key: ShareKey, position: Offset) -> dict[str, object]:
        return {
            "Put": {
                "TableName": self._table,
                "Item": share_item(key, ShareState(position=position)),
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        }

    def update(self, key: ShareKey, update: ShareUpdate) -> ShareOutcome:
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            **share_update(key, update).arguments(),
            ReturnValues="ALL_OLD",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            before = parse_share(done.attributes)
            return ShareOutcome(before=before, after=apply(before, update))
        found = None if done.item is None else parse_share(done.item)
        return ShareOutcome(before=found, after=None, maybe_applied=done.maybe_applied)

    def reset(self, key: ShareKey, seen: ShareState, position: Offset) -> bool:
        done = self._client.conditional(
            "update_item", is_repeatable=True, TableName=self._table, **reset_update(key, seen, position).arguments()
        )
        return isinstance(done, Applied)

    def delete_state(self, key: ShareKey) -> None:
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=share_item_key(key))


def _seen_values(seen: ShareGroup) -> Item:
    return {":id": {"S": seen.share_group_id}, ":version": number(seen.version)}
