"""Replaying into a topic whose partitions change: each record arrives once, and a request keeps its digest."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_service.topics.alter_topic import alter_topic
from penstock_spark.replay.replay_source import (
    Selection,
)
from penstock_spark.replay.replaying import (
    ReplayRequest,
    begin_replay,
    default_id,
    digest_of,
    digest_of_older_releases,
)
from tests.glue_jobs.archived_topic import ArchivedTopic
from tests.glue_jobs.replay.replays import ALL, NOW_MS, content, expected, replay, rows_in
from tests.support.service import (
    Intercepted,
    Killed,
    another_instance,
    head_of,
    new_topic,
)

pytestmark = pytest.mark.usefixtures("small_requests")


@pytest.mark.parametrize("ordering", ["none", "wait"])
def test_records_go_by_key_to_the_partitions_that_take_records_when_others_drain(
    parquet: ArchivedTopic, ordering: str
) -> None:
    new_topic(parquet.instance, "copy", partitions=3, ordering_on_change=ordering)
    alter_topic(parquet.instance, "copy", 2, {})
    first = 3 if ordering == "wait" else 0

    assert replay(parquet, by_key=True).appended == len(parquet.model)
    assert replay(parquet, by_key=True, replay_id="first").repeated == len(parquet.model)

    found = [head_of(parquet.instance, "copy", each).next_offset for each in range(3 + 2 * (ordering == "wait"))]
    assert sum(found[first : first + 2]) == sum(found) == len(parquet.model)


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("dies", [True, False])
def test_each_record_arrives_once_and_in_order_when_generations_open_meanwhile(
    parquet: ArchivedTopic, by_key: bool, dies: bool
) -> None:
    """The same id stays right, whether the run goes on or dies at the change and is made again."""
    new_topic(parquet.instance, "copy", partitions=2, ordering_on_change="wait")
    appends = 0

    def changes_it(original: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal appends
        appends += 1
        if appends in (3, 8):
            alter_topic(another_instance(parquet.instance), "copy", {3: 3, 8: 2}[appends], {})
        result = original(*arguments)
        if dies and appends in (5, 9):
            raise Killed
        return result

    log = Intercepted(parquet.instance.stores.log, append_in_sequence=changes_it)
    total = None
    for _ in range(4):
        with suppress(Killed):
            total = replay(parquet, another_instance(parquet.instance, log=log), by_key=by_key)
            break
    assert total is not None
    assert parquet.instance.topic_cache.read_through("copy").generations == (0, 2, 5)
    assert replay(parquet, by_key=by_key).appended == 0
    found = [row for each in range(7) for row in rows_in(parquet.instance, "copy", each)]
    assert sorted(map(repr, found)) == sorted(map(repr, content(parquet.expected())))
    for partition in (0, 1):  # a key of one source partition kept its order
        for key in {row[0] for row in expected(parquet, partition)}:
            sent = [row for row in expected(parquet, partition) if row[0] == key]
            if key is not None or not by_key:
                assert [row for row in found if row in sent] == sent


def test_replay_is_refused_when_draining_partitions_would_mix_its_numbers(parquet: ArchivedTopic) -> None:
    new_topic(parquet.instance, "copy", partitions=2)
    replay(parquet, selection=Selection(partitions=(0,)))
    alter_topic(parquet.instance, "copy", 1, {})
    with pytest.raises(PenstockError, match="had 2 writable partitions from 0 on when replay 'first' began"):
        replay(parquet, selection=Selection(partitions=(0,)))


def test_digest_of_a_request_does_not_depend_on_the_targets_partitions(parquet: ArchivedTopic) -> None:
    request = ReplayRequest(table="t", topic="o", topic_id="i", partitions=2, by_key=True, selection=ALL)
    assert digest_of(replace(request, first=2, partitions=5)) == digest_of(request)
    assert digest_of(replace(request, by_key=False)) != digest_of(request)
    assert digest_of_older_releases(request) == "f5fe237cf9b72679"
    assert digest_of_older_releases(replace(request, first=2)) != digest_of_older_releases(request)


def test_replay_that_an_older_release_began_goes_on_under_its_id(parquet: ArchivedTopic) -> None:
    request = ReplayRequest(table="t", topic="o", topic_id="i", partitions=2, by_key=True, selection=ALL)
    assert default_id(parquet.lake, request) == digest_of(request)
    older = digest_of_older_releases(request)
    note = {"request_digest": older, "commit": 1, "snapshot_id": None, "started_ms": NOW_MS}
    parquet.lake.put(f"t/_penstock/replays/{older}.json", json.dumps(note).encode())
    assert default_id(parquet.lake, request) == older
    assert begin_replay(parquet.lake, older, request, 2, None, NOW_MS).commit == 1
