import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from penstock import Admin
from penstock.cli import main
from penstock.http.transport import Transport
from penstock.model.access import AccessRule
from penstock.testing import MemoryPenstock
from penstock_core.records.codec import NewRecord, encode
from tests.sdk.http.faulty_transport import FaultyTransport, answer
from tests.support.child_process import bare_environment, child_process
from tests.support.poison import put_batch, undecodable_batch

TRUNCATED_PIPE = """
import sys
from penstock.cli import main
from penstock.testing import MemoryPenstock
with MemoryPenstock() as service:
    service.create_topic("t")
    with service.producer() as producer:
        for number in range(100_000):
            producer.send("t", b"x" * 100)
    main(["consume", "t"], obj=service.transport)
"""


def _run(transport: Transport, *arguments: str, input: bytes | None = None) -> Result:  # noqa: A002 - as CliRunner's
    return CliRunner().invoke(main, arguments, obj=transport, input=input)


def _json(transport: Transport, *arguments: str, input: bytes | None = None) -> Any:  # noqa: A002 - as CliRunner's
    result = _run(transport, *arguments, "--json", input=input)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=2)
    return "orders"


def test_topics_from_creation_to_deletion(service: MemoryPenstock) -> None:
    transport = service.transport
    created = _json(transport, "topics", "create", "a", "--partitions", "3", "--config", "max_batch_bytes=5000")
    assert (created["name"], created["partitions"], created["config"]["max_batch_bytes"]) == ("a", 3, 5_000)
    assert [topic["name"] for topic in _json(transport, "topics", "list")] == ["a"]
    altered = _json(transport, "topics", "alter", "a", "--partitions", "4", "--default", "max_batch_bytes")
    assert (altered["partitions"], altered["config"]["max_batch_bytes"]) == (4, 1_048_576)
    assert len(_json(transport, "topics", "describe", "a")["offsets"]) == 4
    assert _json(transport, "topics", "delete", "a", "--yes") == {"deleted": "a"}
    assert _json(transport, "topics", "list") == []


def test_topic_is_made_once_when_asked(service: MemoryPenstock) -> None:
    assert _run(service.transport, "topics", "create", "a").stdout == "created a with 1 partition\n"
    assert _run(service.transport, "topics", "create", "a").exit_code == 1
    again = _run(service.transport, "topics", "create", "a", "--partitions", "3", "--if-not-exists")
    assert (again.exit_code, again.stdout) == (0, "a exists, with 1 partition: nothing was changed\n")
    assert _json(service.transport, "topics", "create", "a", "--if-not-exists")["partitions"] == 1


PACK = "arn:aws:lambda:us-east-1:000000000000:function:pack"
NOUNS = {
    "topics": ("t",),
    "share-groups": ("g", "orders"),
    "subscriptions": ("s", "orders", "--lambda", PACK),
    "schedules": ("c", "orders", "--cron", "0 9 * * *"),
}


@pytest.mark.parametrize("noun", NOUNS)
def test_noun_that_exists_stays_as_it_is_when_asked(service: MemoryPenstock, orders: str, noun: str) -> None:
    service.add_function(PACK, lambda *_: None)
    change = {"topics": ("--retention", "1h"), "schedules": ("--value", "x")}.get(noun, ("--filter", '{"a": ["b"]}'))
    create = (noun, "create", *NOUNS[noun], "--if-not-exists")
    made = _json(service.transport, *create)
    assert _json(service.transport, *create, *change) == made
    again = _run(service.transport, *create)
    assert (again.exit_code, "nothing was changed" in again.stdout) == (0, True)


def test_each_create_has_if_not_exists_and_no_time_is_a_bare_number() -> None:
    commands = dict(_commands(main, ()))
    creates = [path for path in commands if path[-1] == "create"]
    assert {path[0] for path in creates} == {*NOUNS, "mirrors"}
    for path in creates:
        assert any("--if-not-exists" in each.opts for each in commands[path].params), path
    for path, command in commands.items():
        for option in command.params:
            told = f"{getattr(option, 'help', '')}"
            if re.search("_ms|milliseconds|[Ss]econds", told):
                assert not isinstance(option.type, click.types.IntParamType | click.types.FloatParamType), (path, told)


def _commands(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        elif command is not None:
            yield (*path, name), command


def test_validate_records_is_set_and_shown(service: MemoryPenstock) -> None:
    transport = service.transport
    created = _json(transport, "topics", "create", "strict", "--config", "validate_records=true")
    assert created["config"]["validate_records"] is True
    assert "validate_records=true" in _run(transport, "topics", "describe", "strict").stdout
    altered = _json(transport, "topics", "alter", "strict", "--config", "validate_records=false")
    assert altered["config"]["validate_records"] is False


@pytest.mark.parametrize(
    ("text", "retention_ms", "shown"),
    [("90s", 90_000, "for 90s"), ("48h", 172_800_000, "for 2d"), ("forever", -1, "for ever")],
)
def test_retention_is_written_and_shown_as_people_say_it(
    service: MemoryPenstock, orders: str, text: str, retention_ms: int, shown: str
) -> None:
    transport = service.transport
    created = _json(transport, "topics", "create", "a", "--retention", text)
    assert created["config"]["retention_ms"] == retention_ms
    altered = _json(transport, "topics", "alter", orders, "--retention", text)
    assert altered["config"]["retention_ms"] == retention_ms
    shown_words = " ".join(_run(transport, "topics", "describe", "a").stdout.split())
    assert f"keeps records {shown};" in shown_words


def test_describe_shows_how_much_is_kept(service: MemoryPenstock) -> None:
    service.create_topic("a", config={"retention_bytes": 5_000_000})
    shown_words = " ".join(_run(service.transport, "topics", "describe", "a").stdout.split())
    assert "keeps records for 14d, 5000000 bytes a partition;" in shown_words


@pytest.mark.parametrize("text", ["", "5w", "-1d", "1.5.h", "d", "ever"])
def test_bad_duration_is_refused(service: MemoryPenstock, text: str) -> None:
    result = _run(service.transport, "topics", "create", "a", "--retention", text)
    assert result.exit_code == 2
    assert "duration" in result.output


@pytest.mark.parametrize("command", [["topics", "list"], ["topics", "describe", "orders"], ["offsets", "orders"]])
def test_people_get_tables(service: MemoryPenstock, orders: str, command: list[str]) -> None:
    result = _run(service.transport, *command)
    assert result.exit_code == 0
    assert "orders" in result.stdout
    assert "partition" in result.stdout


def test_delete_asks_first(service: MemoryPenstock, orders: str) -> None:
    assert _run(service.transport, "topics", "delete", orders, input=b"n\n").exit_code == 1
    assert _run(service.transport, "topics", "delete", orders, input=b"y\n").exit_code == 0


def test_topic_in_use_is_deleted_by_force_only(service: MemoryPenstock) -> None:
    for name in ("orders", "dead", "copy"):
        service.create_topic(name)
    admin = Admin(transport=service.transport)
    admin.create_share_group("pack", "orders", {"dead_letter_topic": "dead"})
    admin.put_subscription("mirror", "orders", {"topic": "copy"}, {"dead_letter_topic": "dead"})
    for name, uses in (
        ("orders", {"share group pack uses orders: reads", "subscription mirror uses orders: reads"}),
        ("dead", {"share group pack uses dead: dead letters", "subscription mirror uses dead: dead letters"}),
        ("copy", {"subscription mirror uses copy: target"}),
    ):
        refused = _run(service.transport, "topics", "delete", name, "--yes")
        assert refused.exit_code == 1
        *told, error = refused.stderr.splitlines()
        assert {*told} == uses
        assert error == f"error: INVALID_REQUEST: {name} is in use: change or delete its users first, or give --force"
        as_json = json.loads(_run(service.transport, "topics", "delete", name, "--yes", "--json").stderr)["error"]
        assert {f"{each['kind']} {each['name']} uses {name}: {each['use']}" for each in as_json["users"]} == uses
    assert _json(service.transport, "topics", "delete", "copy", "--yes", "--force") == {"deleted": "copy"}
    admin.delete_subscription("mirror")
    admin.delete_share_group("pack")
    assert _json(service.transport, "topics", "delete", "orders", "--yes") == {"deleted": "orders"}


def test_topic_whose_users_the_caller_may_not_see_is_deleted_by_force_only_if_there_are_some() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        admin = Admin(transport=service.transport)
        admin.create_share_group("pack", "orders")
        role = "arn:aws:iam::111122223333:role/shop"
        admin.change_acls(add=[AccessRule(principal=role, operation="delete", resource="topic:orders")])
        transport = service.transport_as(role)
        refused = _run(transport, "topics", "delete", "orders", "--yes")
        assert refused.exit_code == 1
        assert refused.stderr.splitlines() == [
            "orders has users that you may not see: 1 share group",
            "error: INVALID_REQUEST: orders is in use, or may be: ask somebody who may see its users, or give --force",
        ]
        assert _json(transport, "topics", "delete", "orders", "--yes", "--force") == {"deleted": "orders"}
        service.create_topic("orders")
        admin.delete_share_group("pack")
        assert _json(transport, "topics", "delete", "orders", "--yes") == {"deleted": "orders"}


@pytest.mark.parametrize(
    ("path", "seen", "hidden"),
    [
        ("/v1/subscriptions", True, "you may not list subscriptions: ACCESS_DENIED"),
        ("/v1/share-groups", False, "you may not list share groups: ACCESS_DENIED"),
        ("/v1/acls", True, "you may not ask which share groups and subscriptions you see: ACCESS_DENIED"),
    ],
)
def test_list_that_iam_refuses_keeps_what_the_other_told(
    service: MemoryPenstock, path: str, seen: bool, hidden: str
) -> None:
    service.create_topic("orders")
    admin = Admin(transport=service.transport)
    admin.create_share_group("pack", "orders")
    transport = FaultyTransport(service.transport)
    for each in (path, "/v1/topics/orders/users"):
        transport.faults[each] = [answer(403, b'{"Message": "not authorized"}')] * 3
    refused = _run(transport, "topics", "delete", "orders", "--yes")
    assert refused.exit_code == 1
    assert ("share group pack uses orders: reads" in refused.stderr) is seen
    assert f"others may use orders: {hidden}" in refused.stderr
    admin.delete_share_group("pack")
    assert _run(transport, "topics", "delete", "orders", "--yes").exit_code == 1
    assert _run(transport, "topics", "delete", "orders", "--yes", "--force").exit_code == 0


def test_lines_go_in_and_come_out_with_keys(service: MemoryPenstock, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\tone\r\nb\ttwo\na\t\xff\xfe\n\tlast without end")
    produced = _run(service.transport, "produce", orders, "--file", str(file), "--key-separator", r"\t")
    assert produced.exit_code == 0, produced.output
    assert produced.stdout.startswith("4 records")
    assert sorted((record.key, record.value) for record in service.records(orders)) == [
        (b"", b"last without end"),
        (b"a", b"one"),
        (b"a", b"\xff\xfe"),
        (b"b", b"two"),
    ]
    consumed = _run(service.transport, "consume", orders, "--max-records", "4", "--format", r"{key}:{value}\n")
    assert sorted(consumed.stdout_bytes.splitlines()) == [b":last without end", b"a:one", b"a:\xff\xfe", b"b:two"]


def test_stdin_goes_in_with_headers_to_one_partition(service: MemoryPenstock, orders: str) -> None:
    said = _json(
        service.transport, "produce", orders, "--partition", "1", "--header", "h=v", "--acks", "all", input=b"x\ny\n"
    )
    assert (said["records"], said["bytes"]) == (2, 2)
    assert [(record.value, record.headers) for record in service.records(orders)] == [
        (b"x", (("h", b"v"),)),
        (b"y", (("h", b"v"),)),
    ]


@pytest.mark.parametrize("acks", ["one", "leader", "1"])
def test_produce_takes_each_name_of_acks_one(service: MemoryPenstock, orders: str, acks: str) -> None:
    assert _json(service.transport, "produce", orders, "--acks", acks, input=b"x\n")["records"] == 1
    assert "[none|one|quorum|all]" in _run(service.transport, "produce", "--help").output


def test_consume_json_is_as_the_api_gives_it(service: MemoryPenstock, orders: str) -> None:
    with service.producer() as producer:
        producer.send(orders, b"\xff", key="é", headers=[("a", b"1"), ("b", b"\xff"), ("c", b"\x00")], timestamp_ms=7)
        producer.send(orders, None, key="é", timestamp_ms=8)
    result = _run(service.transport, "consume", orders, "--json", "--max-records", "2")
    first, second = map(json.loads, result.stdout.splitlines())
    path = f"/v1/topics/orders/partitions/{first.pop('partition')}/records"
    answered = json.loads(service.transport.call("GET", path, {"offset": "0"}, {}, b"").body)["records"]
    assert {**answered[0], "topic": "orders"} == first
    assert (second["key"], second["value"]) == ("é", None)


@pytest.mark.parametrize(
    ("where", "expected"),
    [("earliest", ["0", "1", "2"]), ("1", ["1", "2"]), ("1970-01-01T00:00:01.002Z", ["2"]), ("latest", [])],
)
def test_consume_starts_at_the_given_place(
    service: MemoryPenstock, orders: str, where: str, expected: list[str]
) -> None:
    with service.producer() as producer:
        for number in range(3):
            producer.send(orders, str(number), partition=0, timestamp_ms=1_000 + number)
    limit = ["--max-records", str(len(expected))] if expected else ["--timeout", "0.05"]
    result = _run(service.transport, "consume", orders, "--partition", "0", "--from", where, *limit)
    assert result.stdout.split() == expected


def test_group_is_followed_shown_and_moved(service: MemoryPenstock, orders: str) -> None:
    with service.producer() as producer:
        for number in range(5):
            producer.send(orders, str(number), partition=0)
    run = ("consume", orders, "--partition", "0", "--group", "g", "--max-records")
    assert _run(service.transport, *run, "2").stdout.split() == ["0", "1"]
    assert _run(service.transport, *run, "1").stdout.split() == ["2"]
    (shown,) = _json(service.transport, "groups", "offsets", "g")
    assert (shown["partition"], shown["offset"], shown["lag"]) == (0, 3, 2)
    back = ("groups", "commit", "g", orders, "0=1")
    assert _run(service.transport, *back).exit_code == 1
    assert _run(service.transport, *back, "--may-go-back").exit_code == 0
    assert _run(service.transport, *run, "1").stdout.split() == ["1"]
    assert _json(service.transport, "groups", "delete-offsets", "g", orders, "--partition", "0", "--yes") == [
        {"topic": orders, "partition": 0, "old_offset": 2}
    ]


def test_lag_counts_only_records_that_are_still_there(service: MemoryPenstock, orders: str) -> None:
    with service.producer() as producer:
        for number in range(5):
            producer.send(orders, str(number), partition=0)
    assert _run(service.transport, "groups", "commit", "g", orders, "0=1").exit_code == 0
    service.admin().truncate(orders, {0: 4})
    (shown,) = _json(service.transport, "groups", "offsets", "g")
    (described,) = _json(service.transport, "groups", "describe", "g")["partitions"]
    assert (shown["lag"], described["lag"]) == (1, 1)


@pytest.mark.slow
def test_group_is_joined_and_left(service: MemoryPenstock, orders: str) -> None:
    with service.producer() as producer:
        for number in range(6):
            producer.send(orders, str(number), partition=number % 2)
    run = ("consume", orders, "--group", "g", "--max-records")
    first = _run(service.transport, *run, "4").stdout.split()
    rest = _run(service.transport, *run, "2").stdout.split()
    assert sorted(first + rest) == ["0", "1", "2", "3", "4", "5"]
    again = _run(service.transport, *run, "6", "--from", "earliest").stdout.split()
    assert sorted(again) == ["0", "1", "2", "3", "4", "5"]
    assert _run(service.transport, "consume", "nothing", "--group", "g").exit_code == 1


def test_offsets_and_truncate(service: MemoryPenstock, orders: str) -> None:
    with service.producer() as producer:
        for number in range(5):
            producer.send(orders, b"v", partition=0, timestamp_ms=1_000 + number)
    assert _run(service.transport, "topics", "truncate", orders, "0=2", "--yes").exit_code == 0
    first, second = _json(service.transport, "offsets", orders, "--at", "1970-01-01T00:00:01.003")
    bounds = {"log_start_offset": 2, "high_watermark": 5, "offset_at_time": 3}
    told = {"stored_bytes": first["stored_bytes"], "promoted_at": None}
    assert first == {"partition": 0, "state": "active", **told, **bounds}
    assert second["offset_at_time"] is None


def test_failure_is_one_line_on_stderr_and_code_1(service: MemoryPenstock) -> None:
    result = _run(service.transport, "topics", "describe", "nothing")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: UNKNOWN_TOPIC: ")
    assert result.stderr.count("\n") == 1


def test_failure_is_the_apis_error_object_with_json(service: MemoryPenstock) -> None:
    result = _run(service.transport, "topics", "describe", "nothing", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"]["code"] == "UNKNOWN_TOPIC"


def test_undelivered_records_are_a_failure(faulty: FaultyTransport, orders: str) -> None:
    faulty.faults["/v1/produce"] = [answer(403, b'{"message":"Forbidden"}')] * 2  # lines may go in two requests
    result = _run(faulty, "produce", orders, input=b"x\ny\n")
    assert result.exit_code == 1
    assert "2 of 2 records were not delivered" in result.stderr
    assert "ACCESS_DENIED" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "nothing"],
        ["topics", "create"],
        ["topics", "create", "a", "--partitions", "0"],
        ["topics", "alter", "orders"],
        ["topics", "truncate", "orders", "0:3", "--yes"],
        ["consume", "orders", "--format", "{nothing}"],
        ["consume", "orders", "--format", "%o %s"],
        ["consume", "orders", "--format", "{value}", "--json"],
        ["consume", "orders", "--from", "someday"],
        ["produce", "orders", "--acks", "some"],
        ["produce", "orders", "--key-separator", ":", "--key", "k"],
        ["produce", "orders", "--format", "json", "--null", "-"],
        ["consume", "p*"],
        ["consume", "orders", "--from", "1", "--last", "2"],
        ["offsets", "orders", "--at", "whenever"],
    ],
)
def test_wrong_usage_is_code_2(service: MemoryPenstock, orders: str, arguments: list[str]) -> None:
    result = _run(service.transport, *arguments, input=b"no separator\n")
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    if "--format" not in arguments:  # which --json goes before
        told = json.loads(_run(service.transport, *arguments, "--json", input=b"no separator\n").stderr)["error"]
        assert (told["code"], bool(told["message"])) == ("INVALID_REQUEST", True)


def test_missing_service_error_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    result = CliRunner().invoke(main, ["topics", "list"])
    assert result.exit_code == 1
    assert "penstock local up" in result.stderr


def test_consume_names_an_undecodable_batch_and_skips_it_when_asked(service: MemoryPenstock, orders: str) -> None:
    put_batch(service.transport, orders, undecodable_batch(5))
    put_batch(service.transport, orders, encode([NewRecord(1_000, None, b"behind")]))
    run = ("consume", orders, "--partition", "0", "--timeout", "0.05")

    failed = _run(service.transport, *run)
    assert failed.exit_code == 1
    assert "seek to 5 to skip it" in failed.stderr

    skipped = _run(service.transport, *run, "--on-undecodable", "skip")
    assert (skipped.exit_code, skipped.stdout) == (0, "behind\n")
    assert skipped.stderr == "skipped 1 undecodable batch of orders[0]\n"


@pytest.mark.parametrize("command", [[], ["topics"], ["produce"], ["consume"], ["offsets"], ["groups"]])
def test_every_command_has_help(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage: penstock" in result.stdout


@pytest.mark.slow
def test_consume_ends_quietly_when_its_reader_has_gone() -> None:
    with child_process(
        [sys.executable, "-c", TRUNCATED_PIPE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bare_environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_zones_are_listed_taken_out_and_let_in(service: MemoryPenstock) -> None:
    transport = service.transport
    assert [zone["state"] for zone in _json(transport, "zones", "list")] == ["in_sync"] * 3
    out = _json(transport, "zones", "out", "b", "--reason", "disk work")
    assert (out["zone"], out["state"], out["version"], out["reason"]) == ("b", "taken_out", 1, "disk work")
    assert "disk work" in _run(transport, "zones", "list").stdout
    refused = _run(transport, "zones", "out", "a")
    assert (refused.exit_code, refused.stderr.startswith("error: ZONE_STATE_CONFLICT")) == (1, True)
    assert _json(transport, "zones", "in", "b")["state"] == "catching_up"
    assert _run(transport, "zones", "in", "d").stderr.startswith("error: UNKNOWN_ZONE")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("topics describe ordesr", "topic 'ordesr' does not exist: did you mean 'orders'?"),
        ("offsets quux", "topic 'quux' does not exist: check its name, or create it"),
        ("groups describe billngi", "group 'billngi' does not exist: did you mean 'billing'?"),
        ("groups describe packers", "group 'packers' does not exist: 'packers' is a share group: use `penstock share-"),
        ("share-groups describe billing", "'billing' is a group: use `penstock groups`"),
        ("subscriptions describe hok", "subscription 'hok' does not exist: did you mean 'hook'?"),
        ("groups reset bilingg orders --to earliest", "did you mean 'billing'?"),
    ],
)
def test_unknown_name_is_told_with_the_one_that_was_likely_meant(
    service: MemoryPenstock, orders: str, arguments: str, told: str
) -> None:
    admin = service.admin()
    admin.alter_group("billing", {})
    admin.create_share_group("packers", [orders])
    admin.put_subscription("hook", [orders], {"lambda": "arn:aws:lambda:us-east-1:123456789012:function:f"})
    failed = _run(service.transport, *arguments.split())
    assert failed.exit_code == 1
    assert told in failed.stderr
    failed = _run(service.transport, *arguments.split(), "--json")
    assert json.loads(failed.stderr)["error"]["code"].startswith("UNKNOWN_")


def test_misspelt_group_is_not_made_by_a_reset(service: MemoryPenstock, orders: str) -> None:
    reset = ("groups", "reset", "nosuch", orders, "--to", "earliest")
    failed = _run(service.transport, *reset)
    assert (failed.exit_code, service.admin().list_groups()) == (1, [])
    assert "give --create to make it" in failed.stderr
    assert _run(service.transport, *reset, "--create").exit_code == 0
    assert [each.group for each in service.admin().list_groups()] == ["nosuch"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["consume", "orders", "--from-beginning"], "'--from earliest'"),
        (["consume", "orders", "--max-messages", "3"], "'--max-records'"),
        (["ls"], "'penstock topics list'"),
        (["version"], "'penstock --version'"),
    ],
)
def test_words_of_other_clients_get_ours(arguments: list[str], hint: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, hint in result.stderr) == (2, True), result.stderr
