"""The outputs of a stack: that of app.py, and one of a user's own."""

import pytest

from penstock_core.stack_outputs import StackPlace, outputs_of, parse_stack_place, storage_variables

DESCRIPTION = {
    "Outputs": [
        {"OutputKey": "QueueApiUrl", "OutputValue": "https://q"},
        {"OutputKey": "OtherApiUrl", "OutputValue": "https://o"},
        {"OutputKey": "ApiUrl", "OutputValue": "https://own"},
    ]
}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Penstock", StackPlace("Penstock", "")),
        ("Shop/Queue", StackPlace("Shop", "Queue")),
        ("Shop/Inner/My-Queue", StackPlace("Shop", "InnerMyQueue")),
    ],
)
def test_place_names_a_stack_and_a_construct(text: str, place: StackPlace) -> None:
    assert parse_stack_place(text) == place


def test_outputs_are_those_of_the_construct() -> None:
    assert outputs_of(DESCRIPTION, StackPlace("Shop", "Queue")) == {"ApiUrl": "https://q"}
    assert outputs_of(DESCRIPTION, StackPlace("Shop", ""))["ApiUrl"] == "https://own"
    assert outputs_of({}, StackPlace("Shop", "Queue")) == {}


def test_variables_are_those_of_the_outputs_that_a_stage_has() -> None:
    outputs = {"LogTable": "log", "ZoneBuckets": "a=zone-a", "InlineBytesMax": "960", "ApiUrl": "https://api"}
    wanted = {"PENSTOCK_LOG_TABLE": "log", "PENSTOCK_ZONES": "a=zone-a", "PENSTOCK_INLINE_BYTES_MAX": "960"}
    assert storage_variables(outputs) == wanted
