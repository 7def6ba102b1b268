"""Groups as operators manage them, by Admin and by the command line."""

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.admin.admin import Admin
from penstock.cli import main
from penstock.errors import ConflictError, ConnectionFailedError, InvalidError, NotFoundError, OffsetOutOfRangeError
from penstock.model import CommittedOffset, TopicPartition
from penstock.model.groups import GroupDescription, ResetOffset
from penstock.testing import MemoryPenstock
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for number in range(5):
            producer.send("orders", b"v", partition=0, timestamp_ms=1_000 + number)
    return "orders"


def join(service: MemoryPenstock, member_id: str = "m-1", group: str = "billing") -> None:
    body = {
        "member_id": member_id,
        "client_id": "host-1",
        "sequence": 1,
        "epoch": 0,
        "subscription": {"topics": ["orders"]},
    }
    path = f"/v1/groups/{group}/heartbeat"
    answer = service.transport.call("POST", path, {}, {"Content-Type": "application/json"}, json.dumps(body).encode())
    assert answer.status == 200, answer.body


def run(service: MemoryPenstock, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["groups", *arguments], obj=service.transport)


def run_json(service: MemoryPenstock, *arguments: str) -> Any:
    result = run(service, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_groups_are_listed_page_by_page(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    names = [f"g{number:03d}" for number in range(130)]
    for name in names:
        admin.commit_group_offsets(name, {TopicPartition(orders, 0): 1})
    join(service)
    found = admin.list_groups()
    assert [group.group for group in found] == ["billing", *names]
    assert [(group.epoch, group.member_count) for group in found[:2]] == [(found[0].epoch, 1), (0, 0)]
    assert found[0].epoch > 0


def test_description_and_offsets_are_whole_when_they_take_many_pages(service: MemoryPenstock, orders: str) -> None:
    service.create_topic("wide", partitions=400)
    partitions = [TopicPartition("wide", number) for number in range(400)]
    admin = service.admin()
    for each in partitions:
        admin.commit_group_offsets("billing", {each: 0}, metadata='"' * 4_000)
    join(service)

    async def read() -> tuple[list[CommittedOffset], GroupDescription]:
        async with service.async_admin() as other:
            return await other.group_offsets("billing"), await other.describe_group("billing")

    offsets, described = admin.group_offsets("billing"), admin.describe_group("billing")
    assert [(each.topic, each.partition) for each in offsets] == partitions
    assert [each.member_id for each in described.members] == ["m-1"]
    assert [(each.topic, each.partition) for each in described.partitions] == [(orders, 0), (orders, 1), *partitions]
    assert asyncio.run(read()) == (offsets, described)


def test_group_is_described_with_members_and_lag(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    admin.commit_group_offsets("billing", {TopicPartition(orders, 0): 2})
    join(service)
    found = admin.describe_group("billing")
    [member] = found.members
    assert (member.member_id, member.client_id, member.topics) == ("m-1", "host-1", ("orders",))
    assert member.epoch == found.group.epoch > 0
    shown = [(each.partition, each.owner, each.assigned_to, each.offset, each.lag) for each in found.partitions]
    assert shown == [(0, "m-1", "m-1", 2, 3), (1, "m-1", "m-1", None, None)]
    with pytest.raises(NotFoundError):
        admin.describe_group("nobody")


def test_offsets_are_reset_in_every_way(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()

    def reset(**how: Any) -> list[int]:
        return [each.new_offset for each in admin.reset_group_offsets("billing", orders, **how).values()]

    assert reset(to="latest") == [5, 0]
    assert admin.reset_group_offsets("billing", orders, to="earliest", dry_run=True) == {
        0: ResetOffset(old_offset=5, new_offset=0),
        1: ResetOffset(old_offset=0, new_offset=0),
    }
    assert reset(shift_by=-2, partitions=[0]) == [3]
    assert reset(timestamp_ms=1_001) == [1, 0]
    assert reset(offsets={0: 4}) == [4]
    with pytest.raises(OffsetOutOfRangeError):
        reset(offsets={0: 6})
    with pytest.raises(InvalidError):
        reset()
    assert [each.offset for each in admin.group_offsets("billing")] == [4, 0]


def test_reset_and_deletion_of_a_group_with_members_are_refused(service: MemoryPenstock, orders: str) -> None:
    admin = service.admin()
    join(service)
    with pytest.raises(ConflictError):
        admin.reset_group_offsets("billing", orders, to="latest")
    with pytest.raises(ConflictError):
        admin.delete_group("billing")
    assert admin.reset_group_offsets("billing", orders, to="latest", force=True)[0].new_offset == 5
    admin.delete_group("billing")
    assert admin.list_groups() == []
    with pytest.raises(NotFoundError):
        admin.delete_group("billing")


def test_shift_is_not_sent_again_when_its_answer_was_lost(service: MemoryPenstock, orders: str) -> None:
    service.admin().reset_group_offsets("billing", orders, to="latest")
    faulty = FaultyTransport(service.transport)
    faulty.faults["/v1/groups/billing/reset"] = [lost_answer]
    with pytest.raises(ConnectionFailedError) as caught:
        Admin(transport=faulty).reset_group_offsets("billing", orders, shift_by=-2)
    assert caught.value.maybe_applied
    assert [each.offset for each in service.admin().group_offsets("billing")] == [3, 0]


def test_settings_are_altered(service: MemoryPenstock) -> None:
    admin = service.admin()
    assert admin.alter_group("billing", {"assignor": "range"}).config["assignor"] == "range"
    assert admin.alter_group("billing", {"assignor": None}).config["assignor"] == "sticky"
    with pytest.raises(InvalidError):
        admin.alter_group("billing", {"assignor": "best"})


def test_commands_from_list_to_deletion(service: MemoryPenstock, orders: str) -> None:
    join(service)
    assert [group["group"] for group in run_json(service, "list")] == ["billing"]
    described = run_json(service, "describe", "billing")
    assert (described["members"][0]["client_id"], described["partitions"][0]["owner"]) == ("host-1", "m-1")
    text = run(service, "describe", "billing").stdout
    assert "members: host-1; 0 behind in all" in text
    altered = run_json(
        service, "alter", "billing", "--config", "assignor=range", "--config", "session_timeout_ms=60000"
    )
    assert (altered["config"]["assignor"], altered["config"]["session_timeout_ms"]) == ("range", 60_000)
    assert run_json(service, "alter", "billing", "--default", "assignor")["config"]["assignor"] == "sticky"
    assert run(service, "alter", "billing").exit_code == 2
    refused = run(service, "reset", "billing", orders, "--to", "latest")
    assert (refused.exit_code, refused.stderr.startswith("error: GROUP_NOT_EMPTY")) == (1, True)
    dry = run(service, "reset", "billing", orders, "--to", "latest", "--dry-run")
    assert "nothing was changed" in dry.stdout
    assert run_json(service, "reset", "billing", orders, "--to", "latest", "--force") == [
        {"partition": 0, "old_offset": None, "new_offset": 5},
        {"partition": 1, "old_offset": None, "new_offset": 0},
    ]
    assert run_json(service, "reset", "billing", orders, "0=3") == [{"partition": 0, "old_offset": 5, "new_offset": 3}]
    assert run_json(service, "reset", "billing", orders, "--at", "1970-01-01T00:00:01.001Z", "--partition", "0") == [
        {"partition": 0, "old_offset": 3, "new_offset": 1}
    ]
    assert run_json(service, "reset", "billing", orders, "--shift-by", "-1", "--partition", "0")[0]["new_offset"] == 0
    assert CliRunner().invoke(main, ["groups", "delete", "billing"], obj=service.transport, input="n\n").exit_code == 1
    assert run_json(service, "delete", "billing", "--yes") == {"deleted": "billing"}
    assert run_json(service, "list") == []
