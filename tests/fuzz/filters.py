"""Filter policies that are wrong in one place or in many, and headers of any bytes.

The parser refuses a policy with INVALID_FILTER and a place, or takes it. A filter that it takes matches as a naive
reading of the policy does, and parses again from its own text.
"""

import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.filter import Filter, matches
from penstock_core.filters.policy import parse_filter
from tests.core.filters.oracle import is_match

_NAMES = ("tag", "type", "amount", "", "a.b", "$or", "ü", "x" * 300)
_TEXTS = ("", "a", "order", "ORDER", "ß", "1", "1e2", "\u0000", "\U0001f600", "x" * 5_000)
_NUMBERS = (0, 1, -1, 100, 0.1, 1e2, 1e99, 1e100, 10**31, 10**40, -0.0)
_OPERATORS = ("prefix", "suffix", "equals-ignore-case", "exists", "numeric", "anything-but", "cidr", "wildcard", "")
_COMPARISONS = ("=", "<", "<=", ">", ">=", "!=", "", None)
_HEADER_VALUES = (None, b"", b"a", b"order", b"1", b"1e2", b"100", b"0.1", b"\xff", b"x" * 400, b"-1", b"ss", b"NaN")
_DEPTH_MAX = 6


@dataclass(slots=True)
class FilterReport:
    """The figures of a run. `broken` has each promise that did not hold, and the policy."""

    inputs: int = 0
    taken: int = 0
    slowest_s: float = 0.0
    broken: list[tuple[str, str]] = field(default_factory=list)


def fuzz_filters(count: int, seed: int) -> FilterReport:
    """Parse `count` policies of this seed, and match each that is taken."""
    chance, report = random.Random(seed), FilterReport()
    for _ in range(count):
        policy = json.dumps(_policy(chance, 0))
        if chance.random() < 0.3:
            policy = _damaged(chance, policy)
        report.inputs += 1
        began_s = time.process_time()
        _judge(chance, policy, report)
        report.slowest_s = max(report.slowest_s, time.process_time() - began_s)
    return report


def _judge(chance: random.Random, policy: str, report: FilterReport) -> None:
    try:
        wanted = parse_filter(policy)
    except PenstockError as error:
        if error.code is not ErrorCode.INVALID_FILTER or not isinstance(error.facts.get("place"), str):
            report.broken.append((f"refused with {error}", policy))
        return
    except Exception as error:
        report.broken.append((f"raised {error!r}", policy))
        return
    report.taken += 1
    if parse_filter(wanted.text) != wanted:
        report.broken.append(("its own text makes another filter", policy))
    for _ in range(5):
        _match(chance, policy, wanted, report)


def _match(chance: random.Random, policy: str, wanted: Filter, report: FilterReport) -> None:
    headers = [(chance.choice(_NAMES), chance.choice(_HEADER_VALUES)) for _ in range(chance.choice((0, 1, 3, 20)))]
    expected = is_match(json.loads(policy), headers)
    if matches(wanted, headers) != expected:
        report.broken.append((f"{headers} match: {not expected}", policy))


def _policy(chance: random.Random, depth: int) -> Any:
    if chance.random() < 0.05:
        return _any(chance, depth)
    names = [chance.choice(_NAMES) for _ in range(chance.choice((1, 1, 2, 3, 20)))]
    return {name: _alternatives(chance, depth) if name == "$or" else _list(chance, depth) for name in names}


def _alternatives(chance: random.Random, depth: int) -> Any:
    if depth > _DEPTH_MAX or chance.random() < 0.1:
        return _any(chance, depth + 1)
    return [_policy(chance, depth + 1) for _ in range(chance.choice((1, 2, 2, 3)))]


def _list(chance: random.Random, depth: int) -> Any:
    if chance.random() < 0.05:
        return _any(chance, depth)
    return [_value(chance, depth) for _ in range(chance.choice((0, 1, 1, 2, 3, 160)))]


def _value(chance: random.Random, depth: int) -> Any:
    kind = chance.random()
    if kind < 0.5:
        return chance.choice((*_TEXTS[:-1], *_NUMBERS, True, False, None))
    operator = chance.choice(_OPERATORS)
    if chance.random() < 0.1:
        return {operator: _any(chance, depth), **({"prefix": "a"} if chance.random() < 0.3 else {})}
    return {operator: _operand(chance, operator, depth)}


def _operand(chance: random.Random, operator: str, depth: int) -> Any:
    if operator == "exists":
        return chance.random() < 0.5
    if operator == "numeric":
        return [
            part
            for _ in range(chance.choice((1, 1, 2, 3)))
            for part in (chance.choice(_COMPARISONS), chance.choice(_NUMBERS))
        ]
    if operator == "anything-but" and chance.random() < 0.7:
        return [chance.choice((*_TEXTS, *_NUMBERS)) for _ in range(chance.choice((0, 1, 3)))]
    return _any(chance, depth + 1) if chance.random() < 0.2 else chance.choice(_TEXTS)


def _any(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(4) if depth < _DEPTH_MAX else 0
    if kind == 1:
        return [_any(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 2:
        return {chance.choice(_OPERATORS + _NAMES): _any(chance, depth + 1) for _ in range(chance.randrange(3))}
    return chance.choice((*_TEXTS, *_NUMBERS, True, False, None))


def _damaged(chance: random.Random, text: str) -> str:
    place = chance.randrange(len(text))
    piece = chance.choice(("", '"', "[", "]", "{", "}", ",", ":", "1e400", "NaN", "\\ud800", "[" * 3_000, "9" * 100))
    return text[:place] + piece + text[place + chance.randrange(3) :]
