import json
from pathlib import Path

import pytest

from penstock import Admin
from penstock.apply.document import DocumentError, parse_json_nodes, parse_yaml_nodes, read_document, to_yaml
from penstock.apply.dump import dump
from penstock.apply.plan import plan
from penstock.apply.run import apply_changes, read_stage
from penstock.apply.stage import Noun, Ownership
from penstock.apply.stage_file import patterns_of_names, patterns_of_principals, read_stage_file
from penstock.testing import MemoryPenstock
from penstock_core.limits import APPLY_DEPTH_MAX, APPLY_FILE_BYTES_MAX, APPLY_NODES_MAX
from tests.sdk.apply.teams import ROLE

VALUE = {"a": {"b": [1, {"c": 'x, {y}: "z" \\'}], "d": None}, "e": 1.5, "f": True, "g": [], "h": {}, "i": [[], [1]]}


@pytest.mark.parametrize("indent", [None, 1])
def test_json_nodes_have_the_values_of_json(indent: int | None) -> None:
    text = json.dumps(VALUE, indent=indent)
    assert parse_json_nodes(text).plain() == VALUE
    assert parse_yaml_nodes(text).plain() == VALUE


def test_nodes_know_their_lines() -> None:
    of_json = parse_json_nodes('{"a":\n {"b": [1,\n 2]},\n\n "c": 3}').value
    assert (of_json["a"].line, of_json["a"].value["b"].value[1].line, of_json["c"].line) == (2, 3, 5)
    of_yaml = parse_yaml_nodes("a:\n  b:\n  - 1\n  - 2\n\nc: 3\n").value
    assert (of_yaml["a"].line, of_yaml["a"].value["b"].value[1].line, of_yaml["c"].line) == (2, 4, 6)


def test_yaml_has_anchors_and_merge_keys() -> None:
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: {<<: [{a: 8}, *x]}\n"
    found = parse_yaml_nodes(text).plain()
    assert (found["y"], found["z"]) == ({"a": 1, "b": 3}, {"a": 8, "b": 2})
    assert parse_yaml_nodes("").plain() == {}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"a": 1,\n "b" 2}', 2, "it is no JSON"),
        ('{"a": 1,\n "a": 2}', 2, "'a' stands twice"),
        ('{"a": NaN}', 0, "NaN is not a JSON number"),
        ('{"a": ' + "9" * 5_000 + "}", 0, "5000 digits"),
        ("[" * (APPLY_DEPTH_MAX + 2) + "]" * (APPLY_DEPTH_MAX + 2), 1, "nested deeper"),
        ("[" * 100_000, 0, "nested deeper"),
        ("[" + "1," * APPLY_NODES_MAX + "1]", 1, "more than 200,000 values"),
    ],
)
def test_json_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_json_nodes(text)
    assert message in refused.value.message
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: [1\n", 3, "it is no YAML"),
        ("a: 1\na: 2\n", 2, "'a' stands twice"),
        ("a: !!python/object:os.system {}\n", 1, "it is no YAML"),
        ("a: 1\n1: 2\n", 2, "is no text"),
        ("a: {<<: 3}\n", 1, "merges mappings only"),
        ("a: &a [*a]\n", 1, "nested deeper"),
        ("a: \x07\n", 0, "it is no YAML"),
        ("---\na: 1\n---\nb: 1\n", 3, "it is no YAML"),
        ("a: 2026-13-45\n", 1, "2026-13-45"),
        ("a: 1\nb: 2026-01-01\n", 2, "'2026-01-01' has the type timestamp: put it in quotes"),
        ("a: !!timestamp x\n", 1, "'x' has the type timestamp: put it in quotes"),
        ("a: !!binary x\n", 1, "has the type binary"),
        ("a: =\n", 1, "has the type value"),
        ("a: !!bool maybe\n", 1, "'maybe' is no bool: leave out the tag"),
        ('a: !!int ""\n', 1, "'' is no int: leave out the tag"),
        ('a: !!float ""\n', 1, "'' is no float: leave out the tag"),
        ('a: !!null "x"\n', 1, "'x' is no null: leave out the tag"),
        (
            "a: 24:00:00\n",
            1,
            "'24:00:00' is no plain decimal number: write such as 1000, a time with its unit, such as",
        ),
        ("a: 1:30.5\n", 1, "'1:30.5' is no plain decimal"),
        ("a:\n- 010\n", 2, "'010' is no plain decimal number"),
        ("a: 0x10\n", 1, "'0x10' is no plain decimal number"),
        ("a: 0b11\n", 1, "'0b11' is no plain decimal number"),
        ("a: 1_000\n", 1, "'1_000' is no plain decimal number"),
        ("a: 1_0.5\n", 1, "'1_0.5' is no plain decimal number"),
        ("a: .nan\n", 1, "'.nan' is no plain decimal number"),
        ("a: 1.0e+999\n", 1, "is no plain decimal number"),
        ("a: " + "9" * 5_000 + "\n", 1, "is no plain decimal number"),
        ("? [a]\n: b\n", 1, "the name ['a'] is no text"),
        ("[" * 3_000, 0, "nested deeper"),
    ],
)
def test_yaml_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_yaml_nodes(text)
    assert message in refused.value.message
    assert refused.value.line == line


def test_yaml_takes_plain_numbers_and_quoted_texts() -> None:
    text = "a: [0, 7, -1, +5, 1.5, '010', \"24:00:00\", !!str 010, !!int 8, yes, ~, null, ]\n"
    assert parse_yaml_nodes(text).plain() == {"a": [0, 7, -1, 5, 1.5, "010", "24:00:00", "010", 8, True, None, None]}
    assert parse_yaml_nodes(to_yaml({"a": ["010", "24:00:00", "1_000", "0x10"]})).plain()["a"][1] == "24:00:00"


def test_aliases_of_aliases_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9)]
    with pytest.raises(DocumentError, match="aliases counted each time"):
        parse_yaml_nodes("\n".join(lines))


def test_file_is_refused_when_it_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b" " * APPLY_FILE_BYTES_MAX + b"{}")
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    for name, message in (
        ("none.yaml", "it cannot be read: No such file"),
        ("large.json", "it has more than 4,194,304 bytes"),
        ("latin.yaml", "byte 0xe9 is not UTF-8"),
    ):
        with pytest.raises(DocumentError) as refused:
            read_document(tmp_path / name)
        assert message in refused.value.message
    assert refused.value.line == 2


def test_json_file_needs_no_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    file = tmp_path / "stage.json"
    file.write_text(json.dumps(VALUE))
    assert read_document(file).plain() == VALUE
    for refused in (lambda: parse_yaml_nodes("a: 1"), lambda: to_yaml({"a": 1})):
        with pytest.raises(DocumentError, match=r"pip install 'penstock\[apply\]'"):
            refused()


def test_yaml_text_has_the_document() -> None:
    assert parse_yaml_nodes(to_yaml(VALUE)).plain() == VALUE


STAGE = {
    "topics": {"a": {"partitions": 2, "retention_ms": "1d"}, "a.dead": {"partitions": 1}, "b": {"partitions": 1}},
    "groups": {"g": {"session_timeout_ms": "30s"}},
    "share_groups": {
        "s": {
            "topics": ["a"],
            "dead_letter_topic": "a.dead",
            "ordering": "key",
            "start": "latest",
            "filter": {"x": ["1"]},
        }
    },
    "subscriptions": {
        "p": {"topics": ["a"], "target": {"topic": "b"}, "dead_letter_topic": "a.dead", "retry": {"age_ms_max": "1h"}}
    },
    "schedules": {
        "ac": {"cron": "0 9 * * *", "topic": "a", "time_zone": "Europe/Berlin", "record": "go"},
        "ad": {"cron": "1 9 * * *", "topic": "a", "enabled": False, "record": {"key": "k", "value": None}},
    },
    "acls": [
        {"principal": f"{ROLE}/a", "operations": ["read", "write"], "resources": ["topic:a", "topic:b"]},
        {"principal": f"{ROLE}/b", "permission": "deny", "operations": ["all"], "resources": ["topic:a"]},
    ],
    "quotas": [{"principal": f"{ROLE}/a", "topics_max": 3}, {"topic": "a*", "fetch_bytes_per_s": 1, "shared": True}],
}


def test_dump_is_the_file_that_made_the_stage(service: MemoryPenstock, tmp_path: Path) -> None:
    admin = Admin(transport=service.transport)
    file = tmp_path / "stage.json"
    file.write_text(json.dumps(STAGE))
    wanted = read_stage_file(file)
    outcome = apply_changes(admin, plan(wanted, read_stage(admin, [*Noun], has_rules=True), prune=False).changes)
    assert outcome.failed == ()
    present = read_stage(admin, [*Noun], has_rules=True)
    document = dump(present, None)
    assert document == STAGE
    assert plan(wanted, present, prune=False).changes == ()
    owned = Ownership(names=patterns_of_names(["a*"]), principals=patterns_of_principals(["*"]))
    part = dump(present, owned)
    assert part["owns"] == {"names": ["a*"], "principals": ["*"]}
    assert [*part["topics"]] == ["a", "a.dead"]
    assert [part[section] for section in ("groups", "share_groups", "subscriptions")] == [{}, {}, {}]
    assert [each["resources"] for each in part["acls"]] == [["topic:a"], ["topic:a"]]
    assert part["quotas"] == STAGE["quotas"]
