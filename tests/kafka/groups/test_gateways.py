"""Several gateways serve one group, and one of them may be gone at any time."""

from collections.abc import Iterator, Mapping

import pytest

from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_kafka.groups.classic.consumer_protocol import write_assignment
from tests.kafka.groups.cooperative import cooperative
from tests.kafka.groups.desk import GroupDesk, committed, owners, run

ALL = [TopicPartition("orders", number) for number in range(4)]


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=4)
        yield service


def test_other_gateway_takes_commits_and_then_lets_the_client_join_again(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        other = GroupDesk(service)
        assert await other.commit(joined, {0: 7, 1: 7}) == {0: "none", 1: "none"}
        assert await other.commit(joined, {0: 6}) == {0: "illegal_generation"}  # a late copy, perhaps
        assert await other.beat(joined) == "rebalance_in_progress"
        assert await other.commit(joined, {0: 8}) == {0: "none"}
        again = await other.join(joined["member_id"])
        assert again["generation_id"] > joined["generation_id"]
        assert (await other.sync(again))["assignment"] == write_assignment(ALL)
        assert await other.beat(again) == "none"
        assert await other.commit(again, {0: 2}) == {0: "none"}

    run(work())
    assert committed(service) == {0: 2, 1: 7}
    assert len(service.admin().describe_group("g").members) == 1


def test_cooperative_client_keeps_its_leases_at_the_other_gateway(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join(**cooperative([]))
        before = _epochs(service)
        other = GroupDesk(service)
        again = await other.join(joined["member_id"], **cooperative(ALL))
        assert (await other.sync(again))["assignment"] == write_assignment(ALL)
        assert _epochs(service) == before

    run(work())


def test_first_gateway_is_fenced_once_the_client_has_gone_on_elsewhere(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join()
        again = await second.join(joined["member_id"])
        assert await second.commit(again, {0: 5}) == {0: "none"}
        # A request of the client that was on its way for long, at the gateway that it has left.
        assert await first.commit(joined, {0: 4}) == {0: "illegal_generation"}

    run(work())
    assert committed(service) == {0: 5}


def test_late_commit_does_not_rewind_a_client_that_took_its_leases_along(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join(**cooperative([]))
        assert await first.commit(joined, {0: 3}) == {0: "none"}
        again = await second.join(joined["member_id"], **cooperative(ALL))
        assert await second.commit(again, {0: 5}) == {0: "none"}
        assert await first.commit(joined, {0: 4}) == {0: "illegal_generation"}
        # The client goes on where it is, and may go back there.
        assert await second.commit(again, {0: 1}) == {0: "none"}

    run(work())
    assert committed(service) == {0: 1}


def test_late_commit_does_not_rewind_a_client_that_has_joined_again_elsewhere(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join(**cooperative([]))
        assert await first.commit(joined, {0: 6}) == {0: "none"}
        await second.join(joined["member_id"], **cooperative(ALL))
        assert await first.commit(joined, {0: 3}) == {0: "illegal_generation"}

    run(work())
    assert committed(service) == {0: 6}


def test_client_comes_back_to_a_gateway_that_knows_its_past(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join()
        assert await second.beat(joined) == "rebalance_in_progress"
        again = await second.join(joined["member_id"])
        assert await first.commit(again, {0: 2}) == {0: "none"}
        assert await first.beat(again) == "rebalance_in_progress"
        moved = await GroupDesk(service).join(joined["member_id"])
        back = await first.join(joined["member_id"])
        assert (back["error_code"].name, back["member_id"]) == ("none", joined["member_id"])
        assert (await first.sync(back))["assignment"] == write_assignment(ALL)
        assert moved["error_code"].name == "none"

    run(work())
    assert len(service.admin().describe_group("g").members) == 1


def test_member_may_seek_behind_a_commit_of_somebody_else_after_it_has_joined_again(service: MemoryPenstock) -> None:
    async def work() -> None:
        first, second = GroupDesk(service), GroupDesk(service)
        joined = await first.join(**cooperative([]))
        again = await second.join(joined["member_id"], **cooperative(ALL))
        assert await second.commit(again, {0: 5}) == {0: "none"}
        assert await first.commit(joined, {0: 4}) == {0: "illegal_generation"}
        assert await first.beat(joined) == "rebalance_in_progress"
        back = await first.join(joined["member_id"], **cooperative(ALL))
        assert (await first.sync(back))["assignment"] == write_assignment(ALL)
        assert await first.commit(back, {0: 4}) == {0: "none"}

    run(work())
    assert committed(service) == {0: 4}


def test_assignment_that_a_gateway_took_along_is_told_by_the_next_one(service: MemoryPenstock) -> None:
    async def work() -> None:
        # The gateway dies between JoinGroup and SyncGroup: the leases are granted, and the client knows nothing.
        joined = await GroupDesk(service).join()
        other = GroupDesk(service)
        assert (await other.sync(joined))["error_code"].name == "rebalance_in_progress"
        again = await other.join(joined["member_id"])
        assert (await other.sync(again))["assignment"] == write_assignment(ALL)

    run(work())
    assert len({*owners(service).values()}) == 1


class _WithoutDescribe:
    """A role that may not describe groups, as API Gateway refuses it."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if (method, path) == ("GET", "/v1/groups/g"):
            return Response(403, {"content-type": "application/json"}, b'{"message": "Forbidden"}')
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        pass


def test_client_joins_anew_when_the_gateway_may_not_describe_groups(service: MemoryPenstock) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        other = GroupDesk(service, _WithoutDescribe(service.transport))
        assert await other.beat(joined) == "unknown_member_id"
        assert (await other.join())["error_code"].name == "none"

    run(work())


def test_gateway_whose_clock_is_behind_goes_on_with_a_member(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        joined = await GroupDesk(service).join()
        monkeypatch.setattr("penstock_kafka.apis.wall_clock_ms", lambda: 1_000)
        late = GroupDesk(service)
        again = await late.join(joined["member_id"])
        assert again["error_code"].name == "none"
        assert again["generation_id"] >= 0
        assert (await late.sync(again))["assignment"] == write_assignment(ALL)

    run(work())


def _epochs(service: MemoryPenstock) -> dict[int, int]:
    return {each.partition: each.lease_epoch for each in service.admin().describe_group("g").partitions}
