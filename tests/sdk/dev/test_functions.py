"""`penstock dev` calls Python functions as Lambda does, imports them again when they change, and says what is wrong."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.dev import functions
from penstock.dev.functions import DevFunctions, FunctionPlace, parse_function
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.batch import Answer, Answered, Failed, Failure
from penstock_core.push.targets.target import FunctionTarget
from penstock_service.adapters.targets.function import LambdaFunctions
from tests.support.push_records import StoredRecord, orders

ELSEWHERE = "arn:aws:lambda:eu-west-1:123456789012:function:pack:prod"
MAY_END = threading.Event()  # for functions that the tests write


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the test's own, whose modules the process forgets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [name for name, each in [*sys.modules.items()] if str(tmp_path) in str(getattr(each, "__file__", ""))]:
        del sys.modules[name]


def write(name: str, *lines: str) -> Path:
    """Write the file, with a time of its own: two versions may come within one tick of the file system."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    before_ns = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, ns=(before_ns + 1_000_000_000, before_ns + 1_000_000_000))
    return path


class Called:
    """Functions behind the service's own adapter."""

    def __init__(self, *given: str) -> None:
        self.functions = DevFunctions([parse_function(each) for each in given])
        self.adapter = LambdaFunctions(self.functions.client, "arn:aws:iam::000000000000:role/penstock-dev")

    def deliver(self, arn: str = ELSEWHERE, timeout_ms: int = 60_000) -> Answer:
        return self.adapter.deliver(FunctionTarget(arn=arn), orders(StoredRecord(15), StoredRecord(16)), timeout_ms)


def refusal(answer: Answer) -> str:
    assert isinstance(answer, Failed)
    assert answer.failure is Failure.REFUSAL
    return answer.error


def test_function_gets_the_event_and_context_of_lambda_under_an_arn_of_any_account() -> None:
    write(
        "handlers.py",
        "def pack(event, context):",
        "    assert [each['offset'] for each in event['records']['orders-0']] == [15, 16]",
        "    assert event['eventSource'] == 'SelfManagedKafka'",
        "    assert context.function_name == 'pack' and context.aws_request_id",
        f"    assert context.invoked_function_arn == {ELSEWHERE!r}",
        "    assert 0 < context.get_remaining_time_in_millis() <= 60_000",
    )
    assert Called("pack=handlers.py:pack").deliver() == Answered()


def test_place_may_be_a_module_and_the_callable_of_an_object() -> None:
    write("shop/__init__.py")
    write("shop/orders.py", "class App:", "    def pack(self, event, context): return None", "app = App()")
    assert Called("pack=shop.orders:app.pack").deliver() == Answered()


def test_records_that_the_answer_names_fail_alone() -> None:
    failure = {"itemIdentifier": {"partition": "orders-0", "offset": 16}}
    write("handlers.py", f"def pack(event, context): return {{'batchItemFailures': [{failure!r}]}}")
    answer = Called("pack=handlers.py:pack").deliver()
    assert isinstance(answer, Answered)
    assert [offset for _, offset in answer.failed] == [16]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('bad record')", "ValueError: bad record"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("return object()", "Runtime.MarshalError: the answer is not JSON"),
        ("return {'batchItemFailures': 1}", "batchItemFailures=1 is not an array"),
    ],
)
def test_function_that_fails_refuses_the_batch_and_its_words_are_told(body: str, said: str) -> None:
    write("handlers.py", f"def pack(event, context): {body}")
    assert said in refusal(Called("pack=handlers.py:pack").deliver())


def test_function_that_does_not_answer_in_time_is_broken_and_the_next_call_may_succeed() -> None:
    write(
        "handlers.py",
        f"from {__name__} import MAY_END",
        "def pack(event, context):",
        "    MAY_END.wait()",
    )
    MAY_END.clear()
    called = Called("pack=handlers.py:pack")
    assert called.deliver(timeout_ms=1) == Failed(
        failure=Failure.BROKEN, error="function 'pack' has not answered within 0.001 s, and runs on"
    )
    MAY_END.set()
    assert called.deliver() == Answered()


def test_function_whose_calls_do_not_end_is_called_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "DEV_FUNCTION_CALLS_MAX", 1)
    write("handlers.py", f"from {__name__} import MAY_END", "def pack(event, context): MAY_END.wait()")
    MAY_END.clear()
    called = Called("pack=handlers.py:pack")
    called.deliver(timeout_ms=1)
    answer = called.deliver()
    MAY_END.set()
    assert isinstance(answer, Failed)
    assert answer.failure is Failure.AWAY
    assert "1 calls of 'pack' have not ended: start the server anew" in answer.error


@pytest.mark.parametrize("given", ["pack=handlers.py:pack", "pack=handlers:pack"])
def test_changed_file_counts_at_the_next_call(given: str) -> None:
    write("handlers.py", "def pack(event, context): raise ValueError('one')")
    called = Called(given)
    assert "one" in refusal(called.deliver())
    write("handlers.py", "def pack(event, context): raise ValueError('two')")
    assert "two" in refusal(called.deliver())


def test_unchanged_function_keeps_its_module_between_calls() -> None:
    write(
        "handlers.py",
        "calls = []",
        "def pack(event, context):",
        "    calls.append(1)",
        "    return 1 / (len(calls) - 2)",
    )
    called = Called("pack=handlers.py:pack")
    assert called.deliver() == Answered()
    assert "ZeroDivisionError" in refusal(called.deliver())


def test_changed_module_of_its_folder_counts_too_also_for_a_second_function() -> None:
    write("helper.py", "WORD = 'one'")
    write("handlers.py", "import helper", "def pack(event, context): raise ValueError(helper.WORD)", "bill = pack")
    called = Called("pack=handlers:pack", "bill=handlers:bill")
    bill = ELSEWHERE.replace(":pack:prod", ":bill")
    assert "one" in refusal(called.deliver())
    assert "one" in refusal(called.deliver(bill))
    write("helper.py", "WORD = 'two'")
    assert "two" in refusal(called.deliver(bill))
    assert "two" in refusal(called.deliver())


def test_two_functions_may_have_files_of_one_name() -> None:
    for name in ("pack", "bill"):
        write(f"{name}/handler.py", f"def handle(event, context): raise ValueError({name!r})")
    called = Called("pack=pack/handler.py:handle", "bill=bill/handler.py:handle")
    assert "pack" in refusal(called.deliver())
    assert "bill" in refusal(called.deliver(ELSEWHERE.replace(":pack:prod", ":bill")))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["import nosuchmodule"], "ModuleNotFoundError: No module named 'nosuchmodule'"),
        (["def pack("], "SyntaxError"),
        (["import sys; sys.exit(1)"], "SystemExit: 1"),
        (["def bill(): pass"], "AttributeError"),
        (["pack = 1"], "TypeError: pack of handlers.py is no callable"),
    ],
)
def test_import_error_is_the_failure_until_the_file_is_mended(lines: list[str], said: str) -> None:
    write("handlers.py", *lines)
    called = Called("pack=handlers.py:pack")
    error = refusal(called.deliver())
    assert error.startswith("Runtime.ImportModuleError: handlers.py: ")
    assert said in error
    write("handlers.py", "def pack(event, context): pass")
    assert called.deliver() == Answered()


def test_file_that_goes_away_is_told() -> None:
    path = write("handlers.py", "def pack(event, context): pass")
    called = Called("pack=handlers.py:pack")
    assert called.deliver() == Answered()
    path.unlink()
    assert "FileNotFoundError" in refusal(called.deliver())


def test_missing_function_is_away_and_the_option_is_named() -> None:
    called = Called()
    with pytest.raises(PenstockError, match="penstock dev --function pack=") as refused:
        called.adapter.check(FunctionTarget(arn=ELSEWHERE))
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    answer = called.deliver()
    assert isinstance(answer, Failed)
    assert answer.failure is Failure.AWAY
    assert "penstock dev --function pack=FILE.py:CALLABLE" in answer.error


def test_check_of_a_target_calls_nothing() -> None:
    write("handlers.py", "def pack(event, context): raise ValueError")
    Called("pack=handlers.py:pack").adapter.check(FunctionTarget(arn=ELSEWHERE))


def test_start_logs_a_function_that_cannot_be_imported(caplog: pytest.LogCaptureFixture) -> None:
    write("handlers.py", "import nosuchmodule")
    Called("pack=handlers.py:pack").functions.check()
    assert "function pack cannot be called yet: handlers.py: ModuleNotFoundError" in caplog.text


def test_option_names_the_function() -> None:
    found = parse_function("pack-1=shop.orders:app.pack")
    assert found == FunctionPlace(name="pack-1", place="shop.orders", handler="app.pack")
    assert found.arn == "arn:aws:lambda:us-east-1:000000000000:function:pack-1"


@pytest.mark.parametrize(
    "text", ["pack", "pack=handlers.py", "pack=:pack", "=a:b", "a b=a:b", f"{'x' * 65}=a:b", "pack=a:1b", "pack=a:b()"]
)
def test_option_of_another_form_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(PenstockError, match=r"NAME=path/file\.py:callable") as refused:
        parse_function(text)
    assert f"'{text[:60]}" in refused.value.message


def test_option_with_a_file_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PenstockError, match=r"there is no file 'nosuch\.py'"):
        parse_function("pack=nosuch.py:pack")


@pytest.mark.parametrize("given", ["pack=shop/handlers.py:pack", "pack=shop.handlers:pack"])
@pytest.mark.parametrize("loose", ["shop", "shop/handlers.py"])
def test_code_that_others_may_write_is_not_run(given: str, loose: str, caplog: pytest.LogCaptureFixture) -> None:
    write("shop/handlers.py", "open('ran', 'w').close()", "def pack(event, context): pass")
    called, path = Called(given), Path(loose)
    mode = path.stat().st_mode
    path.chmod(mode | 0o002)
    called.functions.check()
    said = f"other users may write to {path.resolve()}, so it is not used"
    assert "function pack cannot be called yet" in caplog.text
    assert said in caplog.text
    error = refusal(called.deliver())
    assert error.startswith("Runtime.ImportModuleError: ")
    assert said in error
    assert not Path("ran").exists()
    assert str(Path("shop").resolve()) not in sys.path
    path.chmod(mode)
    assert called.deliver() == Answered()


def test_change_of_code_that_others_may_write_by_now_is_not_imported() -> None:
    path = write("handlers.py", "def pack(event, context): pass")
    called = Called("pack=handlers.py:pack")
    assert called.deliver() == Answered()
    write("handlers.py", "def pack(event, context): raise ValueError('foreign')")
    path.chmod(0o666)
    assert f"run `chmod go-w {path.resolve()}`" in refusal(called.deliver())
    path.chmod(0o600)
    assert "foreign" in refusal(called.deliver())


def test_code_of_another_user_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    write("handlers.py", "def pack(event, context): pass")
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    error = refusal(Called("pack=handlers.py:pack").deliver())
    assert "belongs to another user" in error
    assert "copy it into a directory of your own" in error
