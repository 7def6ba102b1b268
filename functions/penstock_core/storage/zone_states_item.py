"""The item of the zones' states. One item holds them all, so each change has seen every zone (docs/adr/0004).

```
topics table   pk "#zones"   sk "states"
version   N   rises by one with each change of any zone: the condition of the next change
zones     M   each zone that ever moved, M:
              status    S   in_sync, out_of_sync, catching_up or taken_out
              version   N   the version of the change that made this state
              since_ms  N   when that change was made
              reason    S   why
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import ZoneName
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number
from penstock_core.zones.zone_state import ZoneState, ZoneStates, ZoneStatus


def zone_states_key() -> Item:
    """The key of the one item."""
    return {"pk": {"S": keys.ZONES}, "sk": {"S": keys.ZONE_STATES}}


def zone_states_item(states: ZoneStates) -> Item:
    """The whole item, for a PutItem on condition of `version`."""
    return {
        **zone_states_key(),
        "version": number(states.version),
        "zones": {
            "M": {
                zone: {
                    "M": {
                        "status": {"S": state.status.value},
                        "version": number(state.version),
                        "since_ms": number(state.since_ms),
                        "reason": {"S": state.reason},
                    }
                }
                for zone, state in states.by_zone.items()
            }
        },
    }


def parse_zone_states(item: Mapping[str, Any]) -> ZoneStates:
    """The inverse of `zone_states_item`."""
    check_item("zone_states", item)
    return ZoneStates(
        version=int(item["version"]["N"]),
        by_zone={
            ZoneName(zone): ZoneState(
                status=ZoneStatus(state["M"]["status"]["S"]),
                version=int(state["M"]["version"]["N"]),
                since_ms=int(state["M"]["since_ms"]["N"]),
                reason=state["M"]["reason"]["S"],
            )
            for zone, state in item["zones"]["M"].items()
        },
    )
