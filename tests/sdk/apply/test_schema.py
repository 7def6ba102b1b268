"""The schema and the reader know the same fields, and the published page is the one that the code makes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.apply.schema import stage_schema
from penstock.apply.stage import SECTIONS
from penstock.apply.stage_file import RETRY, read_stage_file
from penstock.model.fields import parse_size
from penstock.model.times import parse_duration_ms
from penstock_core.errors import PenstockError

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "stage.schema.json"
SCHEMA = stage_schema()


def test_page_is_what_the_code_makes() -> None:
    assert json.loads(PAGE.read_text()) == SCHEMA, (
        "run: python -m penstock.apply.schema > docs/reference/stage.schema.json"
    )


def test_schema_has_each_section() -> None:
    assert {*SCHEMA["properties"]} == {*SECTIONS}
    retry = SCHEMA["properties"]["subscriptions"]["additionalProperties"]["properties"]["retry"]
    assert {*retry["properties"]} == {*RETRY}


@pytest.mark.parametrize("section", ["topics", "groups", "share_groups", "subscriptions"])
def test_schema_has_the_settings_that_the_reader_knows(section: str, tmp_path: Path) -> None:
    file = tmp_path / "stage.json"
    file.write_text(json.dumps({section: {"x": {"no_such": 1, "topics": ["t"], "target": {"topic": "u"}}}}))
    with pytest.raises(PenstockError) as refused:
        read_stage_file(file)
    told = next(each for each in refused.value.facts["mistakes"] if "no_such" in each)
    known = set(re.findall(r"\w+", told.split("known are ")[1]))
    properties: dict[str, Any] = SCHEMA["properties"][section]["additionalProperties"]["properties"]
    assert {*properties} - {"topics", "target", "retry", "partitions"} == known - {
        *(RETRY if section == "subscriptions" else ())
    }


def test_schema_takes_the_texts_with_units_that_the_reader_takes() -> None:
    topic = SCHEMA["properties"]["topics"]["additionalProperties"]["properties"]
    [_, duration, forever, _] = topic["retention_ms"]["anyOf"]
    [_, size, null] = topic["max_batch_bytes"]["anyOf"]
    assert null == {"type": "null"}
    assert forever == {"const": -1}
    assert all(re.search(duration["pattern"], text) for text in ("14d", "1.5s", "250ms", "forever"))
    assert not any(re.search(duration["pattern"], text) for text in ("14", "d", "14 d", "1w"))
    assert all(re.search(size["pattern"], text) for text in ("512KiB", "10MB", "1mb", "100", "10GB"))
    assert not re.search(size["pattern"], "10PB")


@pytest.mark.parametrize("number", ["10", "1.5", "", "-1", "1234567890123"])
@pytest.mark.parametrize(
    "unit", ["", "b", "k", "K", "m", "kb", "Kb", "KiB", "kIb", "mib", "i", "Mi", "gb", "TiB", "pb", " KB", "ms"]
)
def test_schema_and_reader_agree_on_each_text(number: str, unit: str, tmp_path: Path) -> None:
    topic = SCHEMA["properties"]["topics"]["additionalProperties"]["properties"]
    for name, is_read in (("max_batch_bytes", _reads(parse_size)), ("retention_ms", _reads(parse_duration_ms))):
        pattern = topic[name]["anyOf"][1]["pattern"]
        assert bool(re.search(pattern, number + unit)) is is_read(number + unit)


def _reads(parse: Callable[[str], int]) -> Callable[[str], bool]:
    def is_read(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return is_read


def test_schema_and_reader_take_null_for_each_setting(tmp_path: Path) -> None:
    file = tmp_path / "stage.json"
    for section in ("topics", "groups", "share_groups", "subscriptions"):
        properties = SCHEMA["properties"][section]["additionalProperties"]["properties"]
        settings = dict.fromkeys(properties.keys() - {"topics", "target", "retry", "partitions"})
        needed = {
            name: ["t"] if name == "topics" else {"topic": "u"} for name in ("topics", "target") if name in properties
        }
        file.write_text(json.dumps({section: {"x": {**settings, **needed}}}))
        assert read_stage_file(file).stage.things
        for name in settings:
            assert _takes_null(properties[name]), name
    file.write_text(json.dumps({"subscriptions": {"x": {"retry": dict.fromkeys(RETRY), **needed}}}))
    assert read_stage_file(file).stage.things


def _takes_null(schema: Any) -> bool:
    return None in schema.get("enum", ()) or "null" in schema.get("type", ()) or {"type": "null"} in schema["anyOf"]
