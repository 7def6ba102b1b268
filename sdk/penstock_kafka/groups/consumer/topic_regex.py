"""Turn a regular expression of topic names into a pattern of ours, where both say the same."""

import re

from penstock_core.groups.topic_patterns import check_pattern
from penstock_kafka.errors import KafkaError, RequestRefused

_PARTS = re.compile(r"\.\*|\\\.|\\-|[A-Za-z0-9_-]")


def pattern_of(expression: str) -> str:
    """The pattern that matches the same names. Raises RequestRefused for what only a regular expression can say.

    Kafka matches the whole name (RE2/J). The service evaluates patterns that members send, so it takes only `*`.
    """
    text = expression.removeprefix("^").removesuffix("$")
    parts = _PARTS.findall(text)
    pattern = "".join("*" if part == ".*" else part[-1] for part in parts)
    if "".join(parts) != text or not pattern:
        raise RequestRefused(
            KafkaError.invalid_regular_expression,
            f"{expression[:200]!r}: use letters, digits, '_', '-', '\\.' and '.*'; the service evaluates nothing else",
        )
    check_pattern(pattern)
    return pattern
