"""InlineStore on the log table: one item for each segment.

It answers keys as an ordinary bucket does, so that the sweep goes over its folders as over those of a bucket. Lists are
eventually consistent, which costs half: the sweep decides about items that are hours old.
"""

from collections.abc import Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.limits import LIST_KEYS_MAX
from penstock_core.storage.keys import KeyLayout, inline_shard, segment_key
from penstock_core.storage.page_item import (
    expiring_item,
    expiring_key,
    inline_id,
    inline_item,
    inline_key,
    inline_shards,
    parse_expiring,
    parse_inline,
)
from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.ports.segments import INLINE, ListedKeys

_BEHIND_KEYS = "~"  # sorts behind every letter of a key


class DynamoDbInlineStore:
    """InlineStore: the port documents its methods."""

    layout = KeyLayout.SPREAD
    earlier = None

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    @property
    def zone(self) -> ZoneName:
        return ZoneName(INLINE)

    def put(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - DynamoDB checks requests
        self._client.conditional(
            "put_item",
            is_repeatable=True,
            TableName=self._table,
            Item=inline_item(segment_id, body),
            ConditionExpression="attribute_not_exists(pk)",
        )

    def get(self, segment_id: SegmentId, position: int, length: int) -> bytes:
        body = self.get_whole(segment_id)
        if body is None:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"the log table has no segment {segment_id.hex()}",
                is_missing=True,
            )
        data = body[position : position + length]
        if len(data) != length:
            raise PenstockError(
                ErrorCode.CORRUPT_SEGMENT,
                f"the log table holds {len(data)} of {length} bytes from {position} of segment {segment_id.hex()}",
            )
        return data

    def get_whole(self, segment_id: SegmentId) -> bytes | None:
        item = self._client.get(self._table, inline_key(segment_id))
        return None if item is None else parse_inline(item)[1]

    def get_wholes(self, segment_ids: Sequence[SegmentId]) -> Mapping[SegmentId, bytes]:
        return dict(map(parse_inline, self._client.batch_get(self._table, [*map(inline_key, segment_ids)])))

    def put_expiring(self, segment_id: SegmentId, body: bytes, kept_days: int) -> None:
        self._client.conditional(
            "put_item",
            is_repeatable=True,
            TableName=self._table,
            Item=expiring_item(segment_id, body, kept_days),
            ConditionExpression="attribute_not_exists(pk)",
        )

    def get_expiring(self, segment_ids: Sequence[SegmentId]) -> Mapping[SegmentId, bytes]:
        found = dict(map(parse_expiring, self._client.batch_get(self._table, [*map(expiring_key, segment_ids)])))
        missing = [each for each in segment_ids if each not in found]
        # Read last: an item is copied long before its TTL, so it is in one of the two places.
        return {**found, **self.get_wholes(missing)} if missing else found

    def overwrite(self, segment_id: SegmentId, body: bytes, crc32c: int) -> None:  # noqa: ARG002 - as put
        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=inline_item(segment_id, body))

    def list_folders(self) -> Sequence[str]:
        found: list[str] = []
        for shard in inline_shards():
            after = "0"
            while keys := self._sort_keys(shard, after, _BEHIND_KEYS, 1):
                found.append(f"{keys[0].partition('/')[0]}/")
                after = f"{found[-1]}{_BEHIND_KEYS}"
        return found

    def list_keys(self, prefix: str, token: str | None) -> ListedKeys:
        first = prefix if token is None else f"{token}{_BEHIND_KEYS}"
        found = self._sort_keys(inline_shard(prefix), first, f"{prefix}{_BEHIND_KEYS}", LIST_KEYS_MAX + 1)
        part = found[:LIST_KEYS_MAX]
        keys = [segment_key(inline_id(each), self.layout) for each in part]
        return ListedKeys(keys=keys, next_token=part[-1] if len(found) > LIST_KEYS_MAX else None)

    def delete(self, segment_ids: Sequence[SegmentId]) -> None:
        self._client.batch_delete(self._table, [*map(inline_key, segment_ids)])

    def _sort_keys(self, shard: str, first: str, last: str, limit: int) -> list[str]:
        """The sort keys in [first, last], `limit` at most. One query for each megabyte of items that it passes."""
        found: list[str] = []
        start: dict[str, object] = {}
        while True:
            answer = self._client.call(
                "query",
                is_repeatable=True,
                TableName=self._table,
                KeyConditionExpression="pk = :shard AND sk BETWEEN :first AND :last",
                ExpressionAttributeValues={":shard": {"S": shard}, ":first": {"S": first}, ":last": {"S": last}},
                ProjectionExpression="sk",
                Limit=limit - len(found),
                **start,
            )
            found += [item["sk"]["S"] for item in answer["Items"]]
            if len(found) >= limit or "LastEvaluatedKey" not in answer:
                return found
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
