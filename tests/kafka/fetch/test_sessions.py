from types import SimpleNamespace

import pytest

from penstock_core.limits import KAFKA_SESSIONS_MAX
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.fetch.sessions import PartitionName, Sessions, Wanted


def _request(session: tuple[int, int], wanted: dict[int, int], forgotten: tuple[int, ...] = ()) -> SimpleNamespace:
    partitions = [
        SimpleNamespace(partition=number, fetch_offset=offset, partition_max_bytes=10)
        for number, offset in wanted.items()
    ]
    return SimpleNamespace(
        session_id=session[0],
        session_epoch=session[1],
        topics=[SimpleNamespace(topic="t", partitions=partitions)],
        forgotten_topics_data=[SimpleNamespace(topic="t", partitions=forgotten)],
    )


@pytest.fixture
def sessions() -> Sessions:
    numbers = iter(range(10**6))
    return Sessions(lambda _: next(numbers))


def test_session_takes_changes_and_forgets(sessions: Sessions) -> None:
    session = sessions.of(_request((0, 0), {0: 5, 1: 6}))
    assert (session.session_id, session.epoch) == (1, 1)
    session = sessions.of(_request((1, 1), {1: 7, 2: 8}, forgotten=(0,)))
    assert session.wanted == {PartitionName("t", 1): Wanted(7, 10), PartitionName("t", 2): Wanted(8, 10)}
    assert session.epoch == 2


def test_partitions_with_records_are_read_last(sessions: Sessions) -> None:
    session = sessions.of(_request((0, 0), {0: 0, 1: 0, 2: 0}))
    session.read([PartitionName("t", 0), PartitionName("t", 9)])
    assert [name.partition for name in session.wanted] == [1, 2, 0]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ((1, 2), KafkaError.invalid_fetch_session_epoch),
        ((9, 1), KafkaError.fetch_session_id_not_found),
    ],
)
def test_client_begins_anew_when_its_session_is_another(
    sessions: Sessions, asked: tuple[int, int], code: KafkaError
) -> None:
    sessions.of(_request((0, 0), {0: 0}))
    with pytest.raises(RequestRefused) as refused:
        sessions.of(_request(asked, {}))
    assert refused.value.code is code


def test_session_ends_when_the_client_closes_it(sessions: Sessions) -> None:
    sessions.of(_request((0, 0), {0: 0}))
    assert not sessions.of(_request((1, -1), {0: 0})).is_kept
    with pytest.raises(RequestRefused):
        sessions.of(_request((1, 1), {}))


def test_oldest_sessions_end_when_all_of_them_have_too_many_partitions(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_kafka.fetch.sessions.KAFKA_SESSIONS_PARTITIONS_MAX", 5)
    for _ in range(2):
        sessions.of(_request((0, 0), {0: 0, 1: 0}))
    sessions.of(_request((1, 1), {2: 0}))
    sessions.of(_request((0, 0), {0: 0, 1: 0}))  # ends the second: the first was used after it
    sessions.of(_request((1, 2), {}, forgotten=(0, 1)))
    sessions.of(_request((3, 1), {2: 0}))
    with pytest.raises(RequestRefused):
        sessions.of(_request((2, 1), {}))


def test_oldest_session_ends_when_there_are_too_many(sessions: Sessions) -> None:
    for _ in range(KAFKA_SESSIONS_MAX + 1):
        sessions.of(_request((0, 0), {0: 0}))
    with pytest.raises(RequestRefused):
        sessions.of(_request((1, 1), {}))
    assert sessions.of(_request((2, 1), {})).session_id == 2
