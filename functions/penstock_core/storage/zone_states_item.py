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

The item of the pass that brings zones back in sync. A stage has one.

```
topics table   pk "#zones"   sk "catch_up"
saves      N   how often this pass and those before it were stored: the condition of the next save
began_ms   N   when the pass began
zones      M   each zone that catches up: the version of its state when the pass began
cursor     L   topic name S, partition N, offset N: the next portion begins there
refs       N   refs looked at so far
segments   N   segments copied
bytes      N   bytes copied
failures   N   refs that still lack a copy in a zone
lost       N   refs whose segment no zone has; absent from a pass that an older release began
```
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import ZoneName
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number
from penstock_core.zones.zone_state import CatchUpPass, Cursor, Progress, ZoneState, ZoneStates, ZoneStatus


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


def catch_up_pass_key() -> Item:
    """The key of the one pass."""
    return {"pk": {"S": keys.ZONES}, "sk": {"S": keys.CATCH_UP}}


def catch_up_pass_item(current: CatchUpPass) -> Item:
    """The whole item, for a PutItem on condition of `saves`."""
    cursor, done = current.cursor, current.progress
    return {
        **catch_up_pass_key(),
        "saves": number(current.saves),
        "began_ms": number(current.began_ms),
        "zones": {"M": {zone: number(version) for zone, version in current.zones.items()}},
        "cursor": {"L": [{"S": cursor.topic}, number(cursor.partition), number(cursor.offset)]},
        "refs": number(done.refs),
        "segments": number(done.segments),
        "bytes": number(done.bytes),
        "failures": number(done.failures),
        "lost": number(done.lost),
    }


def parse_catch_up_pass(item: Mapping[str, Any]) -> CatchUpPass:
    """The inverse of `catch_up_pass_item`."""
    check_item("catch_up", item)
    topic, partition, offset = item["cursor"]["L"]
    return CatchUpPass(
        zones={ZoneName(zone): int(version["N"]) for zone, version in item["zones"]["M"].items()},
        began_ms=int(item["began_ms"]["N"]),
        saves=int(item["saves"]["N"]),
        cursor=Cursor(topic["S"], int(partition["N"]), int(offset["N"])),
        progress=Progress(
            refs=int(item["refs"]["N"]),
            segments=int(item["segments"]["N"]),
            bytes=int(item["bytes"]["N"]),
            failures=int(item["failures"]["N"]),
            lost=int(item["lost"]["N"]) if "lost" in item else 0,
        ),
    )
