"""The facts that a release tells of itself, and what two releases do to each other."""

import json
from dataclasses import replace

import pytest

from penstock_core.log.inline import BOUNDS_OF_PROFILES, NO_ITEMS, InlineBounds
from penstock_core.release import ReleaseFacts, conflicts, format_changes, moved_routes, own_facts, parse_facts
from penstock_core.version import VERSION

OLD = ReleaseFacts(
    release="1.0.0",
    writes={"head": (3,), "ref": (4,)},
    reads={"head": (2, 3), "ref": (4, 5)},
    routes={"GET /v1/topics": "topics", "POST /v1/produce": "produce"},
)


def test_facts_survive_their_json() -> None:
    assert parse_facts(json.loads(json.dumps(OLD.to_json()))) == OLD


@pytest.mark.parametrize(
    ("small", "versions"),
    [(NO_ITEMS, ()), (InlineBounds(swept_bytes=960), (4,)), (BOUNDS_OF_PROFILES["express3"], (4, 6))],
)
def test_refs_of_items_are_written_where_the_stage_has_such_items(
    small: InlineBounds, versions: tuple[int, ...]
) -> None:
    facts = own_facts(small)
    assert facts.writes["ref"] == tuple(sorted((8, *versions)))
    old = replace(own_facts(), release="0.1.0", reads={**facts.reads, "ref": (1, 2, 3, 4, 5, 7, 8)})
    refused = "which 0.1.0 does not read"
    assert any(refused in each for each in conflicts(old, facts)) == (6 in versions)


def test_own_facts_have_this_version_and_read_what_they_write() -> None:
    facts = own_facts()
    assert facts.release == VERSION
    assert all(set(facts.writes[kind]) <= set(facts.reads[kind]) for kind in facts.writes)
    assert facts.routes["POST /v1/produce"] == "produce"
    assert [*conflicts(facts, facts), *format_changes(facts, facts), *moved_routes(facts, facts)] == []


@pytest.mark.parametrize("told", [{}, {"release": "1", "formats": {"head": [1]}, "functions": {}}])
def test_other_json_is_refused(told: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse_facts(told)


def test_each_of_two_releases_must_read_what_the_other_writes() -> None:
    assert [*conflicts(OLD, replace(OLD, release="1.1.0", writes={"ref": (5,)}))] == []
    newer = replace(OLD, release="2.0.0", writes={"ref": (6,)}, reads={"head": (3,), "ref": (5, 6)})
    assert [*conflicts(OLD, newer)] == [
        "1.0.0 writes ref of format 4, which 2.0.0 does not read",
        "2.0.0 writes ref of format 6, which 1.0.0 does not read",
    ]


def test_changes_of_formats_and_routes_are_told() -> None:
    newer = replace(
        OLD,
        writes={"head": (4,), "lane": (1,)},
        reads={"head": (3, 4), "lane": (1,)},
        routes={"GET /v1/topics": "admin"},
    )
    assert [*format_changes(OLD, newer)] == ["head: writes 3 -> 4", "lane: new", "ref: gone"]
    assert [*moved_routes(OLD, newer)] == ["1 routes of produce go to no function", "1 routes of topics go to admin"]
