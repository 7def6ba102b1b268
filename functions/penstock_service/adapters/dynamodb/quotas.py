"""QuotaStore on the groups table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock_core.limits import QUOTAS_MAX
from penstock_core.quotas.bucket import Bucket, BucketKey
from penstock_core.quotas.quota import Quota, Subject, too_many_quotas
from penstock_core.storage.item import Item, number
from penstock_core.storage.keys import QUOTAS
from penstock_core.storage.quota_items import (
    bucket_charge,
    bucket_key,
    bucket_put,
    parse_bucket,
    parse_quota_item,
    quota_item,
    quota_key,
)
from penstock_service.adapters.dynamodb.client import Applied, DynamoDbClient
from penstock_service.ports.access import ChargeOutcome

if TYPE_CHECKING:
    from penstock_core.quotas.quota import Claim, ClaimKind


class DynamoDbQuotaStore:
    """QuotaStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def put(self, quota: Quota, over: str = "") -> bool:
        stored = {(each.subject, each.name) for each in self.list()}
        if (quota.subject, quota.name) not in stored and len(stored) >= QUOTAS_MAX:
            raise too_many_quotas()
        arguments: Item = {"Item": quota_item(quota)}
        if over:
            arguments["ConditionExpression"] = "attribute_not_exists(pk) OR begins_with(declared_by, :over)"
            arguments["ExpressionAttributeValues"] = {":over": {"S": over}}
        done = self._client.conditional("put_item", is_repeatable=True, TableName=self._table, **arguments)
        return isinstance(done, Applied)

    def delete(self, subject: Subject, name: str, declared_by: str = "") -> bool:
        arguments: Item = {"ConditionExpression": "attribute_exists(pk)"}
        if declared_by:
            arguments["ConditionExpression"] = "declared_by = :resource"
            arguments["ExpressionAttributeValues"] = {":resource": {"S": declared_by}}
        key = quota_key(subject, name)
        done = self._client.conditional("delete_item", is_repeatable=True, TableName=self._table, Key=key, **arguments)
        return isinstance(done, Applied)

    def list(self) -> Sequence[Quota]:
        quotas: list[Quota] = []
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :quotas",
            ExpressionAttributeValues={":quotas": {"S": QUOTAS}},
        ):
            quotas += map(parse_quota_item, items)
        return quotas

    def claims(self, principal: str) -> Sequence[Claim]:
        from penstock_core.storage.quota_items import claims_pk, parse_claim  # claims are for creations

        found: list[Claim] = []
        for items in self._client.read_pages(
            "query",
            TableName=self._table,
            KeyConditionExpression="pk = :claims",
            ExpressionAttributeValues={":claims": {"S": claims_pk(principal)}},
        ):
            found += map(parse_claim, items)
        return found

    def put_claim(self, principal: str, claim: Claim) -> None:
        from penstock_core.storage.quota_items import claim_item

        self._client.call("put_item", is_repeatable=True, TableName=self._table, Item=claim_item(principal, claim))

    def drop_claim(self, principal: str, claim: Claim) -> None:
        from penstock_core.storage.quota_items import claim_key

        self._client.conditional(
            "delete_item",
            is_repeatable=True,
            TableName=self._table,
            Key=claim_key(principal, *claim.place),
            ConditionExpression="claimed_at_ms = :claimed",
            ExpressionAttributeValues={":claimed": number(claim.claimed_at_ms)},
        )

    def forget_claim(self, principal: str, kind: ClaimKind, name: str, resource_id: str) -> None:
        from penstock_core.storage.quota_items import claim_key

        key = claim_key(principal, kind, name, resource_id)
        self._client.call("delete_item", is_repeatable=True, TableName=self._table, Key=key)

    def charge(self, key: BucketKey, bucket: Bucket, units: int, now_ms: int) -> ChargeOutcome:
        charge = bucket_charge(_item_key(key), bucket, units, now_ms)
        return self._write("update_item", {**charge.arguments(), "ReturnValues": "ALL_NEW"})

    def begin(self, key: BucketKey, old: Bucket | None, new: Bucket) -> ChargeOutcome:
        put = bucket_put(_item_key(key), old, new)
        outcome = self._write("put_item", put.arguments())
        return ChargeOutcome(is_made=True, bucket=new) if outcome.is_made else outcome

    def _write(self, operation: str, arguments: Mapping[str, Any]) -> ChargeOutcome:
        """One attempt after another may charge twice, which costs its principal a moment."""
        done = self._client.conditional(
            operation,
            is_repeatable=True,
            TableName=self._table,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **arguments,
        )
        if isinstance(done, Applied):
            return ChargeOutcome(is_made=True, bucket=parse_bucket(done.attributes) if done.attributes else None)
        return ChargeOutcome(is_made=False, bucket=None if done.item is None else parse_bucket(done.item))


def _item_key(key: BucketKey) -> Item:
    return bucket_key(key.subject, key.name, key.rate)
