"""A copy brings each record once, whatever dies when."""

from collections.abc import Mapping
from contextlib import suppress

import pytest

from penstock.errors import (
    ConflictError,
    ConnectionFailedError,
    FencedError,
    InvalidError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnavailableError,
)
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
from penstock_import.copying.starts import StartSettings
from penstock_import.source.records import PartitionBounds
from tests.importer.copies import Told, copier_of, copy, held, sent
from tests.importer.dying_transport import Death, DyingTransport
from tests.importer.memory_source import MemorySource

_CALLS_MAX = 60  # more than a copy of the source below makes


def _source() -> MemorySource:
    source = MemorySource(2)
    for number in range(7):
        source.add(number % 2, b"k%d" % (number % 3) if number % 4 else None, b"v%d" % number, gap=number % 2)
    source.add(0, b"", b"")
    source.add(1, b"gone", None)
    source.mark(0)
    return source


@pytest.fixture
def service() -> MemoryPenstock:
    service = MemoryPenstock()
    service.create_topic("orders", partitions=2)
    return service


def test_copy_keeps_partition_order_key_value_and_time(service: MemoryPenstock) -> None:
    source = _source()
    outcome = copy(source, service)
    assert held(service) == sent(source)
    assert (outcome.records, outcome.is_complete, outcome.is_drained) == (9, True, True)
    assert {each.headers for each in service.records("orders")} == {(("n", b"1"),)}


def test_copy_goes_on_behind_its_notes_when_it_runs_again(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    source.add(0, b"late", b"later")
    assert copy(source, service).records == 1
    assert held(service) == sent(source)


@pytest.mark.slow
@pytest.mark.parametrize("is_carried_out", [False, True])
def test_copy_has_each_record_once_when_its_process_dies_at_any_call(
    monkeypatch: pytest.MonkeyPatch, is_carried_out: bool
) -> None:
    monkeypatch.setattr("penstock_import.copying.copier.IMPORT_CHUNK_RECORDS", 2)
    died = 0
    for at in range(1, _CALLS_MAX):
        source, service = _source(), MemoryPenstock()
        service.create_topic("orders", partitions=2)
        dying = DyingTransport(service.transport, at, is_carried_out=is_carried_out)
        try:
            copier = copier_of(source, service, transport=dying)
            copier.run(lambda positions, ends=tuple(source.ends): tuple(positions[each] for each in (0, 1)) == ends)  # type: ignore[misc]
        except Death:
            died += 1
        else:
            break
        copy(source, service)
        assert held(service) == sent(source), f"died at call {at}"
    assert died > 10, "the copy makes more calls than this"


class _LosingTransport:
    """Loses the answer of each third call of a transaction, after the service has carried it out."""

    def __init__(self, inner: Transport) -> None:
        self.lost = 0
        self._inner = inner
        self._calls = 0

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        answer = self._inner.call(method, path, query, headers, body)
        self._calls += path == "/v1/transactions"
        if path == "/v1/transactions" and self._calls % 3 == 0:
            self.lost += 1
            raise ConnectionFailedError("the answer is lost", maybe_applied=True)
        return answer

    def close(self) -> None:
        pass


def test_copy_has_each_record_once_when_answers_are_lost(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_import.copying.copier.IMPORT_CHUNK_RECORDS", 2)
    source, losing = _source(), _LosingTransport(service.transport)
    assert copy(source, service, transport=losing).records == 9
    assert losing.lost
    assert held(service) == sent(source)


class _LearningTransport:
    """Commits, and answers that nobody knows: the producer has to learn the outcome by itself."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        answer = self._inner.call(method, path, query, headers, body)
        if path == "/v1/transactions":
            raise ConflictError(ErrorCode.CONCURRENT_UPDATE, "nobody knows", maybe_applied=True)
        return answer

    def close(self) -> None:
        pass


def test_copy_and_its_bounds_are_right_when_only_the_outcome_of_commits_is_learnt(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_import.copying.copier.IMPORT_CHUNK_RECORDS", 2)
    source = _source()
    source.groups = {"billing": {0: source.records[0][-1].offset, 1: source.records[1][1].offset}}
    outcome = copy(source, service, "billing", transport=_LearningTransport(service.transport))
    assert outcome.records == 9
    assert held(service) == sent(source)
    assert dict(outcome.groups[0].offsets) == {0: len(source.records[0]) - 1, 1: 1}


def test_copy_stops_the_earlier_process_when_another_one_begins(service: MemoryPenstock) -> None:
    source, other = _source(), _source()
    first = copier_of(source, service)
    first.prepare()
    copy(other, service)
    with pytest.raises(FencedError, match="another `penstock import` of kafka:c1/orders"):
        first.run(lambda _: False)
    first.close()
    assert held(service) == sent(source)


def test_copy_has_each_record_once_when_an_earlier_process_commits_after_the_notes_were_read(
    service: MemoryPenstock,
) -> None:
    source, other = _source(), _source()
    first, second = copier_of(source, service), copier_of(other, service)
    first.prepare()
    second.prepare()
    with pytest.raises(FencedError):
        first.step()
    second.run(lambda positions: all(positions[each] == end for each, end in enumerate(other.ends)))
    first.close()
    second.close()
    assert held(service) == sent(source)


def test_copy_places_by_key_when_partitions_are_rehashed(service: MemoryPenstock) -> None:
    source = MemorySource(5)
    for number in range(40):
        source.add(number % 5, b"key %d" % (number % 5), b"%02d" % number)
    copy(source, service, mode="rehash")
    found = service.records("orders")
    assert len(found) == 40
    for key in {each.key for each in found}:
        values = [each.value for each in found if each.key == key]
        assert values == sorted(values, key=bytes), "a key keeps its order"
        assert len({each.partition for each in found if each.key == key}) == 1


def test_copy_is_refused_when_the_topic_was_made_anew(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    service.admin().delete_topic("orders")
    service.create_topic("orders", partitions=2)
    with pytest.raises(ConflictError, match=r"delete 'orders.import'"):
        copy(source, service)


def test_copy_is_refused_when_it_began_in_another_mode(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    with pytest.raises(ConflictError, match="began with --partitions keep"):
        copy(source, service, mode="rehash")


def test_copy_is_refused_when_records_expired_before_they_were_copied(service: MemoryPenstock) -> None:
    source = _source()
    copy(source, service)
    source.starts[0] = source.ends[0] = 20
    with pytest.raises(OffsetOutOfRangeError, match="--skip-expired"):
        copy(source, service)
    source.add(0, b"new", b"new")
    assert copy(source, service, start=StartSettings(skips_expired=True)).records == 1


def test_copy_names_the_record_when_it_is_too_large(service: MemoryPenstock) -> None:
    source = _source()
    offset = source.add(0, None, bytes(2_000_000))
    source.add(0, None, b"behind it")
    with pytest.raises(RecordTooLargeError, match=rf"orders\[0\] offset {offset} .* --skip-too-large"):
        copy(source, service)
    outcome = copy(source, service, skips_too_large=True)
    assert outcome.skipped == 1
    assert held(service) == [each for each in sent(source) if len(each[3] or b"") < 1_000]


def test_copy_names_the_record_without_a_key_when_the_topic_is_compacted(service: MemoryPenstock) -> None:
    source = MemorySource(2)
    source.add(1, b"k", b"v")
    offset = source.add(1, None, b"without a key")
    service.admin().alter_topic("orders", {"cleanup_policy": "compact"})
    with pytest.raises(InvalidError, match=rf"orders\[1\] offset {offset} has no key"):
        copy(source, service)
    service.admin().alter_topic("orders", {"cleanup_policy": "delete"})
    copy(source, service)
    assert held(service) == sent(source)


def test_run_stops_after_its_chunk_when_it_is_told(service: MemoryPenstock) -> None:
    source, report = _source(), Told()
    copier = copier_of(source, service, report=report)
    looks = []

    def look(positions: Mapping[int, int]) -> bool:
        looks.append(dict(positions))
        copier.rounds.stop()
        return False

    with suppress(Death):
        copier.run(look)
    copier.close()
    assert len(looks) == 1
    assert report.firsts == [True]
    assert len(held(service)) == copier.records > 0


def test_start_that_the_user_names_is_refused_also_after_a_look_that_failed() -> None:
    service = MemoryPenstock()
    service.create_topic("orders")
    source = _Silent()
    source.add(0, None, b"first")
    copy(source, service)
    source.is_silent = True
    report = Told()
    copier = copier_of(source, service, start=StartSettings(from_beginning=True), report=report)
    with pytest.raises(ConflictError, match="go on without --from"):
        copier.run(lambda _: True)
    copier.close()
    assert len(report.errors) == 1


class _Silent(MemorySource):
    """It does not answer the next look at its bounds, if `is_silent`."""

    is_silent = False

    def bounds(self) -> Mapping[int, PartitionBounds]:
        if self.is_silent:
            self.is_silent = False
            raise UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "no answer")
        return super().bounds()
