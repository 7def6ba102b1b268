"""`penstock share-groups` and `penstock work`, against the service in memory."""

import json
import os
import select
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.admin.admin import Admin
from penstock.cli.share_groups import passed_text
from penstock.cli.work import REJECT_CODE, Crew, facts
from penstock.model.share import ShareRecord
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json
from tests.support.child_process import bare_environment, child_process
from tests.support.deadlines import DEADLINE_S, until


@pytest.fixture(autouse=True)
def topics(service: MemoryPenstock) -> None:
    for topic in ("orders", "orders.dead"):
        service.create_topic(topic)


def test_share_group_is_made_shown_altered_and_deleted(service: MemoryPenstock) -> None:
    transport = service.transport
    made = run_json(
        transport, "share-groups", "create", "workers", "orders", "--dead-letters", "orders.dead",
        "--config", "lock_ms=1m", "--filter", '{"type": ["a"]}',
    )  # fmt: skip
    assert made["config"]["lock_ms"] == 60_000
    assert made["config"]["filter"] == {"type": ["a"]}
    assert [each["group"] for each in run_json(transport, "share-groups", "list")] == ["workers"]
    assert "orders.dead" in run(transport, "share-groups", "list").stdout
    altered = run_json(transport, "share-groups", "alter", "workers", "--config", "deliveries_max=9")
    assert (altered["config"]["deliveries_max"], altered["config"]["lock_ms"]) == (9, 60_000)
    assert run_json(transport, "share-groups", "describe", "workers")["partitions"][0]["lag"] == 0
    title, header, row = run(transport, "share-groups", "describe", "workers").stdout.splitlines()
    assert "0 not finished in all" in title
    assert header.startswith("topic   partition  position  in flight  available")
    assert row.split()[0] == "orders"
    assert len(header) <= 80, "the table that a queue's users need most, on a terminal of 80 columns"
    assert run_json(transport, "share-groups", "delete", "workers", "--yes") == {"deleted": "workers"}
    assert run(transport, "share-groups", "describe", "workers").exit_code == 1


def test_listed_topics_are_described_with_the_time_that_they_wait(service: MemoryPenstock) -> None:
    transport = service.transport
    run_json(transport, "share-groups", "create", "workers", "orders.dead", "orders", "--config", "topic_order=listed")
    with service.producer() as producer:
        producer.send("orders", b"1")
    found = run_json(transport, "share-groups", "describe", "workers")
    assert found["topics"] == ["orders.dead", "orders"]
    assert found["waiting_age_ms"] == {"orders.dead": None, "orders": found["partitions"][1]["waiting_age_ms"]}
    text = " ".join(run(transport, "share-groups", "describe", "workers").stdout.split())
    assert "waiting: orders.dead -, orders " in text
    refused = run(transport, "share-groups", "create", "others", "orders", "--config", "topic_order=high")
    assert refused.exit_code == 1
    assert "must be one of any, listed" in refused.stderr


def test_fair_sharing_is_described_with_the_records_that_gave_way(service: MemoryPenstock) -> None:
    transport = service.transport
    made = run_json(transport, "share-groups", "create", "workers", "orders", "--config", "sharing=fair")
    assert made["config"]["sharing"] == "fair"
    assert "passed over" not in run(transport, "share-groups", "describe", "workers").stdout
    found = Admin(transport=transport).describe_share_group("workers")
    passed = replace(found.partitions[0], passed_over=3, passed_over_offset=7)
    assert passed_text(replace(found, partitions=(passed,))) == "; 3 passed over: orders[0] from 7"
    refused = run(transport, "share-groups", "create", "others", "orders", "--config", "fair_by=tenant")
    assert (refused.exit_code, "it is for sharing=fair" in refused.stderr) == (1, True)


def test_reset_asks_first_and_needs_one_target(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders")
    transport = service.transport
    assert run(transport, "share-groups", "reset", "workers", "orders", "--yes").exit_code == 2
    assert run(transport, "share-groups", "reset", "workers", "orders", "--to", "earliest", stdin=b"n\n").exit_code == 1
    planned = run(transport, "share-groups", "reset", "workers", "orders", "--to", "latest", "--dry-run")
    assert "workers would be set, nothing was changed" in planned.stdout
    done = run_json(transport, "share-groups", "reset", "workers", "orders", "--to", "latest", "--yes")
    assert done == [{"partition": 0, "old_offset": None, "new_offset": 0}]


def test_description_names_the_consumers_with_locks(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders")
    with service.producer() as producer:
        producer.send("orders", b"1")
    with service.share_consumer("orders", group_id="workers", client_id="packer", acknowledge="explicit") as consumer:
        assert len(consumer.poll(timeout_ms=1_000)) == 1
        assert "locks: packer (1)" in " ".join(
            run(service.transport, "share-groups", "describe", "workers").stdout.split()
        )


def test_alter_without_a_change_is_wrong_usage(service: MemoryPenstock) -> None:
    assert run(service.transport, "share-groups", "alter", "workers").exit_code == 2


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_filter_that_is_no_object_is_wrong_usage(service: MemoryPenstock, text: str) -> None:
    result = run(service.transport, "share-groups", "create", "workers", "orders", "--filter", text)
    assert result.exit_code == 2


def _script(path: Path, code: str) -> str:
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_exit_code_of_the_process_decides(service: MemoryPenstock, tmp_path: Path) -> None:
    config = {"retry_backoff_ms_min": 1, "retry_backoff_ms_max": 1}
    service.create_share_group("workers", "orders", config)
    with service.producer() as producer:
        for value in (b"good", b"bad", b"late"):
            producer.send("orders", value, key=b"k", headers=[("h", b"x")])
    script = _script(
        tmp_path / "worker",
        f"""
import os, sys
value, tries = sys.stdin.read(), int(os.environ["PENSTOCK_RECORD_DELIVERY_COUNT"])
place = os.environ["PENSTOCK_RECORD_TOPIC"] + os.environ["PENSTOCK_RECORD_KEY"] + os.environ["PENSTOCK_RECORD_HEADERS"]
with open({str(tmp_path / "log")!r}, "a") as log:
    log.write(f"{{value}} {{tries}} {{place}}\\n")
sys.exit({{"good": 0, "bad": {REJECT_CODE}, "late": 0 if tries > 1 else 3}}[value])
""",
    )
    result = run(service.transport, "work", "workers", "--json", "--idle", "1s", "--concurrency", "2", "--", script)
    assert json.loads(result.stdout) == {"accepted": 2, "rejected": 1, "released": 1}
    assert f"released orders[0] offset 2 after delivery 1: {script}: exit code 3" in result.stderr
    assert "share group workers has no dead-letter topic: a record that exit code 65 rejects is" in result.stderr
    place = 'ordersk[["h", "x"]]'
    assert sorted((tmp_path / "log").read_text().splitlines()) == [
        f"bad 1 {place}",
        f"good 1 {place}",
        f"late 1 {place}",
        f"late 2 {place}",
    ]
    assert service.admin().describe_share_group("workers").partitions[0].lag == 0


def test_command_that_does_not_exist_takes_no_record(service: MemoryPenstock, tmp_path: Path) -> None:
    service.create_share_group("workers", "orders")
    missing = str(tmp_path / "missing")
    result = run(service.transport, "work", "workers", "--", missing)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{missing} cannot be started: there is no such program, or you may not execute it" in result.stderr


def test_command_that_cannot_start_gives_its_records_back_uncounted_and_ends(
    service: MemoryPenstock, tmp_path: Path
) -> None:
    service.create_share_group("workers", "orders", {"deliveries_max": 1, "dead_letter_topic": "orders.dead"})
    with service.producer() as producer:
        for value in (b"1", b"2", b"3"):
            producer.send("orders", value)
    script = Path(_script(tmp_path / "worker", ""))
    script.write_text("#!/there/is/no/such/interpreter\n")
    result = run(service.transport, "work", "workers", "--json", "--concurrency", "3", "--", str(script))
    assert result.exit_code == 1
    assert f"{script} cannot be started" in json.loads(result.stderr.splitlines()[-1])["error"]["message"]
    [orders] = service.admin().describe_share_group("workers").partitions
    assert (orders.lag, orders.in_flight) == (3, 0)
    with service.share_consumer("orders", group_id="workers", acknowledge="explicit") as consumer:
        assert {record.delivery_count for record in consumer.poll(timeout_ms=10_000)} == {1}


@pytest.mark.parametrize("code", [126, 127])
def test_shell_that_finds_no_program_gives_records_back_uncounted_and_ends(service: MemoryPenstock, code: int) -> None:
    service.create_share_group("workers", "orders", {"deliveries_max": 1, "dead_letter_topic": "orders.dead"})
    with service.producer() as producer:
        for number in range(15):
            producer.send("orders", b"%d" % number)
    shell = ["sh", "-c", f"echo no such program >&2; exit {code}"]
    result = run(service.transport, "work", "workers", "--concurrency", "3", "--", *shell)
    assert result.exit_code == 1
    assert f"sh cannot be started: exit code {code}: no such program; no record was lost" in result.stderr
    [orders] = service.admin().describe_share_group("workers").partitions
    assert (orders.lag, orders.in_flight) == (15, 0)
    assert service.records("orders.dead") == []


def test_code_of_a_shell_counts_once_the_command_has_worked(service: MemoryPenstock) -> None:
    """Else a record that makes a handler end so would come again for ever."""
    service.create_share_group("workers", "orders", {"deliveries_max": 1, "dead_letter_topic": "orders.dead"})
    with service.producer() as producer:
        for value in (b"0", b"127"):
            producer.send("orders", value)
    result = run(service.transport, "work", "workers", "--json", "--idle", "1s", "--", "sh", "-c", "exit $(cat)")
    assert json.loads(result.stdout) == {"accepted": 1, "rejected": 0, "released": 1}
    assert [record.value for record in service.records("orders.dead")] == [b"127"]


def test_failing_command_stops_at_ten_records_and_tells_it_at_the_end(service: MemoryPenstock, tmp_path: Path) -> None:
    service.create_share_group("workers", "orders", {"deliveries_max": 1, "dead_letter_topic": "orders.dead"})
    with service.producer() as producer:
        for number in range(15):
            producer.send("orders", b"%d" % number)
    script = _script(tmp_path / "worker", "import sys; print('no disk', file=sys.stderr); sys.exit(3)")
    result = run(service.transport, "work", "workers", "--idle", "500ms", "--", script)
    assert result.exit_code == 1
    assert f"the last 10 runs of {script} have failed" in result.stderr
    assert service.admin().describe_share_group("workers").partitions[0].lag == 5
    with service.consumer("orders.dead") as consumer:
        dead = consumer.poll(timeout_ms=10_000)
    assert {dict(record.headers)["penstock.dead-letter.reason"] for record in dead} == {
        b"deliveries: exit code 3: no disk"
    }


def test_environment_that_is_too_large_is_the_record_s_fault(service: MemoryPenstock) -> None:
    service.create_share_group("workers", "orders", {"retry_backoff_ms_min": 60_000})
    with service.producer() as producer:
        producer.send("orders", b"1", headers=[("h", b"x" * 200_000)])
        producer.send("orders", b"2")
    result = run(service.transport, "work", "workers", "--json", "--idle", "1s", "--", "true")
    assert json.loads(result.stdout) == {"accepted": 1, "rejected": 0, "released": 1}
    assert service.admin().describe_share_group("workers").partitions[0].waiting == 1


def test_process_that_outlasts_the_drain_is_killed_and_its_record_released(
    service: MemoryPenstock, tmp_path: Path
) -> None:
    service.create_share_group("workers", "orders", {"retry_backoff_ms_min": 60_000})
    with service.producer() as producer:
        producer.send("orders", b"1")
    begun = tmp_path / "begun"
    script = _script(tmp_path / "worker", f"import time; open({str(begun)!r}, 'w').close(); time.sleep(3_600)")
    consumer = service.share_consumer("orders", group_id="workers")
    crew = Crew(consumer, [script], drain_ms=0)
    ended = threading.Thread(target=lambda: consumer.run(crew.handle, concurrency=1))
    ended.start()
    until(begun.exists)
    consumer.stop()
    ended.join(DEADLINE_S)
    assert not ended.is_alive()
    assert crew.counts == {"released": 1}
    assert service.admin().describe_share_group("workers").partitions[0].waiting == 1


def test_process_ends_with_its_worker_when_the_worker_is_killed() -> None:
    worker = """
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run
service = MemoryPenstock()
service.create_topic("orders")
service.create_share_group("workers", "orders")
with service.producer() as producer:
    producer.send("orders", b"1")
run(service.transport, "work", "workers", "--", "sh", "-c", "cat >/dev/null; echo begun; exec sleep 90")
"""
    environ = {**bare_environment(), "PATH": os.defpath}
    with child_process([sys.executable, "-c", worker], stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
        ended, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
        assert ended, "the last process that holds the pipe is the command"
        assert process.stdout.read() == b""


def test_facts_are_text_that_an_environment_can_hold() -> None:
    record = ShareRecord("t", 1, 2, 3, b"a\0b", None, (("h", b"\xff"),), 4, "lock")
    told = facts(record)
    assert told["PENSTOCK_RECORD_KEY_BASE64"] == "YQBi"
    assert "PENSTOCK_RECORD_KEY" not in told
    assert told["PENSTOCK_RECORD_IS_NULL"] == "1"
    assert json.loads(told["PENSTOCK_RECORD_HEADERS"]) == [["h", {"base64": "/w=="}]]
    assert {**os.environ, **told}["PENSTOCK_RECORD_DELIVERY_COUNT"] == "4"
