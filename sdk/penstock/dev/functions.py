"""Lambda for `penstock dev`: Python functions of yours, by the name in an ARN, behind the interface of Lambda's client.

The service's own adapter calls it (adapters/targets/function.py), so answers, exceptions and time-outs mean what they
mean in a stage. A function runs in a thread of this process, so it shares the modules and the environment of the
server. After its time-out it runs on, as no thread can be ended.

The server compares the modification times of a function's files before each call. If one has changed, it imports the
function again, and the modules from the function's folder that the import had loaded. A function that cannot be
imported fails as in Lambda, and the next call tries again. A function is not imported from a file or folder that is
another user's, or that other users may write to.
"""

import importlib
import io
import json
import logging
import operator
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from penstock.local_files import LOCAL_FUNCTION_ARNS, check_owner
from penstock.system import monotonic_ms, new_member_id
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import DEV_FUNCTION_CALLS_MAX

_GIVEN = re.compile(r"(?P<name>[\w-]{1,64})=(?P<place>.+):(?P<handler>[^\W\d]\w*(\.\w+)*)", re.ASCII)
_NAME_AT = 6  # "arn:aws:lambda:<region>:<account>:function:<name>:<qualifier>"
_INSTALLED = "site-packages"
_importing = threading.RLock()  # modules and their path belong to the process
_imported: set[str] = set()  # the modules that imports of functions have loaded

logger = logging.getLogger("penstock.dev")

Handler = Callable[[Any, Any], Any]
Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlace:
    """The place of a function: `place` is a path that ends with .py, or a module as Python imports it."""

    name: str
    place: str
    handler: str

    @property
    def arn(self) -> str:
        """The ARN by which subscriptions name the function."""
        return f"{LOCAL_FUNCTION_ARNS}{self.name}"


def parse_function(text: str) -> FunctionPlace:
    """The place that the option tells. Raises INVALID_CONFIG naming the text, and for a file that does not exist."""
    found = _GIVEN.fullmatch(text)
    if found is None:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"{shown(text)}: give NAME=path/file.py:callable or NAME=module:callable, with 1 to 64 of A-Z a-z 0-9 _ - "
            "as the name",
        )
    place = FunctionPlace(**{name: found[name] for name in ("name", "place", "handler")})
    if _is_file(place) and not Path(place.place).is_file():
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"{shown(text)}: there is no file {shown(place.place)}")
    return place


def _is_file(place: FunctionPlace) -> bool:
    return place.place.endswith(".py")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionContext:
    """The context that a function gets, with the names that Lambda gives them."""

    function_name: str
    invoked_function_arn: str
    ends_ms: int
    function_version: str = "$LATEST"
    memory_limit_in_mb: int = 1_769
    aws_request_id: str = field(default_factory=new_member_id)
    log_group_name: str = "penstock dev"
    log_stream_name: str = "penstock dev"

    def get_remaining_time_in_millis(self) -> int:
        """The time until the delivery stops waiting."""
        return max(0, self.ends_ms - monotonic_ms())


class FunctionTimedOut(ReadTimeoutError):  # type: ignore[misc]  # noqa: N818 - botocore has no types, and its error is this
    """The function has not answered in time."""

    fmt = "{endpoint_url}"


class DevFunctions:
    """The functions of one server. Several threads may call them, and one function several times at once."""

    def __init__(self, places: Iterable[FunctionPlace] = ()) -> None:
        self._functions = {place.name: _Function(place) for place in places}

    def client(self, timeout_ms: int) -> "LambdaClient":
        """A client of Lambda that waits so long for an answer."""
        return LambdaClient(self._functions, timeout_ms)

    def check(self) -> None:
        """Import each function, and log those that fail. The next call tries again."""
        for function in self._functions.values():
            try:
                function.handler()
            except _ImportFailed as failed:
                logger.warning("function %s cannot be called yet: %s", function.place.name, failed)


class LambdaClient:
    """Lambda's client with the one method that the adapter calls."""

    def __init__(self, functions: "Mapping[str, _Function]", timeout_ms: int) -> None:
        self._functions = functions
        self._timeout_ms = timeout_ms

    def invoke(self, **request: Any) -> dict[str, Any]:
        """Call the function of the ARN's name, whatever account and region the ARN has.

        Raises ResourceNotFoundException for a function that the server has not, and TooManyRequestsException while
        `DEV_FUNCTION_CALLS_MAX` calls of it have not ended.
        """
        arn = str(request["FunctionName"])
        name = arn.split(":")[_NAME_AT]
        function = self._functions.get(name)
        if function is None:
            why = f"no function {name!r}: start this server with `penstock dev --function {name}=FILE.py:CALLABLE`"
            raise _refusal("ResourceNotFoundException", why)
        if request.get("InvocationType") == "DryRun":
            return {}
        context = FunctionContext(
            function_name=name, invoked_function_arn=arn, ends_ms=monotonic_ms() + self._timeout_ms
        )
        return function.call(json.loads(request["Payload"]), context, self._timeout_ms)


class _ImportFailed(Exception):  # noqa: N818 - its text is the answer
    """The function cannot be imported."""


class _Function:
    """One function, and the files that it was imported from."""

    def __init__(self, place: FunctionPlace) -> None:
        self.place = place
        self._handler: Handler | None = None
        self._modules: dict[str, tuple[Path, Stamp | None]] = {}
        self._running = 0
        self._counting = threading.Lock()

    def call(self, event: Any, context: FunctionContext, timeout_ms: int) -> dict[str, Any]:
        """The answer as Lambda tells it. Raises FunctionTimedOut."""
        self._count_call()
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        threading.Thread(
            target=self._run, args=(event, context, answers), name=f"function-{self.place.name}", daemon=True
        ).start()
        try:
            return answers.get(timeout=timeout_ms / 1_000)
        except Empty:
            why = f"function {self.place.name!r} has not answered within {timeout_ms / 1_000:g} s, and runs on"
            raise FunctionTimedOut(endpoint_url=why) from None

    def handler(self) -> Handler:
        """The callable as its files are now. Raises _ImportFailed."""
        with _importing:
            is_current = all(_stamp(path) == stamp for path, stamp in self._modules.values())
            if self._handler is None or not is_current:
                self._handler = None
                self._handler = self._import()
            return self._handler

    def _count_call(self) -> None:
        with self._counting:
            if self._running >= DEV_FUNCTION_CALLS_MAX:
                why = f"{self._running} calls of {self.place.name!r} have not ended: start the server anew"
                raise _refusal("TooManyRequestsException", why)
            self._running += 1

    def _run(self, event: Any, context: FunctionContext, answers: "SimpleQueue[dict[str, Any]]") -> None:
        try:
            answers.put(self._answer(event, context))
        finally:
            with self._counting:
                self._running -= 1

    def _answer(self, event: Any, context: FunctionContext) -> dict[str, Any]:
        try:
            answer = self.handler()(event, context)
        except _ImportFailed as failed:
            return _failed("Runtime.ImportModuleError", str(failed))
        except BaseException as error:
            logger.warning("function %s failed", self.place.name, exc_info=True)
            return _failed(type(error).__name__, str(error))
        try:
            return {"Payload": io.BytesIO(json.dumps(answer).encode())}
        except (TypeError, ValueError, RecursionError) as error:
            return _failed("Runtime.MarshalError", f"the answer is not JSON: {error}")

    def _import(self) -> Handler:
        folder = Path(self.place.place).parent.resolve() if _is_file(self.place) else Path.cwd()
        self._check_owners(folder)
        for name in self._modules:
            sys.modules.pop(name, None)
        _imported.difference_update(self._modules)
        known = {name.partition(".")[0] for name in sys.modules if name not in _imported}
        writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # its times have seconds only
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        try:
            module = self._module(folder)
            handler = operator.attrgetter(self.place.handler)(module)
            if not callable(handler):
                raise TypeError(f"{self.place.handler} of {self.place.place} is no callable")
        except (Exception, SystemExit) as error:
            raise _ImportFailed(f"{self.place.place}: {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove(str(folder))
            if str(folder) not in sys.path:
                sys.path.append(str(folder))  # for imports inside of the callable; what is installed goes first
            sys.dont_write_bytecode = writes_none
            self._modules = {name: (path, _stamp(path)) for name, path in _own_modules(known, folder)}
            _imported.update(self._modules)
        return handler  # type: ignore[no-any-return]  # a module's attribute

    def _check_owners(self, folder: Path) -> None:
        """Raises _ImportFailed if others may write to the folder, or to what is there of the function's own files."""
        paths = [folder]
        if _is_file(self.place):
            paths.append(folder / Path(self.place.place).name)
        else:
            package = folder
            for name in self.place.place.split("."):
                paths.append(package / f"{name}.py")
                package /= name
                paths += [package, package / "__init__.py"]
        try:
            for path in paths:
                if path.exists():
                    check_owner(path, path.stat(), "copy it into a directory of your own")
        except (PenstockError, OSError) as error:
            raise _ImportFailed(f"{self.place.place}: {error}") from error

    def _module(self, folder: Path) -> ModuleType:
        """The module. A file is compiled here, under a name of its own: two functions may have a `handler.py` each."""
        if not _is_file(self.place):
            return importlib.import_module(self.place.place)
        file = folder / Path(self.place.place).name
        module = ModuleType(f"penstock_function_{self.place.name.replace('-', '_')}")
        module.__file__ = str(file)
        sys.modules[module.__name__] = module
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102 - the user's own program
        return module


def _own_modules(known: Iterable[str], folder: Path) -> list[tuple[str, Path]]:
    """The modules from the folder, and below, whose package is not the server's. Installed ones are left out."""
    found = []
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in known or not file:
            continue
        path = Path(file)
        if _INSTALLED not in path.parts and path.is_relative_to(folder):
            found.append((name, path))
    return found


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _failed(kind: str, message: str) -> dict[str, Any]:
    payload = json.dumps({"errorType": kind, "errorMessage": message}).encode()
    return {"FunctionError": "Unhandled", "Payload": io.BytesIO(payload)}


def _refusal(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Invoke")
