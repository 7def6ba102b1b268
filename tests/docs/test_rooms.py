"""CONTRIBUTING shows the rooms that there are: each folder of core and service is in its table, and no other."""

import re

import pytest

from localstack.places import CHECKOUT

TEXT = (CHECKOUT / "CONTRIBUTING.md").read_text()
LAYERS = {"core": "functions/penstock_core", "service": "functions/penstock_service"}
_TABLE = TEXT.partition("| room | layers | holds |")[2].partition("\n\n")[0]
_ROWS = [[cell.strip() for cell in line.split("|")[1:3]] for line in _TABLE.splitlines()[2:]]


def _told(layer: str) -> list[str]:
    """The rooms of the layer. Rooms of one row share its layers, or have each its own after a semicolon."""
    found = []
    for names, layers in _ROWS:
        rooms = names.split(", ")
        each = layers.split("; ") if ";" in layers else [layers] * len(rooms)
        found += [room for room, of in zip(rooms, each, strict=True) if layer in of.split(", ")]
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_table_of_rooms_has_each_folder_of_the_layer_once(layer: str) -> None:
    folders = {path.parent.name for path in (CHECKOUT / LAYERS[layer]).glob("*/__init__.py")}
    assert sorted(_told(layer)) == sorted(folders)


def test_layers_lie_in_the_folders_that_the_table_names() -> None:
    table = TEXT.partition("| layer | folder |")[2].partition("\n\n")[0]
    assert len(named := re.findall(r"`([\w/]+)` \|", table)) > 6
    assert [folder for folder in named if not (CHECKOUT / folder).is_dir()] == []
    assert {f"functions/{path.name}" for path in (CHECKOUT / "functions").glob("penstock_*")} <= set(named)
    assert {f"sdk/{path.parent.name}" for path in (CHECKOUT / "sdk").glob("*/__init__.py")} <= set(named)


def test_ten_questions_have_a_file_each() -> None:
    table = TEXT.partition("| you ask | read |")[2].partition("\n\n")[0]
    answers = [re.findall(r"`([\w/]+\.py)`", row) for row in table.splitlines()[2:]]
    assert len(answers) == 10
    assert all(answers)
    assert [path for each in answers for path in each if not (CHECKOUT / path).is_file()] == []
