from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import ZoneName
from penstock_core.storage.zone_states_item import parse_zone_states, zone_states_item, zone_states_key
from penstock_core.zones.zone_state import ZoneState, ZoneStates, ZoneStatus
from tests.core.storage.stored_values import OFFSETS

_STATES = st.builds(
    ZoneState,
    status=st.sampled_from(ZoneStatus),
    version=st.integers(0, 2**40),
    since_ms=OFFSETS,
    reason=st.text(max_size=20),
)


@given(st.integers(0, 2**40), st.dictionaries(st.sampled_from("abc").map(ZoneName), _STATES))
def test_zone_states_survive_a_round_trip(version: int, by_zone: dict[ZoneName, ZoneState]) -> None:
    states = ZoneStates(version=version, by_zone=by_zone)
    assert parse_zone_states(zone_states_item(states)) == states


def test_zone_states_item_is_what_is_stored_today() -> None:
    state = ZoneState(status=ZoneStatus.TAKEN_OUT, version=4, since_ms=9, reason="disk work")
    assert zone_states_item(ZoneStates(version=5, by_zone={ZoneName("b"): state})) == {
        "pk": {"S": "#zones"},
        "sk": {"S": "states"},
        "version": {"N": "5"},
        "zones": {
            "M": {
                "b": {
                    "M": {
                        "status": {"S": "taken_out"},
                        "version": {"N": "4"},
                        "since_ms": {"N": "9"},
                        "reason": {"S": "disk work"},
                    }
                }
            }
        },
    }
    assert zone_states_key() == {"pk": {"S": "#zones"}, "sk": {"S": "states"}}
