import pytest

from penstock.errors import InvalidError, NotFoundError
from penstock.testing import MemoryPenstock
from penstock_import.copying.placement import placement_for
from penstock_import.copying.target_topic import find_or_create_topic, find_topic, settings_from
from tests.importer.memory_source import MemorySource


def test_settings_are_brought_into_our_bounds() -> None:
    kafka = {
        "retention.ms": "1000",
        "retention.bytes": "-1",
        "max.message.bytes": "99999999",
        "cleanup.policy": "delete, compact",
        "flush.ms": "1",
    }
    found = settings_from(kafka)
    assert found["retention_ms"] == 60_000
    assert found["retention_bytes"] == -1
    assert found["max_batch_bytes"] < 4 * 2**20
    assert found["cleanup_policy"] == "compact,delete"
    assert "flush.ms" not in found


def test_topic_is_created_as_the_source_is() -> None:
    service, source = MemoryPenstock(), MemorySource(4)
    source.settings = {"cleanup.policy": "compact"}
    created = find_or_create_topic(service.admin(), "orders", source.describe(), source)
    assert (created.partitions, created.config["cleanup_policy"]) == (4, "compact")
    assert find_or_create_topic(service.admin(), "orders", source.describe(), source) == created


def test_missing_topic_names_the_ways_to_create_it() -> None:
    with pytest.raises(NotFoundError, match="add --create, or run `penstock topics create orders --partitions 4`"):
        find_topic(MemoryPenstock().admin(), "orders", MemorySource(4).describe())


def test_other_number_of_partitions_names_the_ways_out() -> None:
    topic = MemoryPenstock().create_topic("orders", partitions=3)
    with pytest.raises(InvalidError, match=r"has 4 partitions, .* 3 from 0 on: .* --partitions rehash"):
        placement_for("keep", MemorySource(4).describe(), topic)
    assert placement_for("rehash", MemorySource(4).describe(), topic).count == 3
