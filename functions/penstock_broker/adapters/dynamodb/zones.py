"""ZoneStateStore on the topics table: one item with the states of all zones, one with the keeper's pass."""

from typing import Any

from botocore.exceptions import ClientError

from penstock_broker.adapters.dynamodb.client import DynamoDbClient, condition_failed
from penstock_core.catch_up import CatchUpPass
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.items import (
    Item,
    catch_up_pass_item,
    catch_up_pass_key,
    number,
    parse_catch_up_pass,
    parse_zone_states,
    zone_states_item,
    zone_states_key,
)
from penstock_core.zone_state import EVERY_ZONE_IN_SYNC, ZoneStates


class DynamoDbZoneStateStore:
    """ZoneStateStore."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get(self) -> ZoneStates:
        item = self._get(zone_states_key())
        return EVERY_ZONE_IN_SYNC if item is None else parse_zone_states(item)

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        expected = old.version or None
        self._put(zone_states_item(new), "version", expected, "a zone's state was changed by somebody else: try again")

    def get_pass(self) -> CatchUpPass | None:
        item = self._get(catch_up_pass_key())
        return None if item is None else parse_catch_up_pass(item)

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        expected = None if old is None else old.saves
        self._put(catch_up_pass_item(new), "saves", expected, "another keeper is at work: leave it to that one")

    def _get(self, key: Item) -> Item | None:
        answer = self._client.call("get_item", is_repeatable=True, TableName=self._table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def _put(self, item: Item, counter: str, expected: int | None, refusal: str) -> None:
        """On condition that the stored item's `counter` is `expected`; None: that there is no item."""
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if expected is not None:
            condition = {
                "ConditionExpression": "#counter = :expected",
                "ExpressionAttributeNames": {"#counter": counter},
                "ExpressionAttributeValues": {":expected": number(expected)},
            }
        try:
            self._client.call("put_item", is_repeatable=False, TableName=self._table, Item=item, **condition)
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, refusal) from error
