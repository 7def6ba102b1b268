"""`penstock acls`, against the service in memory. `penstock quotas`: set, list, delete; and a producer that slows down
instead of failing.

`penstock audit list` shows the changes that the service has written.
"""

import re
import shlex
from collections.abc import Callable

import pytest

from penstock import AccessDeniedError, Admin, Consumer, Producer, ShareConsumer, TopicPartition
from penstock.http.transport import Transport
from penstock.testing import MemoryPenstock
from penstock_core.ids import AUDIT_TOPIC
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.audit.settle_audit import settle_audit
from tests.sdk.cli.command import run, run_json

SESSION = "arn:aws:sts::111122223333:assumed-role/shop/i-0abc"
SHOP = "arn:aws:iam::111122223333:role/shop"
ADD = ("acls", "add", SHOP, "write", "topic:orders")
YEAR_MS = 365 * 24 * 3_600_000


def test_rules_are_added_listed_checked_and_removed(service: MemoryPenstock) -> None:
    transport = service.transport
    added = run_json(transport, *ADD, "group:g*")
    assert [each["resource"] for each in added["added"]] == ["group:g*", "topic:orders"]
    assert "no rule is new" in run(transport, *ADD).stdout
    two = run(transport, "acls", "add", SHOP, "read", "topic:orders", "group:packing").stdout
    assert two.splitlines() == [f"added: allow {SHOP} read group:packing", f"added: allow {SHOP} read topic:orders"]
    assert f"deny {SHOP}" in run(transport, *ADD, "--deny").stdout
    found = run_json(transport, "acls", "list", "--resource", "topic:orders")
    assert [each["permission"] for each in found if each["operation"] == "write"] == ["allow", "deny"]
    assert SHOP in run(transport, "acls", "list").stdout
    denied = run(transport, "acls", "check", SHOP, "write", "topic:orders")
    assert (denied.exit_code, denied.stdout) == (1, f"{SHOP} may not write topic:orders: a deny rule\n")
    assert len(run_json(transport, "acls", "remove", SHOP, "write", "topic:orders", "--deny")["removed"]) == 1
    assert run_json(transport, "acls", "check", SHOP, "write", "topic:orders")["reason"] == "an allow rule"
    assert run_json(transport, "acls", "check", "me", "alter", "service")["is_allowed"]
    assert "there is no such rule" in run(transport, "acls", "remove", SHOP, "read", "topic:x").stdout


def test_bad_resource_is_refused_with_the_way_out(service: MemoryPenstock) -> None:
    result = run(service.transport, "acls", "add", SHOP, "read", "orders")
    assert result.exit_code == 1
    assert "give service, or KIND:NAME" in result.stderr


def test_command_of_a_refusal_grants_what_was_refused() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        with Producer(transport=service.transport_as(SESSION)) as producer, pytest.raises(AccessDeniedError) as caught:
            producer.send("orders", b"refused").result()
        assert "NOT_AUTHORIZED" in str(caught.value)
        run_json(service.transport, *ADD)
        with Producer(transport=service.transport_as(SESSION)) as producer:
            assert producer.send("orders", b"taken").result().offset == 0


def _produce(transport: Transport) -> None:
    with Producer(transport=transport) as producer:
        producer.send("orders", b"taken").result()


def _produce_in_a_transaction(transport: Transport) -> None:
    with Producer(transport=transport, transactional_id="tx") as producer, producer.transaction() as transaction:
        transaction.send("orders", b"taken")


def _fetch(transport: Transport) -> None:
    with Consumer(transport=transport, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert consumer.poll(timeout_ms=5_000)


def _commit(transport: Transport) -> None:
    with Consumer(transport=transport, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        assert consumer.poll(timeout_ms=5_000)
        consumer.commit()


def _acquire(transport: Transport) -> None:
    with ShareConsumer("orders", group_id="w", transport=transport) as consumer:
        [record] = consumer.poll(timeout_ms=5_000)
        consumer.accept(record)


@pytest.mark.parametrize(
    ("work", "rights"),
    [
        (_produce, ["write topic:orders"]),
        (_produce_in_a_transaction, ["write topic:orders", "write transactional_id:tx"]),
        (_fetch, ["read topic:orders"]),
        (_commit, ["read group:g", "read topic:orders"]),
        (_acquire, ["read share_group:w", "read topic:orders"]),
    ],
)
def test_refusals_ask_for_each_right_once(work: Callable[[Transport], None], rights: list[str]) -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        Admin(transport=service.transport).create_share_group("w", "orders")
        _produce(service.transport)
        for _ in rights:
            with pytest.raises(AccessDeniedError) as caught:
                work(service.transport_as(SESSION))
            [command] = re.findall(r"`penstock (acls add [^`]*)`", caught.value.message)
            run_json(service.transport, *shlex.split(command))
            assert f" {caught.value.facts['operation']} " in command
        work(service.transport_as(SESSION))
        found = run_json(service.transport, "acls", "list", "--principal", SHOP)
        assert sorted(f"{each['operation']} {each['resource']}" for each in found) == rights


@pytest.mark.parametrize(
    ("words", "right"), [(("produce", "orders"), "write"), (("consume", "orders", "--timeout", "1s"), "read")]
)
def test_commands_ask_for_the_right_that_they_need(words: tuple[str, ...], right: str) -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        shop = service.transport_as(SESSION)
        refused = run(shop, *words, stdin=b"")
        assert f"may not {right} 'topic:orders'" in refused.stderr
        run_json(service.transport, "acls", "add", SHOP, right, "topic:orders")
        assert run(shop, *words, stdin=b"").exit_code == 0


def test_refusal_by_a_deny_rule_stays_as_it_is() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        run_json(service.transport, "acls", "add", SHOP, "describe", "topic:orders", "--deny")
        with pytest.raises(AccessDeniedError, match="may not describe 'topic:orders': a deny rule says so"):
            _produce(service.transport_as(SESSION))


def test_caller_without_rights_on_the_service_lists_the_rules_about_itself() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        for principal in (SHOP, f"{SHOP}*", f"{SHOP}-other", "*"):
            run_json(service.transport, "acls", "add", principal, "read", "topic:orders")
        own = run_json(service.transport_as(SESSION), "acls", "list")
        assert [each["principal"] for each in own] == ["*", SHOP, f"{SHOP}*"]
        assert len(run_json(service.transport, "acls", "list")) == 4
        foreign = run_json(service.transport_as(SESSION), "acls", "list", "--principal", f"{SHOP}-other")
        assert foreign == []


def test_quota_is_set_listed_and_deleted(service: MemoryPenstock) -> None:
    made = run_json(service.transport, "quotas", "set", "principal", "*", "--produce-bytes", "5000000")
    limits = {"produce_bytes_per_s": 5_000_000}
    assert made == {"subject": "principal", "name": "*", "limits": limits, "shared": False}
    team = run_json(service.transport, "quotas", "set", "topic", "shop.*", "--shared", "--fetch-bytes", "1MB")
    assert team == {"subject": "topic", "name": "shop.*", "limits": {"fetch_bytes_per_s": 1_000_000}, "shared": True}
    role = "arn:aws:iam::111122223333:role/shop-orders"
    both = ("--produce-bytes", "1MB", "--groups-max", "9")
    _, header, *rows = run(service.transport, "quotas", "set", "principal", role, *both).stdout.splitlines()
    assert rows == [f"principal  {role}  produce-bytes 1,000,000, groups-max 9"]
    assert header.index("limits") <= 60, "limits have room in 80 columns"
    assert run(service.transport, "quotas", "list").stdout.splitlines()[-1].endswith("fetch-bytes 1,000,000, shared")
    run_json(service.transport, "quotas", "delete", "principal", role)
    assert run_json(service.transport, "quotas", "delete", "topic", "shop.*")["deleted"]["name"] == "shop.*"
    assert run_json(service.transport, "quotas", "list") == [made]
    shown = run(service.transport, "quotas", "list")
    assert (shown.exit_code, "5,000,000" in shown.output) == (0, True)
    assert run(service.transport, "quotas", "delete", "principal", "*").output == "deleted the quota of principal *\n"
    assert run_json(service.transport, "quotas", "list") == []


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("set", "topic", "orders"), 2, "give at least one limit"),
        (("set", "group", "g", "--fetch-bytes", "1"), 2, "'principal', 'topic'"),
        (("set", "topic", "orders", "--fetch-bytes", "0"), 1, "fetch_bytes_per_s=0"),
        (("set", "topic", "a/b", "--fetch-bytes", "1"), 1, "a/b"),
        (("delete", "topic", "orders"), 1, "has no quota of its own"),
    ],
)
def test_mistake_names_the_value_and_the_way_out(
    service: MemoryPenstock, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    refused = run(service.transport, "quotas", *arguments)
    assert (refused.exit_code, message in refused.output + refused.stderr) == (exit_code, True)


def test_producer_over_its_quota_slows_down_and_loses_nothing(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=1)
    service.admin().set_quota("principal", LOCAL_PRINCIPAL, {"produce_requests_per_s": 20})
    with service.producer(linger_ms=0) as producer:
        for number in range(30):
            producer.send("orders", str(number).encode()).result(timeout=60)
    assert [record.value for record in service.records("orders")] == [str(number).encode() for number in range(30)]


def settle(service: MemoryPenstock) -> None:
    assert settle_audit(service._instance, YEAR_MS, budget_ms=60_000).is_finished


def test_changes_are_listed_the_newest_first(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    assert run(service.transport, "topics", "delete", "orders", "--yes").exit_code == 0
    settle(service)
    found = run_json(service.transport, "audit", "list")
    assert [(each["action"], each["resource"]["name"]) for each in found] == [
        ("delete_topic", "orders"),
        ("create_topic", "orders"),
    ]
    assert found[0]["before"]["partitions"] == 1
    assert "delete_topic" in run(service.transport, "audit", "list", "--last", "1").stdout
    assert run_json(service.transport, "audit", "list", "--name", "other") == []


def test_nothing_is_listed_where_nothing_was_changed(service: MemoryPenstock) -> None:
    assert run_json(service.transport, "audit", "list") == []


def test_trail_is_no_topic_of_the_list(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    settle(service)
    assert AUDIT_TOPIC not in str(run_json(service.transport, "topics", "list"))
