"""Regular expressions of topic names (KIP-848): a pattern of ours where both say the same, else the names that match.

Kafka matches the whole name by RE2/J. Here the gateway evaluates the expression by RE2, in linear time, and subscribes
the member to the names that match. It looks for new names with the member's heartbeats. It sends the names as patterns
without `*`: the service then leaves out topics that the client may not read, and does not refuse the others.
"""

import asyncio
import re
from collections import OrderedDict

import re2

from penstock.system import monotonic_ms
from penstock_core.groups.topic_patterns import WILDCARD, check_pattern
from penstock_core.ids import is_reserved
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.topic_directory import TopicDirectory

NAMES_AGE_MS_MAX = 10_000  # as often as a broker looks for new names of an expression
_PARTS = re.compile(r"\.\*|\\\.|\\-|[A-Za-z0-9_-]")
_EXPRESSIONS_MAX = 128  # whose names are remembered
_MEMORY_BYTES_MAX = 1 << 20  # of one compiled expression
_STEPS_MAX = 5_000  # of its program: librdkafka joins all patterns of a consumer into one expression


class TopicRegexes:
    """The names that match expressions, for all members of a gateway."""

    def __init__(self, topics: TopicDirectory) -> None:
        self._topics = topics
        self._found: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()

    async def patterns(self, expression: str) -> tuple[str, ...]:
        """Patterns of the names that match, which are a few seconds old. Raises RequestRefused, and PenstockError."""
        simple = simple_patterns(expression)
        if simple:
            return simple
        looked_ms, names = self._found.get(expression, (-NAMES_AGE_MS_MAX, ()))
        now_ms = monotonic_ms()
        if now_ms - looked_ms >= NAMES_AGE_MS_MAX:
            compiled = _compiled(expression)
            names = await asyncio.to_thread(_matching, compiled, [each.name for each in await self._topics.topics()])
            self._found[expression] = (now_ms, names)
        self._found.move_to_end(expression)
        if len(self._found) > _EXPRESSIONS_MAX:
            self._found.popitem(last=False)
        return names


def simple_patterns(expression: str) -> tuple[str, ...]:
    """Patterns with `*` that match the same names; none where only a regular expression can say it.

    librdkafka sends `(^a.*)|(^b)` for the patterns `^a.*` and `^b`.
    """
    return tuple(filter(None, patterns)) if all(patterns := [*map(_pattern, expression.split("|"))]) else ()


def _pattern(text: str) -> str:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    text = text.removeprefix("^").removesuffix("$")
    parts = _PARTS.findall(text)
    if "".join(parts) != text:
        return ""
    pattern = "".join(WILDCARD if part == ".*" else part[-1] for part in parts)
    if pattern:
        check_pattern(pattern)
    return pattern


def _compiled(expression: str) -> "re2._Regexp":
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = _MEMORY_BYTES_MAX, False, True
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        raise _refused(expression, f"RE2 says {error!s:.200}") from error
    if compiled.programsize > _STEPS_MAX:
        raise _refused(expression, f"{compiled.programsize} steps: {_STEPS_MAX} at most")
    return compiled


def _matching(compiled: "re2._Regexp", names: list[str]) -> tuple[str, ...]:
    """The names that match as a whole. No expression finds a reserved topic."""
    return tuple(name for name in names if not is_reserved(name) and compiled.fullmatch(name))


def _refused(expression: str, why: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_regular_expression, f"{expression[:200]!r}: {why}")
