"""`penstock apply`, against the service in memory."""

import json
from pathlib import Path

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json

TEXT = """
owns: {names: [shop.*]}
topics:
  shop.orders: {partitions: 2}
  shop.old:
share_groups:
  shop.pack: {topics: [shop.orders]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT)
    return path


def test_apply_shows_the_changes_and_makes_them(service: MemoryPenstock, file: Path) -> None:
    dry = run(service.transport, "apply", "-f", str(file), "--dry-run")
    assert (dry.exit_code, dry.stdout.splitlines()[0], dry.stdout.splitlines()[-1]) == (
        0,
        "+ topic shop.orders: partitions=2",
        "3 to create; 0 as the file says",
    )
    assert run_json(service.transport, "topics", "list") == []
    assert run(service.transport, "apply", "-f", str(file)).stdout.endswith("3 created; 0 as the file says\n")
    again = run_json(service.transport, "apply", "-f", str(file))
    assert again == {"changes": [], "unchanged": 3, "made": 0, "errors": []}


def test_prune_asks_before_it_deletes(service: MemoryPenstock, file: Path) -> None:
    run(service.transport, "apply", "-f", str(file))
    file.write_text(TEXT.replace("  shop.old:\n", ""))
    asked = run(service.transport, "apply", "-f", str(file), "--prune", stdin=b"n\n")
    assert "- topic shop.old  (and all its records)" in asked.stdout
    assert "Make these 1 changes, for ever?" in asked.stderr
    assert asked.exit_code == 1
    assert len(run_json(service.transport, "topics", "list")) == 2
    done = run_json(service.transport, "apply", "-f", str(file), "--prune", "--yes")
    assert [(each["action"], each["name"]) for each in done["changes"]] == [("delete", "shop.old")]
    assert len(run_json(service.transport, "topics", "list")) == 1


def test_prune_needs_what_the_file_owns(service: MemoryPenstock, file: Path) -> None:
    file.write_text("topics: {}")
    result = run(service.transport, "apply", "-f", str(file), "--prune")
    assert (result.exit_code, "add owns, such as {names: [shop.*]}" in result.stderr) == (2, True)


def test_mistakes_are_told_one_a_line(service: MemoryPenstock, file: Path) -> None:
    file.write_text("topics:\n  a: {partitions: 0}\n  b: {x: 1}\n")
    result = run(service.transport, "apply", "-f", str(file))
    assert result.exit_code == 1
    assert [line.split(" topics.")[0] for line in result.stderr.splitlines()] == [
        f"error: {file}:2:",
        f"error: {file}:3:",
    ]
    as_json = run(service.transport, "apply", "-f", str(file), "--json")
    assert len(json.loads(as_json.stderr)["error"]["mistakes"]) == 2
    file.write_text("share_groups:\n  s: {topics: [none]}\n")
    unknown = run(service.transport, "apply", "-f", str(file)).stderr
    assert unknown == (
        f"error: {file}:2: share_groups.s.topics: the topic 'none' is neither in the file nor in the stage\n"
    )


def test_failed_change_is_told_with_its_name(service: MemoryPenstock, file: Path) -> None:
    file.write_text("topics:\n  a: {min_insync_zones: 7}\n  b: {}\n")
    result = run(service.transport, "apply", "-f", str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: topic a: INVALID_CONFIG: min_insync_zones=7")
    assert result.stdout.endswith("1 of 2 changes were made: run it again to go on\n")


def test_file_of_the_stage_changes_nothing(service: MemoryPenstock, file: Path) -> None:
    run(service.transport, "apply", "-f", str(file))
    for option, name in (("--json", "out.json"), ("--from-stage", "out.yaml")):
        text = run(service.transport, "apply", "--from-stage", option, "--owns", "shop.*").stdout
        out = file.parent / name
        out.write_text(text)
        assert run_json(service.transport, "apply", "-f", str(out), "--prune")["changes"] == []
    assert run_json(service.transport, "apply", "--from-stage", "--owns", "till.*")["topics"] == {}


def test_schema_is_printed(service: MemoryPenstock) -> None:
    assert json.loads(run(service.transport, "apply", "--schema").stdout)["properties"]["topics"]


@pytest.mark.parametrize(
    "words", [(), ("--schema", "--from-stage"), ("--schema", "--owns", "a"), ("--schema", "--prune")]
)
def test_options_that_do_not_fit_are_refused(service: MemoryPenstock, words: tuple[str, ...]) -> None:
    assert run(service.transport, "apply", *words).exit_code == 2
