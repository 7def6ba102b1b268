"""ZoneStateStore on the topics table: one item with the states of all zones, and one with the pass that catches up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.storage.item import ConditionalPut, Item, number, rewriting
from penstock_core.storage.zone_states_item import parse_zone_states, zone_states_item, zone_states_key
from penstock_core.zones.zone_state import EVERY_ZONE_IN_SYNC, ZoneStates
from penstock_service.adapters.dynamodb.client import DynamoDbClient, Refused

if TYPE_CHECKING:
    from penstock_core.zones.catch_up import CatchUpPass


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
        self._write(zone_states_item(new), "version", expected, "another request changed a zone's state: try again")

    def get_pass(self) -> CatchUpPass | None:
        from penstock_core.storage.zone_states_item import catch_up_pass_key, parse_catch_up_pass  # for one function

        item = self._client.get(self._table, catch_up_pass_key())
        return None if item is None else parse_catch_up_pass(item)

    def save_pass(self, old: CatchUpPass | None, new: CatchUpPass) -> None:
        from penstock_core.storage.zone_states_item import catch_up_pass_item

        expected = None if old is None else old.saves
        self._write(
            catch_up_pass_item(new),
            "saves",
            expected,
            "another run of recover_zones has saved its pass: leave the pass to that run",
        )

    def _write(self, item: Item, counter: str, expected: int | None, refusal: str) -> None:
        """Writes the item if the stored one's `counter` is `expected`, or if there is none and `expected` is None."""
        operation, arguments = "put_item", ConditionalPut(item=item, condition="attribute_not_exists(pk)").arguments()
        if expected is not None:
            update = rewriting(
                item, "#counter = :expected", {":expected": number(expected)}, names={"#counter": counter}
            )
            operation, arguments = "update_item", update.arguments()
        done = self._client.conditional(operation, is_repeatable=False, TableName=self._table, **arguments)
        if isinstance(done, Refused):
            raise PenstockError(ErrorCode.CONCURRENT_UPDATE, refusal)
