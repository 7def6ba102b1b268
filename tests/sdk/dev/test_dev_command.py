"""`penstock dev` as a process: where it writes, how clients find it, how it ends, and what survives a kill. `penstock
doctor` against `penstock dev`.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import Admin, Consumer, Producer
from penstock.api.record_trace import trace_record
from penstock.cli import main
from penstock.cli.dev import Ready
from penstock.configuration import LOCAL_ENV, Configuration, StaticCredentials, find_configuration
from penstock.doctor.examination import AWS_ONLY, examine
from penstock.doctor.finding import Verdict
from penstock.doctor.recorder import AwsCalls, RecordingTransport
from penstock.http.client import Client
from penstock.http.transport import HttpTransport
from tests.sdk.console.visitor import Visitor
from tests.sdk.dev.conftest import Server
from tests.support.child_process import child_process
from tests.support.deadlines import until
from tests.support.penstock_command import penstock

pytestmark = pytest.mark.slow
SECRETS = ("PENSTOCK_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class Command:
    """`penstock dev --json` in `folder`, from the checkout's sources. It answers once it is made."""

    def __init__(self, stack: ExitStack, folder: Path, *options: str, stdout: int | None = None) -> None:
        script = f"import sys; sys.path[:0] = {[each for each in sys.path if each]!r}; sys.argv[0] = 'penstock'; "
        script += "from penstock.cli import main; main()"
        self.process = stack.enter_context(
            child_process(
                [sys.executable, "-c", script, "dev", "--port", "0", "--json", *options],
                cwd=folder,
                stdout=subprocess.PIPE if stdout is None else stdout,
                stderr=subprocess.PIPE,
                text=True,
                env={name: value for name, value in os.environ.items() if name not in SECRETS},
            )
        )
        line = "" if self.process.stdout is None else self.process.stdout.readline()
        self.facts: dict[str, Any] = json.loads(line) if line else {}

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code after that signal, and what it said on stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate()
        return self.process.returncode, said


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a service, to work in."""
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(here: Path) -> Iterator[Callable[..., Command]]:
    """Starts `penstock dev` in a folder, by default here."""
    with ExitStack() as stack:

        def start(*options: str, folder: Path = here) -> Command:
            return Command(stack, folder, *options)

        yield start


@pytest.fixture
def command(start: Callable[..., Command]) -> Command:
    return start("--topic", "orders:2")


def _transport_of(folder: Path) -> HttpTransport:
    """The transport of a client in another folder."""
    told = _environment(folder / LOCAL_ENV)
    keys = StaticCredentials(told["AWS_ACCESS_KEY_ID"], told["AWS_SECRET_ACCESS_KEY"])
    return HttpTransport(Configuration(url=told["PENSTOCK_URL"], region=told["AWS_REGION"], credentials=keys))


def transport() -> HttpTransport:
    return HttpTransport(find_configuration())


def test_clients_find_it_below_its_folder(command: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    assert find_configuration().url == command.facts["url"]
    with Producer() as producer:
        producer.send("orders", b"x")
    with Consumer("orders") as consumer:
        assert next(consumer).value == b"x"
    assert len(Admin().describe_topic("orders").offsets) == 2


def test_only_its_owner_can_read_the_keys(command: Command, here: Path) -> None:
    assert command.facts["env_file"] == str(here / ".penstock" / "local.env")
    assert (here / ".penstock").stat().st_mode & 0o777 == 0o700
    assert (here / ".penstock" / "local.env").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in (here / ".penstock").iterdir()] == ["local.env"]


def test_console_beside_it_shows_its_topics_and_may_be_left_out(
    command: Command, start: Callable[..., Command]
) -> None:
    link = command.facts["console"]
    visitor = Visitor(link.partition("/enter")[0])
    visitor.open(link)
    assert "orders" in visitor.get("/topics").text
    assert command.end(signal.SIGTERM) == (0, "")
    assert start("--no-console").facts["console"] is None


def test_function_of_the_option_is_called_under_its_name(start: Callable[..., Command], here: Path) -> None:
    (here / "handlers.py").write_text("def pack(event, context): open('called', 'w').close()")
    command = start("--topic", "orders", "--function", "pack=handlers.py:pack")
    assert command.facts["functions"] == {"pack": "arn:aws:lambda:us-east-1:000000000000:function:pack"}
    code, said, failure = penstock(here, {}, "subscriptions", "create", "packing", "orders", "--lambda", "pack")
    assert (code, "function:pack" in said) == (0, True), failure
    with Producer() as producer:
        producer.send("orders", b"x")
    until((here / "called").exists)


def test_start_tells_functions_and_the_file_of_deliveries(capsys: pytest.CaptureFixture[str]) -> None:
    ready = Ready(
        url="http://127.0.0.1:1",
        env_file=Path("/x/.penstock/local.env"),
        data=None,
        console=None,
        functions={"pack": "arn:aws:lambda:us-east-1:000000000000:function:pack"},
    )
    ready.say(as_json=False)
    said = capsys.readouterr().out
    assert "Function pack is arn:aws:lambda:us-east-1:000000000000:function:pack" in said
    assert "penstock subscriptions create pack TOPIC --lambda pack" in said
    assert "/x/.penstock/deliveries.jsonl" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["pack"], "NAME=path/file.py:callable"),
        (["pack=nosuch.py:pack"], "there is no file 'nosuch.py'"),
        (["pack=a:b", "pack=a:c"], "'pack' is there twice"),
    ],
)
def test_function_that_cannot_be_is_refused(here: Path, given: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["dev", "--port", "0", *(word for each in given for word in ("--function", each))])
    assert done.exit_code == 2
    assert said in done.output
    assert not (here / ".penstock").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_and_removes_the_keys(command: Command, here: Path, number: signal.Signals) -> None:
    assert command.end(number) == (0, "")
    assert not (here / ".penstock" / "local.env").exists()


def test_acknowledged_records_and_offsets_survive_a_kill(start: Callable[..., Command]) -> None:
    command = start("--data", "data", "--topic", "orders:2")
    with Producer(transport=transport()) as producer:
        sent = [producer.send("orders", b"%d" % number) for number in range(500)]
        producer.flush()
    acknowledged = {(each.result().partition, each.result().offset) for each in sent}
    with Consumer("orders", group_id="g", transport=transport(), enable_auto_commit=False) as consumer:
        read = [next(consumer) for _ in range(100)]
        consumer.commit()
    assert command.end(signal.SIGKILL)[0] == -signal.SIGKILL
    again = start("--data", "data", "--topic", "orders:2")
    with Consumer("orders", group_id="g", transport=transport()) as consumer:
        rest = [next(consumer) for _ in range(400)]
    assert {(each.partition, each.offset) for each in (*read, *rest)} == acknowledged
    assert again.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("options", "kinds"), [((), ("expiring", "inline")), (("--inline-bytes-max", "0"), ("zonal", "zonal"))]
)
def test_small_appends_are_items_as_in_a_stage_and_survive_a_kill(
    start: Callable[..., Command], options: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    command = start("--data", "data", *options)
    topics = {"orders": {}, "kept": {"retention_ms": -1}}
    with Producer(transport=transport()) as producer:
        for name, config in topics.items():
            Admin(transport=transport()).create_topic(name, config=config)
            for value in (b"small", os.urandom(10_000)):
                producer.send(name, value).result()
    assert command.end(signal.SIGKILL)[0] == -signal.SIGKILL
    start("--data", "data")
    client = Client(transport())
    for offset, expected in enumerate((kinds, ("zonal", "zonal"))):
        traced = [client.call(trace_record(name, 0, offset, consumers_max=1)) for name in topics]
        assert tuple(each.place.kind for each in traced) == expected
    with Consumer(*topics, transport=transport()) as consumer:
        assert sorted(len(next(consumer).value or b"") for _ in range(4)) == [5, 5, 10_000, 10_000]


def test_server_mirrors_topics_to_one_that_has_its_keys_and_moves_them_there(
    start: Callable[..., Command], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (here / name).mkdir()
    urls = [start("--topic", "orders:2", folder=here / "a").facts["url"]]
    urls.append(start("--keys-of", "../a", folder=here / "b").facts["url"])
    first, second = (_transport_of(here / name) for name in ("a", "b"))
    with Producer(transport=first) as producer:
        producer.send("orders", b"early", partition=1).result()
    Admin(transport=first).create_mirror("dr", ["orders"], urls[1], source=urls[0])
    until(lambda: [each.name for each in Admin(transport=second).list_topics()] == ["orders"])
    for name, value in _environment(here / "b" / LOCAL_ENV).items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(main, ["mirrors", "promote", "orders", "--yes"])
    assert result.exit_code == 0, result.stderr
    with Producer(transport=second) as producer:
        assert producer.send("orders", b"late", partition=1).result().offset == 1
    with Consumer("orders", transport=second) as consumer:
        assert [next(consumer).value for _ in range(2)] == [b"early", b"late"]


def test_server_goes_on_when_the_reader_of_its_output_has_gone(here: Path) -> None:
    outlet, inlet = os.pipe()
    os.close(outlet)
    with ExitStack() as stack:
        command = Command(stack, here, stdout=inlet)
        os.close(inlet)
        until((here / LOCAL_ENV).exists)
        assert Admin(transport=transport()).list_topics() == []
        assert command.end(signal.SIGTERM) == (0, "")


def test_keys_of_a_folder_without_a_server_are_told(here: Path) -> None:
    result = CliRunner().invoke(main, ["dev", "--keys-of", "."])
    assert (result.exit_code, "start it first" in result.stderr) == (2, True), result.stderr


def test_keys_of_a_file_without_keys_are_told(running: Server, here: Path) -> None:
    (here / LOCAL_ENV).parent.mkdir()
    (here / LOCAL_ENV).write_text(f"PENSTOCK_URL={running.url}\n")
    (here / "b").mkdir()
    os.chdir(here / "b")
    result = CliRunner().invoke(main, ["dev", "--keys-of", ".."])
    assert (result.exit_code, "local.env tells no keys" in result.stderr) == (2, True), result.stderr


def test_producer_goes_on_and_stores_each_record_once_when_the_server_is_killed(start: Callable[..., Command]) -> None:
    command = start("--data", "data", "--topic", "orders:2")
    port = command.facts["url"].rpartition(":")[2]
    producer = Producer(transport=transport(), linger_ms=0)
    sent = [producer.send("orders", b"%d" % number) for number in range(100)]
    sent[0].result()  # some are stored, and others are on their way
    command.end(signal.SIGKILL)
    sent += [producer.send("orders", b"%d" % number) for number in range(100, 200)]
    start("--data", "data", "--port", port)
    producer.close()
    places = {(each.result().partition, each.result().offset) for each in sent}
    with Consumer("orders", transport=transport()) as consumer:
        read = [next(consumer) for _ in range(200)]
    assert sorted(int(each.value or b"") for each in read) == list(range(200))
    assert {(each.partition, each.offset) for each in read} == places


def test_verbose_tells_each_request(start: Callable[..., Command]) -> None:
    command = start("--verbose")
    Admin().list_topics()
    code, said = command.end(signal.SIGTERM)
    assert code == 0
    assert re.fullmatch(r"INFO GET /v1/topics\S* 200 \d+ ms\n", said)


def test_two_servers_do_not_share_a_data_folder(start: Callable[..., Command], here: Path) -> None:
    first = start("--data", "data")
    (here / "other").mkdir()
    second = start("--data", "../data", folder=here / "other")
    said = second.process.communicate()[1]
    assert second.process.returncode == 1
    assert "in use by another `penstock dev`" in json.loads(said)["error"]["message"]
    assert first.end(signal.SIGTERM) == (0, "")


def test_second_server_of_a_folder_is_refused(command: Command, start: Callable[..., Command]) -> None:
    second = start()
    said = second.process.communicate()[1]
    assert second.process.returncode == 1
    assert command.facts["url"] in said
    assert "another folder" in said
    assert find_configuration().url == command.facts["url"]


def test_keys_of_a_server_that_was_killed_are_replaced(
    command: Command, start: Callable[..., Command], here: Path
) -> None:
    command.end(signal.SIGKILL)
    assert (here / ".penstock" / "local.env").exists()
    again = start()
    assert find_configuration().url == again.facts["url"]
    assert again.end(signal.SIGTERM) == (0, "")


def test_keys_that_another_server_has_replaced_stay(command: Command, here: Path) -> None:
    other = "PENSTOCK_URL=http://127.0.0.1:9\n"
    (here / ".penstock" / "local.env").write_text(other)
    assert command.end(signal.SIGTERM) == (0, "")
    assert (here / ".penstock" / "local.env").read_text() == other


def test_port_that_is_taken_is_told(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["dev", "--port", str(port)])
    assert done.exit_code == 1
    assert f"port {port} is taken" in done.output
    assert "--port 0" in done.output
    assert not (here / ".penstock").exists()


def test_folder_that_cannot_hold_the_keys_is_told(here: Path) -> None:
    (here / ".penstock").write_text("in the way")
    done = CliRunner().invoke(main, ["dev", "--port", "0"])
    assert done.exit_code == 1
    assert f"{here / '.penstock' / 'local.env'} cannot be written" in done.output


@pytest.mark.parametrize(
    ("topic", "said"),
    [("orders:", "NAME:PARTITIONS"), ("a/b", "INVALID_NAME"), ("orders:x", "NAME:PARTITIONS"), ("o:0", "INVALID")],
)
def test_topic_that_cannot_be_is_refused(here: Path, topic: str, said: str) -> None:
    done = CliRunner().invoke(main, ["dev", "--port", "0", "--topic", topic])
    assert done.exit_code in (1, 2)
    assert said in done.output
    assert not (here / ".penstock").exists()


def test_missing_extra_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("env_file", "http_server", "service"):
        monkeypatch.setitem(sys.modules, f"penstock.dev.{name}", None)
    done = CliRunner().invoke(main, ["dev"])
    assert done.exit_code == 1
    assert "pip install 'penstock[dev]'" in done.output


@pytest.mark.parametrize("arguments", [["local", "up"], ["local", "status"], ["jobs", "list"]])
def test_command_of_a_checkout_names_dev_outside_of_one(
    here: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    from penstock.cli.local import local

    monkeypatch.setattr(sys.modules[local.callback.__module__], "__file__", str(here / "local.py"))
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "`penstock dev`" in done.output


def _environment(path: Path) -> dict[str, str]:
    assert path.stat().st_mode & 0o077 == 0, "others may read the keys"
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


@pytest.mark.minutes
def test_users_and_tokens_work_by_rules_when_the_server_denies_by_default(
    start: Callable[..., Command], here: Path
) -> None:
    """As a user walks it, each step a process: refused, told the way out, allowed, refused again."""
    server = start("--acl-default", "deny", "--principal", "shop", "--token", "alice", "--topic", "orders")
    shop, alice = (_environment(here / ".penstock" / f"{name}.env") for name in ("shop", "alice"))
    user = "arn:aws:iam::000000000000:user/shop"
    for caller, name in ((shop, user), (alice, "jwt:alice")):
        code, _, said = penstock(here, caller, "topics", "describe", "orders")
        assert (code, "may not describe" in said, "penstock acls add" in said) == (1, True, True), said
        code, told, _ = penstock(here, {}, "acls", "check", name, "read", "topic:orders")
        assert (code, "may not read" in told) == (1, True), told
        assert penstock(here, {}, "acls", "add", name, "read", "topic:orders")[0] == 0
        code, told, _ = penstock(here, {}, "acls", "check", name, "read", "topic:orders")
        assert (code, "an allow rule" in told) == (0, True), told
    assert penstock(here, shop, "topics", "describe", "orders")[0] == 0
    assert penstock(here, alice, "topics", "describe", "orders")[0] == 0
    code, listed, _ = penstock(here, {}, "acls", "list", "--json")
    assert code == 0
    assert {rule["principal"] for rule in json.loads(listed)} == {user, "jwt:https://dev.penstock.invalid#alice"}
    code, _, said = penstock(here, alice, "acls", "add", "jwt:alice", "all", "*")
    assert (code, "takes no tokens" in said) == (1, True), said
    assert penstock(here, {}, "acls", "remove", user, "read", "topic:orders")[0] == 0
    assert penstock(here, shop, "topics", "describe", "orders")[0] == 1
    code, _, said = penstock(here, {}, "acls", "add", "somebody", "read", "topic:orders")
    assert (code, "jwt:ISSUER#SUBJECT" in said) == (1, True), said
    server.end(signal.SIGTERM)
    assert not [*(here / ".penstock").glob("*.env")]


def test_doctor_finds_the_dev_server_well_and_skips_aws(running: Server) -> None:
    transport = RecordingTransport(running.transport())
    report = examine(transport, None, AwsCalls())
    transport.close()
    assert report.is_well, report.findings
    verdicts = {finding.check: finding.verdict for finding in report.findings}
    assert verdicts["clock"] is Verdict.OK
    assert all(verdicts[check] is Verdict.SKIPPED for check in AWS_ONLY)
