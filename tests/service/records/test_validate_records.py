"""The topic setting `validate_records`: undecodable batches are refused at produce, alone, in every way to produce."""

import json
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import with_records
from penstock_core.records.record_batch import parse_header
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.topics.alter_topic import alter_topic
from tests.handlers.service import Service
from tests.handlers.test_transactions import begin, transact
from tests.support.poison import bomb, undecodable_batch
from tests.support.push_records import StoredRecord
from tests.support.service import batch, entry, new_topic, read_all


def test_an_undecodable_batch_is_refused_and_its_neighbours_are_appended(instance: Instance) -> None:
    new_topic(instance, "strict", 2, validate_records=True)
    new_topic(instance, "open")

    results = produce(
        instance,
        [
            entry("strict", 0, batch("a"), undecodable_batch(5)),
            entry("strict", 1, batch("b")),
            entry("open", 0, undecodable_batch(5)),
        ],
        Acks.QUORUM,
    )

    error = results[0]
    assert isinstance(error, PenstockError)
    assert (error.code, error.facts) == (ErrorCode.CORRUPT_BATCH, {"batch": 1})
    assert "build it again" in error.message
    assert [isinstance(each, PenstockError) for each in results] == [True, False, False]
    assert read_all(instance, "strict", 1) == [(0, "b")]


def test_record_before_1970_is_refused_wherever_it_stands(instance: Instance) -> None:
    new_topic(instance, "strict", validate_records=True)
    [error] = produce(
        instance,
        [entry("strict", 0, with_records(parse_header(batch("a", "b")), [StoredRecord(0, 5), StoredRecord(1, -5)]))],
        Acks.QUORUM,
    )
    assert isinstance(error, PenstockError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_record_without_a_key_is_refused_where_a_compacted_topic_is_validated(instance: Instance) -> None:
    new_topic(instance, "strict", cleanup_policy="compact", validate_records=True)
    new_topic(instance, "compacted", cleanup_policy="compact")
    new_topic(instance, "plain", validate_records=True)
    results = produce(instance, [entry(name, 0, batch("a")) for name in ("strict", "compacted", "plain")], Acks.QUORUM)
    assert [each.code if isinstance(each, PenstockError) else None for each in results] == [
        ErrorCode.INVALID_RECORD,
        None,
        None,
    ]


def test_one_request_decodes_so_many_bytes_over_all_its_partitions(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_service.records.produce.VALIDATED_BYTES_MAX", 1_000)
    new_topic(instance, "strict", 3, validate_records=True)

    results = produce(instance, [entry("strict", number, bomb(600)) for number in range(3)], Acks.QUORUM)

    codes = [each.code if isinstance(each, PenstockError) else None for each in results]
    assert codes == [None, None, ErrorCode.REQUEST_TOO_LARGE]


def test_the_setting_takes_effect_and_ends_as_any_setting(instance: Instance) -> None:
    new_topic(instance, "orders")
    for is_validated in (True, False):
        alter_topic(instance, "orders", None, {"validate_records": is_validated})
        instance.topic_cache.forget("orders")
        [result] = produce(instance, [entry("orders", 0, undecodable_batch(5))], Acks.QUORUM)
        assert isinstance(result, PenstockError) is is_validated
    wrongs: tuple[Any, ...] = (1, "true", [])
    for wrong in wrongs:
        with pytest.raises(PenstockError, match=r"validate_records=.*must be true or false"):
            alter_topic(instance, "orders", None, {"validate_records": wrong})


def test_batches_that_the_service_encodes_itself_are_not_decoded(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(instance, "strict", validate_records=True)
    monkeypatch.setattr("penstock_core.records.record_check.decode", lambda *_: pytest.fail("decoded"))
    own = ProduceEntry(topic="strict", partition=0, data=batch("a"), is_own_encoding=True)
    [result] = produce(instance, [own], Acks.QUORUM)
    assert not isinstance(result, PenstockError)


def test_a_transaction_s_stage_and_commit_are_refused_too() -> None:
    service = Service()
    service.create("strict", validate_records=True)
    begun = begin(service)
    for extra in ({"stage": 0}, {}):
        fields = {"epoch": begun["epoch"], "transaction": begun["transaction"], **extra}
        answer = transact(service, ("strict", 0, undecodable_batch(5)), **fields)
        assert (answer.status, answer.error["code"]) == (400, "CORRUPT_BATCH")
        assert answer.error["batch"] == 0


def test_topics_show_the_setting_in_the_json_api() -> None:
    service = Service()
    service.create("strict", validate_records=True)
    assert service.call("GET", "/v1/topics/strict").json["config"]["validate_records"] is True
    records = {"records": [{"value": "v"}]}
    assert json.loads(service.call("POST", "/v1/topics/strict/records", records).body)["offsets"][0]["offset"] == 0
