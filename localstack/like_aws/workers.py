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
_OF_THE_SERVICE = (
    "_execute_function",
    "_ACCOUNT_CONCURRENCY_CAP",
    "_acquire_execution_slot",
    "_reserved_concurrency",
    "_inflight_key",
    "_inflight_lock",
    "_inflight",
    "_inflight_total",
    "_functions",
)


class Workers:
    """Puts the rules around the emulator's own functions. `rules` tells what holds at the moment.

    Raises RuntimeError if the emulator is not built as expected.
    """

    def __init__(self, lambda_runtime: Any, lambda_svc: Any, rules: Callable[[], Rules], counts: Counter[str]) -> None:
        names = [(lambda_runtime, name) for name in ("_signal", "_workers")]
        for module, name in (*names, *((lambda_svc, name) for name in _OF_THE_SERVICE)):
            if not hasattr(module, name):
                raise RuntimeError(f"MiniStack has no {name} as it had: see localstack/like_aws/workers.py")
        self._runtime, self._service = lambda_runtime, lambda_svc
        self._rules, self._counts = rules, counts
        self._usual_concurrency = lambda_svc._ACCOUNT_CONCURRENCY_CAP
        self._signal, self._execute = lambda_runtime._signal, lambda_svc._execute_function
        self._invoke, self._acquire = lambda_runtime.Worker.invoke, lambda_svc._acquire_execution_slot
        lambda_runtime._signal = self._signal_thawed
        lambda_svc._execute_function = self._execute_within_limits
        lambda_svc._acquire_execution_slot = self._acquire_reserved_or_shared
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

    def _acquire_reserved_or_shared(self, function: Any, config: Any) -> Any:
        """A place for an invocation: of its function's reserved ones, else of those that no function has reserved.

        The emulator takes the reserved number for a cap only. In AWS nobody else gets these places
        (lambda/latest/dg/configuration-concurrency.html).
        """
        rule, service = self._rules().concurrency, self._service
        if not rule.is_on:
            return self._acquire(function, config)
        own, key = service._reserved_concurrency(function, config), service._inflight_key(config)
        reserved = {
            name: int(each["concurrency"])
            for name, each in list(service._functions.items())
            if each.get("concurrency") is not None
        }
        with service._inflight_lock:
            running = service._inflight
            if own is not None:
                is_free, limit = running.get(key, 0) < own, "function"
            else:
                sharing = sum(count for each, count in running.items() if each.rpartition(":")[2] not in reserved)
                is_free, limit = sharing < rule.account - sum(reserved.values()), "account"
            if not is_free:
                return None, limit
            running[key] = running.get(key, 0) + 1
            service._inflight_total += 1
        return key, None

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
