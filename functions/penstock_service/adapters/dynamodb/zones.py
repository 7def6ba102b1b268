"""ZoneStateStore on the topics table: one item with the states of all zones, and one with the pass that catches up."""

from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.storage.catch_up_item import catch_up_pass_item, catch_up_pass_key, parse_catch_up_pass
from penstock_core.storage.item import Item, number
from penstock_core.storage.zone_states_item import parse_zone_states, zone_states_item, zone_states_key
from penstock_core.zones.catch_up import CatchUpPass
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, ZoneStates
from penstock_service.adapters.dynamodb.client import DynamoDbClient, Refused


class DynamoDbZoneStateStore:
    """ZoneStateStore: the port documents its methods."""

    def __init__(self, client: DynamoDbClient, table: str) -> None:
        self._client = client
        self._table = table

    def get(self) -> ZoneStates:
        item = self._client.get(self._table, zone_states_key())
        return EVERY_ZONE_IN_SYNC if item is None else parse_zone_states(item)

    def change(self, old: ZoneStates, new: ZoneStates) -> None:
        expected = old.version or None
        self._put(zone_states_item(new), "version", expected, "another request changed a zone's state: try again")

    def get_pass(self) -> CatchUpPass | None:
        item = self._client.get(self._table, catch_up_pass_key())
        return None if item is None else parse_catch_up_pass(item)

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        expected = None if old is None else old.saves
        self._put(
            catch_up_pass_item(new),
            "saves",
            expected,
            "another run of recover_zones has saved its pass: leave the pass to that run",
        )

    def _put(self, item: Item, counter: str, expected: int | None, refusal: str) -> None:
        """Puts the item if the stored item's `counter` is `expected`, or if there is no item and `expected` is None."""
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if expected is not None:
            condition = {
                "ConditionExpression": "#counter = :expected",
                "ExpressionAttributeNames": {"#counter": counter},
                "ExpressionAttributeValues": {":expected": number(expected)},
            }
        put = self._client.conditional("put_item", is_repeatable=False, TableName=self._table, Item=item, **condition)
        if isinstance(put, Refused):
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, refusal)
