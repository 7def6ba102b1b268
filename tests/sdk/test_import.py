"""`import penstock` is short: it loads no library that only some programs need.

A client that was made before fork() says so at once in the child, and does nothing there at its end.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child_process import bare_environment, child_process

UNWANTED = {
    *("aiohttp", "aiokafka", "boto3", "botocore", "click", "numpy", "opentelemetry", "pydantic", "rich", "sqlite3"),
}


def imported(code: str) -> set[str]:
    """The top-level names of the modules that a new process has loaded after `code`."""
    return {name.partition(".")[0] for name in modules_after(code)}


def modules_after(code: str) -> set[str]:
    """The modules that a new process has loaded after `code`."""
    path = [entry for entry in sys.path if entry]
    script = f"import sys; sys.path[:0] = {path!r}; {code}; import json; print(json.dumps([*sys.modules]))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(json.loads(found.stdout))


@pytest.mark.slow
def test_import_of_penstock_loads_no_client_until_one_is_named() -> None:
    assert "penstock_core" not in imported("import penstock")
    loaded = modules_after("from penstock import Producer")
    assert "penstock.producer.producer" in loaded
    assert not {"penstock.consumer.consumer", "penstock.share.share_consumer", "penstock.admin.admin"} & loaded


@pytest.mark.slow
def test_help_of_the_command_line_loads_no_command() -> None:
    code = "from click.testing import CliRunner; from penstock.cli import main; CliRunner().invoke(main, ['--help'])"
    assert {each for each in modules_after(code) if each.startswith("penstock")} == {"penstock", "penstock.cli"}


@pytest.mark.slow
def test_import_of_penstock_loads_no_library_that_only_some_programs_need() -> None:
    assert not UNWANTED & imported("from penstock import *")


@pytest.mark.slow
def test_command_line_loads_no_library_that_only_some_commands_need() -> None:
    """Neither AWS's chain nor the server, even if completion asks all commands for their help."""
    assert not {"aiohttp", "boto3", "jinja2", "botocore", "numpy", "penstock_service", "pydantic"} & imported(
        "import click; from penstock.cli import SUMMARIES, main; context = click.Context(main); "
        "all(main.get_command(context, each) for each in SUMMARIES) or exit(1)"
    )


@pytest.mark.slow
def test_penstock_dev_and_testing_load_no_client_of_aws() -> None:
    """The server starts within two seconds: the functions that it shares with Lambda must not bring boto3."""
    unwanted = {"boto3", "s3transfer", "aws_xray_sdk"}
    assert not unwanted & imported("import penstock.dev.service, penstock.testing")


@pytest.mark.slow
def test_producer_with_local_keys_needs_no_botocore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found, and signs, without the chain of AWS credentials."""
    monkeypatch.chdir(tmp_path)
    values = "PENSTOCK_URL=http://127.0.0.1:9\\nAWS_REGION=r\\nAWS_ACCESS_KEY_ID=k\\nAWS_SECRET_ACCESS_KEY=s\\n"
    code = (
        "import os; os.umask(0o077); os.mkdir('.penstock'); f = open('.penstock/local.env', 'w'); "
        f"f.write('{values}'); f.close(); "
        "from penstock import Producer; from penstock.configuration import find_configuration; "
        "from penstock.http.signature import sign; Producer().close(); "
        "sign(find_configuration(), 'GET', '/v1/topics', {}, {}, b'')"
    )
    loaded = imported(code)
    assert "penstock" in loaded
    assert not {"botocore", "aiokafka"} & loaded


WITHOUT_CLIENTS_OF_AWS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("boto3", "botocore"):
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Absent())

from penstock.testing import MemoryPenstock

with MemoryPenstock(inline_bytes_max=1_000) as service:
    service.create_topic("orders")
    service.create_share_group("packers", ["orders"])
    with service.producer() as producer:
        producer.send("orders", b"plain").result()
    with service.producer(transactional_id="till") as producer, producer.transaction():
        producer.send("orders", b"committed")
    with service.consumer("orders", group_id="billing") as consumer:
        read = consumer.poll()
        consumer.commit()
    with service.share_consumer("orders", group_id="packers") as consumer:
        for record in consumer.poll():
            consumer.accept(record)
    assert [each.value for each in read] == [b"plain", b"committed"], read
"""


@pytest.mark.slow
def test_testing_runs_where_no_client_of_aws_is_installed() -> None:
    path = [entry for entry in sys.path if entry]
    script = f"import sys; sys.path[:0] = {path!r}\n{WITHOUT_CLIENTS_OF_AWS}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


FORKED = """
import asyncio, json, os, sys, threading
from penstock import ForkedError
from penstock_handlers.edge import json_api
from penstock.testing import MemoryPenstock

service = MemoryPenstock()
service.create_topic("t")
producer = service.producer(linger_ms=600_000, transactional_id="id")
consumer = service.consumer("t", group_id="g", fetch_wait_ms=10)
sent = producer.send("t", b"of the parent")
consumer.poll(timeout_ms=0)
async_producer, async_consumer = service.async_producer(), service.async_consumer("t", group_id="g")

def refusal(call):
    try:
        call()
    except ForkedError:
        return "refused"
    return "done"

# A thread of the parent may hold a lock at the fork, and is not there to release it.
# A service in this process has locks of its own, which HTTP would not bring along: this thread holds the shared one.
with producer._sender.lock, consumer._fetcher.lock, json_api._resolving:
    reader, writer = os.pipe()
    child = os.fork()
if child == 0:
    told = {
        "send": refusal(lambda: producer.send("t", b"v")),
        "flush": refusal(producer.flush),
        "transaction": refusal(producer.transaction),
        "poll": refusal(consumer.poll),
        "iteration": refusal(lambda: next(consumer)),
        "commit": refusal(consumer.commit),
        "subscribe": refusal(lambda: consumer.subscribe("t")),
        "async send": refusal(lambda: asyncio.run(async_producer.send("t", b"v"))),
        "async flush": refusal(lambda: asyncio.run(async_producer.flush())),
        "async poll": refusal(lambda: asyncio.run(async_consumer.poll())),
        "async iteration": refusal(lambda: asyncio.run(anext(async_consumer))),
        # Its own service too: a thread of the parent may hold a lock of `service` in the middle of a call.
        "own client": refusal(lambda: MemoryPenstock().admin().list_topics()),
    }
    producer.close()
    consumer.close()
    asyncio.run(async_producer.close())
    asyncio.run(async_consumer.close())
    os.write(writer, json.dumps(told).encode())
    sys.exit(0)  # not os._exit: what runs at an exit must not hang either
os.close(writer)
told = open(reader).read()
assert os.waitpid(child, 0)[1] == 0
producer.close()
assert sent.result().offset == 0
assert len(service.records("t")) == 1
service.close()
print(told)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_clients_of_the_parent_refuse_at_once_in_a_forked_child_and_end_without_harm() -> None:
    with child_process(
        [sys.executable, "-c", FORKED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bare_environment(),
    ) as process:
        written, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    told = json.loads(written)
    assert told.pop("own client") == "done"
    assert set(told.values()) == {"refused"}, told
