"""ShareFetch in front of the service's own code."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock_core.records import frame
from penstock_kafka.dispatch.api import ApiKey, Uuid
from tests.kafka.groups.desk import run
from tests.kafka.share.desk import ACCEPT, REJECT, RELEASE, RENEW, ShareDesk, member_of, send
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer


async def _member(service: MemoryPenstock, desk: ShareDesk, name: str = "m1") -> Any:
    member = member_of(desk, service, name)
    joined = await member.join()
    assert joined["error_code"].name == "none", joined
    return member


def test_records_come_with_their_offsets_and_counts_and_are_finished_by_the_next_fetch(service: MemoryPenstock) -> None:
    send(service, "a", "b", "c")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert await member.fetch() == [(0, 0, "a", 1), (0, 1, "b", 1), (0, 2, "c", 1)]
        assert member.answer["acquisition_lock_timeout"] == 30_000
        assert await member.fetch({0: [(0, 2, [ACCEPT])]}) == []
        assert member.verdicts() == {0: 0}

    run(work())
    [first, *_] = service.admin().describe_share_group("workers").partitions
    assert (first.start_offset, first.lag) == (3, 0)


def test_fetch_whose_answer_was_lost_asks_again_for_the_same_records(service: MemoryPenstock) -> None:
    faulty = FaultyTransport(service.transport)
    path = "/v1/share-groups/workers/acquire"
    faulty.faults[path] = [lost_answer]
    send(service, "a")

    async def work() -> None:
        member = await _member(service, ShareDesk(service, faulty))
        assert await member.fetch() == [(0, 0, "a", 1)]

    run(work())
    first, again = (json.loads(body) for _, called, body in faulty.calls if called == path)
    assert again == {**first, "repeat": True}


def test_two_members_never_get_the_same_record_and_see_each_others_bytes_only(service: MemoryPenstock) -> None:
    with service.producer() as producer:
        for number in range(10):
            producer.send("orders", value=str(number).encode(), partition=0)

    async def work() -> None:
        desk = ShareDesk(service)
        one, two = await _member(service, desk), await _member(service, desk, "m2")
        first = await one.fetch(max_records=4)
        second = await two.fetch(max_records=4)
        assert [each.offset for each in first] == [0, 1, 2, 3]
        assert [each.offset for each in second] == [4, 5, 6, 7]

    run(work())


def test_types_for_each_offset_accept_release_and_reject(service: MemoryPenstock) -> None:
    service.create_topic("dead")
    service.create_share_group("workers", "orders", {"dead_letter_topic": "dead", "retry_backoff_ms_min": 1})
    send(service, "a", "b", "c", "d")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert len(await member.fetch()) == 4
        found = await member.fetch({0: [(0, 2, [ACCEPT, RELEASE, REJECT]), (3, 3, [ACCEPT])]})
        assert member.verdicts() == {0: 0}
        while not found:
            found = await member.fetch()
        assert found == [(0, 1, "b", 2)]

    run(work())
    assert [each.value for each in service.records("dead")] == [b"c"]


def test_record_that_the_member_does_not_hold_refuses_all_of_its_partition(service: MemoryPenstock) -> None:
    send(service, "a", "b")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert len(await member.fetch()) == 2
        await member.fetch({0: [(0, 2, [ACCEPT])], 1: [(0, 0, [ACCEPT])]})
        assert member.verdicts() == {0: 121, 1: 121}
        await member.fetch({0: [(0, 1, [ACCEPT])]})
        assert member.verdicts() == {0: 0}

    run(work())


@pytest.mark.parametrize(
    "batches",
    [
        [(2, 1, [ACCEPT])],
        [(0, 1, [ACCEPT]), (1, 1, [ACCEPT])],
        [(0, 1, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
    ],
)
def test_malformed_ranges_are_invalid_requests_and_change_nothing(service: MemoryPenstock, batches: Any) -> None:
    send(service, "a", "b")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert len(await member.fetch()) == 2
        await member.fetch({0: batches})
        assert member.verdicts() == {0: 42}
        await member.fetch({0: [(0, 1, [ACCEPT])]})
        assert member.verdicts() == {0: 0}

    run(work())


def test_renewal_fetches_nothing_and_the_records_stay_with_the_member(service: MemoryPenstock) -> None:
    send(service, "a")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert len(await member.fetch()) == 1
        send(service, "b")
        assert await member.fetch({0: [(0, 0, [RENEW])]}, is_renew_ack=True) == []
        assert member.verdicts() == {0: 0}
        assert await member.fetch({0: [(0, 0, [ACCEPT])]}) == [(0, 1, "b", 1)]
        assert member.verdicts()[0] == 0

    run(work())


def test_fetch_of_no_bytes_gets_none_and_its_acknowledgements_count(service: MemoryPenstock) -> None:
    send(service, "a")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert await member.fetch(max_bytes=0) == []
        assert await member.fetch() == [(0, 0, "a", 1)]
        send(service, "b")
        assert await member.fetch({0: [(0, 0, [ACCEPT])]}, max_bytes=0) == []
        assert member.verdicts() == {0: 0}
        assert await member.fetch() == [(0, 1, "b", 1)]

    run(work())


def test_session_ends_with_epoch_minus_one_and_gives_unacknowledged_records_back_uncounted(
    service: MemoryPenstock,
) -> None:
    send(service, "a", "b")

    async def work() -> None:
        desk = ShareDesk(service)
        one, two = await _member(service, desk), await _member(service, desk, "m2")
        assert len(await one.fetch()) == 2
        one.epoch = -1
        assert await one.fetch({0: [(0, 0, [ACCEPT])]}) == []
        assert one.verdicts() == {0: 0}
        assert await two.fetch() == [(0, 1, "b", 1)]
        one.epoch = 2
        await one.fetch()
        assert one.answer["error_code"].name == "share_session_not_found"

    run(work())


def test_epochs_must_follow_each_other(service: MemoryPenstock) -> None:
    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        member.epoch = 1
        await member.fetch()
        assert member.answer["error_code"].name == "share_session_not_found"
        member.epoch = 0
        await member.fetch({0: [(0, 0, [ACCEPT])]})
        assert member.answer["error_code"].name == "invalid_request"
        await member.fetch()
        await member.fetch()
        member.epoch = 1
        await member.fetch()
        assert member.answer["error_code"].name == "invalid_share_session_epoch"

    run(work())


def test_locks_outlive_the_session_of_a_client_that_begins_another_one(service: MemoryPenstock) -> None:
    send(service, "a")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert len(await member.fetch()) == 1
        member.epoch = 0  # it has lost an answer
        assert await member.fetch() == []
        await member.fetch({0: [(0, 0, [ACCEPT])]})
        assert member.verdicts() == {0: 0}

    run(work())


def test_other_gateway_asks_for_a_new_session_and_the_locks_run_out(service: MemoryPenstock) -> None:
    send(service, "a")

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        assert len(await member.fetch()) == 1
        member.desk = ShareDesk(service)
        await member.fetch({0: [(0, 0, [ACCEPT])]})
        assert member.answer["error_code"].name == "share_session_not_found"
        member.epoch = 0
        assert await member.fetch() == []  # still locked, for thirty seconds
        await member.fetch({0: [(0, 0, [ACCEPT])]})
        assert member.verdicts() == {0: 121}

    run(work())


def test_records_for_a_client_that_has_gone_go_back_uncounted(service: MemoryPenstock) -> None:
    send(service, "a")

    async def work() -> None:
        desk, other = ShareDesk(service), ShareDesk(service)
        gone, next_one = await _member(service, desk), await _member(service, other, "m2")
        desk.client_goes()
        assert await gone.fetch() == []
        await desk.context_is_idle()
        assert await next_one.fetch() == [(0, 0, "a", 1)]

    run(work())


def test_partitions_outside_of_the_session_are_given_back(service: MemoryPenstock) -> None:
    send(service, "a", partition=1)

    async def work() -> None:
        desk = ShareDesk(service)
        one, two = await _member(service, desk), await _member(service, desk, "m2")
        one.partitions = [0]
        assert await one.fetch() == []
        await desk.context_is_idle()
        assert await two.fetch() == [(1, 0, "a", 1)]

    run(work())


def test_offsets_that_came_without_their_batch_go_back_and_are_not_finished(service: MemoryPenstock) -> None:
    class CuttingTransport:
        """The first answer with records loses them."""

        cuts = True

        def call(
            self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
        ) -> Response:
            response = service.transport.call(method, path, query, headers, body)
            if not self.cuts or not path.endswith("/acquire"):
                return response
            header, data = frame.decode(response.body)
            partitions: Any = header["partitions"]
            self.cuts = not data
            whole = [{**each, "length": 0} for each in partitions]
            return Response(response.status, response.headers, frame.encode({**header, "partitions": whole}, []))

        def close(self) -> None:
            """Nothing to close."""

    send(service, "a")

    async def work() -> None:
        desk = ShareDesk(service, CuttingTransport())
        member = await _member(service, desk)
        assert await member.fetch() == []
        await desk.context_is_idle()
        assert await member.fetch() == [(0, 0, "a", 1)]

    run(work())


def test_unknown_topics_and_partitions_are_told_beside_the_records_of_the_others(service: MemoryPenstock) -> None:
    send(service, "a")

    async def work() -> None:
        desk = ShareDesk(service)
        member = await _member(service, desk)
        answer = await desk.ask(
            ApiKey.SHARE_FETCH,
            1,
            group_id="workers",
            member_id="m1",
            share_session_epoch=0,
            max_bytes=1_000,
            max_records=10,
            topics=[
                {"topic_id": Uuid(int=7), "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]},
                {"topic_id": member.topic, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]},
            ],
        )
        found = {topic["topic_id"]: topic["partitions"][0]["error_code"].name for topic in answer["responses"]}
        assert found == {Uuid(int=7): "unknown_topic_id", member.topic: "none"}

    run(work())


def test_group_that_is_gone_refuses_the_request(service: MemoryPenstock) -> None:
    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        service.admin().delete_share_group("workers")
        await member.fetch()
        assert member.answer["error_code"].name == "group_id_not_found"

    run(work())


def test_group_by_key_hands_out_a_key_once_at_a_time(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders", {"ordering": "key"})
    with service.producer() as producer:
        for value in (b"a1", b"a2", b"b1"):
            producer.send("orders", key=value[:1], value=value, partition=0)

    async def work() -> None:
        desk = ShareDesk(service)
        member = await _member(service, desk)
        assert [each.value for each in await member.fetch(max_records=500)] == ["a1", "b1"]
        assert [each.value for each in await member.fetch({0: [(0, 0, [ACCEPT]), (2, 2, [ACCEPT])]})] == ["a2"]

    run(work())


def test_fair_group_gives_way_to_a_tenant_without_records_in_flight(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders", {"sharing": "fair"})

    async def work() -> None:
        member = await _member(service, ShareDesk(service))
        with service.producer() as producer:
            for value in (b"n1", b"n2", b"n3", b"n4"):
                producer.send("orders", key=value[:1], value=value, partition=0)
        assert [each.value for each in await member.fetch(max_records=2)] == ["n1", "n2"]
        with service.producer() as producer:
            producer.send("orders", key=b"a", value=b"a1", partition=0)
        found = [each.value for each in await member.fetch(max_records=1)]
        found += [each.value for each in await member.fetch(max_records=2)]
        assert sorted(found) == ["a1", "n3", "n4"]

    run(work())


def test_session_that_asks_for_too_many_partitions_ends(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_kafka.share.clients.KAFKA_SESSION_PARTITIONS_MAX", 3)

    async def work() -> None:
        member = member_of(ShareDesk(service), service)
        await member.join()
        await member.fetch()
        more = [{"partition_index": 3, "acknowledgement_batches": []}]
        await member.fetch(topics=[{"topic_id": member.topic, "partitions": more}])
        assert member.answer["error_code"].name == "invalid_request"
        await member.fetch()
        assert member.answer["error_code"].name == "share_session_not_found"
        member.epoch = 0
        await member.fetch()
        assert member.answer["error_code"].name == "none"

    run(work())
