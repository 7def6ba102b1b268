"""GroupStore on the groups table: leases, one item each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock_core.groups.group import GroupState, Member, SessionTouch, concurrent_update, touched
from penstock_core.groups.lease import CommittedOffset, Lease, LeaseToken, MayGoBack, refusal
from penstock_core.ids import GroupName, MemberName, PartitionKey, TopicId
from penstock_core.outcomes import errors_of_a_late_attempt
from penstock_core.quotas.quota import GroupClaim
from penstock_core.storage.groups.group_item import (
    OPTIONAL,
    group_item,
    group_key,
    listing,
    parse_group,
    parse_group_claim,
    registered_key,
)
from penstock_core.storage.groups.lease_item import (
    LEASE_PREFIX,
    commit_update,
    lease_item_key,
    parse_lease,
    release_update,
    reset_update,
    take_update,
    unchanged_lease,
)
from penstock_core.storage.groups.member_item import (
    MEMBER_OPTIONAL,
    MEMBER_PREFIX,
    SEQUENCE_NAME,
    TARGET_PREFIX,
    member_item,
    member_item_key,
    parse_member,
    target_item,
    target_key,
    target_prefix,
    touch_update,
    unchanged_member,
)
from penstock_core.storage.item import ConditionalUpdate, Item, number, rewriting
from penstock_core.storage.keys import GROUPS
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient, Refused

_NEXT, _LAST = " ", "~"  # they sort below and above every character of a key's parts
_VERSION_NAME = {"#version": "version"}
_LAST_MEMBER = "~"  # sorts above every character of a key's parts


class DynamoDbGroupStore:
    """GroupStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def commit(
        self,
        group: GroupName,
        committed: CommittedOffset,
        token: LeaseToken | None,
        may_go_back: MayGoBack,
        may_create: bool,
    ) -> None:
        update = commit_update(group, committed, token, may_go_back=may_go_back, may_create=may_create)
        done = self._client.conditional(
            "update_item",
            is_repeatable=False,  # a late repeat could move the offset back, or be refused where the first was not
            TableName=self._table,
            **update.arguments(),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Refused):
            stored = parse_lease(done.item) if done.item else None
            key, offset = committed.partition, committed.offset
            why = refusal(stored, key, offset, token, may_go_back=may_go_back, may_create=may_create)
            raise why or concurrent_update(f"the lease on partition {key}")

    def leases(self, group: GroupName) -> Sequence[Lease]:
        return [*map(parse_lease, self._query(group))]

    def lease_page(
        self, group: GroupName, topic_id: TopicId | None, after: str, limit: int
    ) -> tuple[Sequence[Lease], bool]:
        prefix = LEASE_PREFIX if topic_id is None else f"{LEASE_PREFIX}{topic_id}#"
        first, last = max(prefix, f"{LEASE_PREFIX}{after}{_NEXT}"), f"{prefix}{_LAST}"
        if first > last:  # DynamoDB refuses such a range
            return [], False
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :group AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":group": {"S": group},
                ":first": {"S": first},
                ":last": {"S": last},
            },
            Limit=limit,
            ConsistentRead=True,
        )
        return [*map(parse_lease, answer["Items"])], "LastEvaluatedKey" in answer

    def find_leases(self, group: GroupName, partitions: Sequence[PartitionKey]) -> Mapping[PartitionKey, Lease]:
        items = self._client.batch_get(self._table, [lease_item_key(group, key) for key in partitions])
        return {lease.partition: lease for lease in map(parse_lease, items)}

    def take_lease(self, group: GroupName, seen: Lease, owner: MemberName, epoch: int) -> Lease:
        update = take_update(group, seen, owner, epoch)
        return parse_lease(self._updated(group, seen, **update.arguments(), ReturnValues="ALL_NEW").attributes)

    def reset_lease(self, group: GroupName, seen: Lease, committed: CommittedOffset, epoch: int) -> None:
        self._updated(group, seen, **reset_update(group, seen, committed, epoch).arguments())

    def release_lease(self, group: GroupName, seen: Lease, epoch: int) -> None:
        self._updated(group, seen, **release_update(group, seen, epoch).arguments())

    def delete_lease(self, group: GroupName, seen: Lease) -> bool:
        condition, values = unchanged_lease(seen)
        deleted = self._client.conditional(
            "delete_item",
            is_repeatable=True,
            TableName=self._table,
            Key=lease_item_key(group, seen.partition),
            ConditionExpression=condition,
            **({"ExpressionAttributeValues": values} if values else {}),
        )
        return isinstance(deleted, Applied)

    def _updated(self, group: GroupName, seen: Lease, **arguments: Any) -> Applied:
        # Never repeated: the first attempt would refuse the repeat, and no caller would learn that it was applied.
        done = self._client.conditional("update_item", is_repeatable=False, TableName=self._table, **arguments)
        if isinstance(done, Refused):
            raise concurrent_update(f"the lease on partition {seen.partition} of group {group}")
        return done

    def _query(self, group: GroupName) -> Iterator[Item]:
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :group AND begins_with(sk, :lease)",
            ExpressionAttributeValues={":group": {"S": group}, ":lease": {"S": LEASE_PREFIX}},
        ):
            yield from items


class DynamoDbMembershipStore:
    """MembershipStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get_group(self, group: GroupName) -> GroupState | None:
        item = self._client.get(self._table, group_key(group))
        return None if item is None else parse_group(item)

    def find_groups(self, groups: Sequence[GroupName]) -> Mapping[GroupName, GroupState]:
        found = map(parse_group, self._client.batch_get(self._table, [group_key(group) for group in groups]))
        return {group.name: group for group in found}

    def change_group(self, old: GroupState | None, new: GroupState) -> None:
        what = f"group {new.name}"
        if old is None:
            self._put(what, group_item(new), ConditionExpression="attribute_not_exists(pk)")
        else:
            version = {":version": number(old.version)}
            update = rewriting(group_item(new), "#version = :version", version, names=_VERSION_NAME, optional=OPTIONAL)
            self._rewrite(what, update)

    def delete_group(self, seen: GroupState) -> None:
        done = self._client.conditional(
            "delete_item", is_repeatable=True, TableName=self._table, Key=group_key(seen.name), **_version_is(seen)
        )
        if isinstance(done, Refused):
            with errors_of_a_late_attempt(maybe_applied=done.maybe_applied):
                raise concurrent_update(f"group {seen.name}")

    def register(self, group: GroupName, claim: GroupClaim | None = None) -> GroupClaim | None:
        done = self._client.call(
            "update_item",
            is_repeatable=False,  # a late repeat would list a group under a claim that its deletion has dropped
            TableName=self._table,
            **listing(group, claim),
            ReturnValues="ALL_NEW",
        )
        return parse_group_claim(done["Attributes"])

    def unregister(self, group: GroupName) -> GroupClaim | None:
        done = self._client.call(
            "delete_item",
            is_repeatable=False,  # a first attempt that lands late would undo what the caller lists after the second
            TableName=self._table,
            Key=registered_key(group),
            ReturnValues="ALL_OLD",
        )
        return parse_group_claim(done.get("Attributes", {}))

    def is_registered(self, group: GroupName, claim_id: str = "") -> bool:
        item = self._client.get(self._table, registered_key(group))
        claim = None if item is None else parse_group_claim(item)
        return item is not None and (not claim_id or (claim is not None and claim.claim_id == claim_id))

    def is_claimed(self, group: GroupName) -> bool:
        item = self._client.get(self._table, registered_key(group))
        return item is not None and parse_group_claim(item) is not None

    def registered(self, after: str, limit: int) -> Sequence[GroupName]:
        answer = self._client.call(
            "query",
            is_repeatable=True,
            TableName=self._table,
            KeyConditionExpression="pk = :groups AND sk > :after",
            ExpressionAttributeValues={
                ":groups": {"S": GROUPS},
                ":after": {"S": after or " "},
            },  # no value may be empty
            Limit=limit,
            ConsistentRead=True,
        )
        return [GroupName(item["sk"]["S"]) for item in answer["Items"]]

    def members(self, group: GroupName) -> Sequence[Member]:
        return [*map(parse_member, self._query(**_between(group, MEMBER_PREFIX, MEMBER_PREFIX + _LAST_MEMBER)))]

    def find_members(self, group: GroupName, names: Sequence[MemberName]) -> Mapping[MemberName, Member]:
        items = self._client.batch_get(self._table, [member_item_key(group, name) for name in names])
        return {member.name: member for member in map(parse_member, items)}

    def put_member(self, group: GroupName, old: Member | None, new: Member) -> None:
        what, item = f"member {new.name} of group {group}", member_item(group, new)
        if old is None:
            self._put(what, item, ConditionExpression="attribute_not_exists(pk)")
        else:
            condition, values = unchanged_member(old)
            self._rewrite(what, rewriting(item, condition, values, names=SEQUENCE_NAME, optional=MEMBER_OPTIONAL))

    def touch_member(self, group: GroupName, name: MemberName, touch: SessionTouch) -> Member:
        done = self._client.conditional(
            "update_item",
            is_repeatable=True,
            TableName=self._table,
            **touch_update(group, name, touch).arguments(),
            ExpressionAttributeNames=SEQUENCE_NAME,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        if isinstance(done, Applied):
            return parse_member(done.attributes)
        stored = parse_member(done.item) if done.item else None
        return touched(stored, group, name, touch)

    def remove_member(self, group: GroupName, seen: Member) -> bool:
        return self._deleted(member_item_key(group, seen.name), **_member_is(seen))

    def put_target(self, group: GroupName, epoch: int, target_id: str, chunks: Sequence[bytes]) -> None:
        for index, chunk in enumerate(chunks):
            self._client.call(
                "put_item",
                is_repeatable=True,
                TableName=self._table,
                Item=target_item(group, epoch, target_id, index, chunk),
            )

    def get_target(self, group: GroupName, epoch: int, target_id: str) -> Sequence[bytes]:
        first = target_key(epoch, target_id, 0)
        items = self._query(**_between(group, first, first[:-3] + _LAST_MEMBER))
        return [item["target"]["B"] for item in items]

    def remove_targets(self, group: GroupName, below_epoch: int) -> None:
        items = self._query(**_between(group, TARGET_PREFIX, target_prefix(below_epoch)), ProjectionExpression="pk, sk")
        for item in [*items]:
            self._deleted(item)

    def _put(self, what: str, item: Item, **condition: Any) -> None:
        put = self._client.conditional("put_item", is_repeatable=False, TableName=self._table, Item=item, **condition)
        if isinstance(put, Refused):
            raise concurrent_update(what)

    def _rewrite(self, what: str, update: ConditionalUpdate) -> None:
        done = self._client.conditional("update_item", is_repeatable=False, TableName=self._table, **update.arguments())
        if isinstance(done, Refused):
            raise concurrent_update(what)

    def _deleted(self, key: Item, **condition: Any) -> bool:
        deleted = self._client.conditional(
            "delete_item", is_repeatable=True, TableName=self._table, Key=key, **condition
        )
        return isinstance(deleted, Applied)

    def _query(self, **arguments: Any) -> Iterator[Item]:
        for items in self._client.read_pages("query", TableName=self._table, **arguments):
            yield from items


def _between(group: GroupName, first: str, last: str) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "pk = :group AND sk BETWEEN :first AND :last",
        "ExpressionAttributeValues": {":group": {"S": group}, ":first": {"S": first}, ":last": {"S": last}},
    }


def _version_is(seen: GroupState) -> dict[str, Any]:
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": _VERSION_NAME,
        "ExpressionAttributeValues": {":version": number(seen.version)},
    }


def _member_is(seen: Member) -> dict[str, Any]:
    condition, values = unchanged_member(seen)
    return {
        "ConditionExpression": condition,
        "ExpressionAttributeNames": SEQUENCE_NAME,
        "ExpressionAttributeValues": values,
    }
