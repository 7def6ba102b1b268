"""What happens to functions: freezes, the size of events and answers, and the account's concurrency.

The emulator starts functions from many places: the API, queues, streams, schedules. All of them go through
`_execute_function` and `Worker.invoke`, so the rules are put around these two.
"""

import json
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from localstack.like_aws.rules import Rules

EVENT_TOO_LARGE = "like-aws: event too large"
ANSWER_TOO_LARGE = "like-aws: answer too large"


class Workers:
    """Puts the rules around the emulator's own functions. `rules` tells what holds at the moment.

    Raises RuntimeError if the emulator is not built as expected.
    """

    def __init__(self, lambda_runtime: Any, lambda_svc: Any, rules: Callable[[], Rules], counts: Counter[str]) -> None:
        names = ((lambda_runtime, "_signal"), (lambda_runtime, "_workers"), (lambda_svc, "_execute_function"))
        for module, name in (*names, (lambda_svc, "_ACCOUNT_CONCURRENCY_CAP")):
            if not hasattr(module, name):
                raise RuntimeError(f"MiniStack has no {name} as it had: see localstack/like_aws/workers.py")
        self._runtime, self._service = lambda_runtime, lambda_svc
        self._rules, self._counts = rules, counts
        self._usual_concurrency = lambda_svc._ACCOUNT_CONCURRENCY_CAP
        self._signal, self._execute = lambda_runtime._signal, lambda_svc._execute_function
        self._invoke = lambda_runtime.Worker.invoke
        lambda_runtime._signal = self._signal_thawed
        lambda_svc._execute_function = self._execute_within_limits
        lambda_runtime.Worker.invoke = self._invoke_method()

    def apply(self, rules: Rules) -> None:
        """Makes the rules hold that need no call: the concurrency, and workers that are frozen no more."""
        concurrency = rules.concurrency
        self._service._ACCOUNT_CONCURRENCY_CAP = concurrency.account if concurrency.is_on else self._usual_concurrency
        if not rules.freeze.is_on:
            for workers in list(self._runtime._workers.values()):
                for worker in list(workers):
                    _send(worker._proc, signal.SIGCONT)

    def _invoke_method(self) -> Callable[..., Any]:
        rules, counts, invoke = self._rules, self._counts, self._invoke

        def invoke_thawed(worker: Any, *arguments: Any, **named: Any) -> Any:
            _send(worker._proc, signal.SIGCONT)
            try:
                return invoke(worker, *arguments, **named)
            finally:
                if rules().freeze.is_on and worker._proc is not None:
                    counts["freeze: workers stopped"] += 1
                    _send(worker._proc, signal.SIGSTOP)

        return invoke_thawed

    def _signal_thawed(self, process: Any) -> None:
        """Ends a worker. A stopped process would keep SIGTERM for later."""
        self._signal(process)
        _send(process, signal.SIGCONT)

    def _execute_within_limits(self, function: Any, event: Any) -> Any:
        limits = self._rules().payload_limits
        if not limits.is_on:
            return self._execute(function, event)
        if _json_bytes(event) > limits.event_bytes:
            self._counts["payload_limits: events refused"] += 1
            return {"throttle": True, "error": True, "log": "", "body": {"__type": EVENT_TOO_LARGE}}
        result = self._execute(function, event)
        if not result.get("error") and _json_bytes(result.get("body")) > limits.answer_bytes:
            self._counts["payload_limits: answers refused"] += 1
            message = f"Response payload size exceeded maximum allowed payload size ({limits.answer_bytes} bytes)."
            body = {"errorMessage": message, "errorType": "Function.ResponseSizeTooLarge"}
            return {"error": True, "function_error": "Unhandled", "log": result.get("log", ""), "body": body}
        return result


def _json_bytes(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else len(json.dumps(value, ensure_ascii=False).encode())


def _send(process: Any, number: signal.Signals) -> None:
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(number)
