"""This release writes what was recorded of it, attribute by attribute."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock_core.formats import BYTE_FORMATS, ITEM_FORMATS
from penstock_core.log.repair import Repair, decode_message
from penstock_core.log.segment import SEGMENT_FOOTER_BYTES
from penstock_core.records import frame
from penstock_core.version import VERSION
from tests.golden.layout import Layout, kind_of, layout_of
from tests.golden.record import FOLDER, golden, recorded, recorded_folder
from tests.golden.stage import Item, from_json

pytestmark = pytest.mark.slow

ADVICE = (
    f"what this release writes differs from tests/golden/{VERSION}. A release in use may have to read it. Follow "
    "'Change a format' in CONTRIBUTING.md; then run `python -m tests.golden.record`, and review what it changed"
)


@pytest.fixture(scope="module")
def today() -> dict[str, Any]:
    return recorded()


def items_of(stored: dict[str, Any]) -> list[Item]:
    return [from_json(item) for items in stored["tables"].values() for item in items]


def differences(before: Layout, now: Layout) -> Iterator[str]:
    for kind in sorted(before.keys() | now.keys()):
        old, new = before.get(kind, {}), now.get(kind, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"{kind}.{name}: {old.get(name, 'none')} became {new.get(name, 'none')}"


def test_items_have_the_recorded_attributes_and_types(today: dict[str, Any]) -> None:
    found = [*differences(layout_of(items_of(golden())), layout_of(items_of(today)))]
    assert not found, f"{'; '.join(found)}: {ADVICE}"


def test_every_kind_of_item_is_recorded() -> None:
    assert {kind_of(item) for item in items_of(golden())} == ITEM_FORMATS.keys(), ADVICE


def byte_versions(stored: dict[str, Any]) -> dict[str, set[int]]:
    """The versions in the bytes of refs, segments and targets."""
    items = items_of(stored)
    heads = [item for item in items if kind_of(item) == "head"]
    bodies = [base64.b64decode(entry["body"]) for entry in stored["objects"].values()]
    return {
        "ref": {element["B"][0] for head in heads for element in head["tail"]["L"]}
        | {item["refs"]["B"][0] for item in items if kind_of(item) == "page"},
        "segment": {int.from_bytes(body[-8:-6], "big") for body in bodies if len(body) > SEGMENT_FOOTER_BYTES},
        "target": {item["target"]["B"][0] for item in items if kind_of(item) == "target"},
    }


def test_bytes_have_the_declared_versions(today: dict[str, Any]) -> None:
    declared = {kind: set(BYTE_FORMATS[kind].writes) for kind in ("ref", "segment", "target")}
    assert byte_versions(today) == declared, ADVICE
    assert byte_versions(golden()) == declared, ADVICE


def test_messages_have_the_recorded_fields(today: dict[str, Any]) -> None:
    before, now = golden()["in_flight"], today["in_flight"]
    for name in ("repair", "wake_up"):
        assert json.loads(before[name]).keys() == json.loads(now[name]).keys(), ADVICE
    repair = decode_message(before["repair"])
    assert isinstance(repair, Repair)
    assert repair.refs
    header, rest = frame.decode(base64.b64decode(before["frame"]))
    assert header == frame.decode(base64.b64decode(now["frame"]))[0], ADVICE
    assert len(rest)


def test_data_folder_has_the_recorded_format() -> None:
    assert format_of(recorded_folder()) == format_of((FOLDER / VERSION / "folder.sql").read_text()), ADVICE


def format_of(sql: str) -> list[str]:
    """The lines of a dumped folder that do not depend on its content."""
    return [line for line in sql.splitlines() if line.startswith(("CREATE ", 'INSERT INTO "meta"'))]


def test_each_recorded_release_is_read_by_this_one() -> None:
    """A directory of another release stays as long as this release must read what that one wrote."""
    releases = {path.parent.name for path in FOLDER.glob("*/stored.json")}
    assert VERSION in releases, ADVICE
    for release in releases:
        assert golden(release)["release"] == release
