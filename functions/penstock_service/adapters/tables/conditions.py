"""Conditions, conditions on keys, and projections, each compiled once to functions.

```
condition   = conjunction ("OR" conjunction)*
conjunction = negation ("AND" negation)*
negation    = ["NOT"] (comparison | "(" condition ")")
comparison  = operand ("=" | "<>" | "<" | "<=" | ">" | ">=") operand
            | operand "BETWEEN" operand "AND" operand
            | operand "IN" "(" operand ("," operand)* ")"
            | function "(" path ["," operand] ")"
operand     = path | ":value" | "size" "(" path ")"
```
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.OperatorsAndFunctions.html
"""

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock_service.adapters.tables.parser import (
    Evaluate,
    Expression,
    Item,
    Names,
    Operand,
    Parser,
    Values,
    getter,
)
from penstock_service.adapters.tables.values import (
    KINDS,
    SORTABLE,
    Value,
    begins_with,
    compare,
    contains,
    element_count,
    invalid,
)

IN_OPERANDS_MAX = 100
_COMPARATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_TESTS = {"attribute_exists": 1, "attribute_not_exists": 1, "attribute_type": 2, "begins_with": 2, "contains": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Expression):
    """A condition, or a filter. `roots` are the attributes that it looks at, as written."""

    holds: Evaluate
    roots: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCondition(Expression):
    """One or two tests of key attributes: the attribute as written, the operator, and its values."""

    tests: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection(Expression):
    """The attributes that a read returns, as written."""

    roots: tuple[str, ...]


class ConditionParser(Parser):
    """Takes a condition, a filter, or a condition on keys apart."""

    def condition(self) -> Evaluate:
        """Takes a condition."""
        found = [self._conjunction()]
        while self.took("OR"):
            self.count()
            found.append(self._conjunction())
        return _any_of(tuple(found))

    def operand(self) -> Operand:
        """Takes an operand of a condition."""
        if self.peek().startswith(":"):
            return self.value_operand()
        if self.peek(1) == "(":
            if self.take() != "size":
                self._at -= 1
                raise self._no_operand(self.peek())
            self.count()
            self.take("(")
            get = getter(self.path())
            self.take(")")
            return Operand(lambda item, names, values: element_count(get(item, names, values)))
        path = self.path()
        return Operand(getter(path), path=path)

    def check_bounds(self, low: str, high: str, values: Values) -> None:
        """Checks the two values of a BETWEEN. Raises ValidationException."""
        lowest, highest = values[low], values[high]
        if lowest.keys() != highest.keys():
            raise self.refusal("The BETWEEN operator requires same data type for lower and upper bounds")
        if compare(lowest, highest, operator.gt):
            raise self.refusal(
                "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; "
                f"lower bound operand: AttributeValue: {lowest}, upper bound operand: AttributeValue: {highest}"
            )

    def _conjunction(self) -> Evaluate:
        found = [self._negation()]
        while self.took("AND"):
            self.count()
            found.append(self._negation())
        return _all_of(tuple(found))

    def _negation(self) -> Evaluate:
        if not self.took("NOT"):
            return self._primary()
        self.count()
        inner = self._primary()
        return lambda item, names, values: not inner(item, names, values)

    def _primary(self) -> Evaluate:
        if self.peek() != "(":
            return self._comparison()
        self.take("(")
        start = self._at
        inner = self.condition()
        if self._tokens[start] == "(" and self._closing(start) == self._at - 1:
            raise self.refusal("The expression has redundant parentheses;")
        self.take(")")
        return inner

    def _comparison(self) -> Evaluate:
        if self.peek(1) == "(" and self.peek() in _TESTS:
            return self._test(self.take())
        left = self.operand()
        self.count()
        if self.took("BETWEEN"):
            return self._between(left)
        if self.took("IN"):
            return self._membership(left)
        sign = self.peek()
        if sign not in ("=", "<>") and sign not in _COMPARATORS:
            raise self.unexpected()
        self.take()
        right = self.operand()
        self._check_distinct(sign, left, right)
        if sign == "=":
            return _equality(left.evaluate, right.evaluate)
        one, other = left.evaluate, right.evaluate
        if sign == "<>":
            return lambda item, names, values: one(item, names, values) != other(item, names, values)
        self.check_kind(sign, left, SORTABLE)
        self.check_kind(sign, right, SORTABLE)
        return partial(_ordered, one, other, _COMPARATORS[sign])

    def _test(self, function: str) -> Evaluate:
        self.count()
        self.take("(")
        if self.peek().startswith(":"):
            raise self.refusal(f"Operator or function requires a document path; operator or function: {function}")
        path = self.path()
        get = getter(path)
        operands = [self.operand() for _ in range(_TESTS[function] - 1) if self.take(",")]
        self.take(")")
        if function == "attribute_exists":
            return lambda item, names, values: get(item, names, values) is not None
        if function == "attribute_not_exists":
            return lambda item, names, values: get(item, names, values) is None
        [operand] = operands
        self._check_distinct(function, Operand(get, path=path), operand)
        other = operand.evaluate
        if function == "attribute_type":
            return self._type_test(get, operand)
        if function == "begins_with":
            self.check_kind(function, operand, frozenset({"S", "B"}))
        test = begins_with if function == "begins_with" else contains
        return lambda item, names, values: test(get(item, names, values), other(item, names, values))

    def _type_test(self, get: Evaluate, operand: Operand) -> Evaluate:
        name = operand.value
        if name is None:
            raise self.refusal("attribute_type takes the type as a value")
        self.check_kind("attribute_type", operand, frozenset({"S"}))

        def check(values: Values) -> None:
            if values[name]["S"] not in KINDS:
                raise self.refusal(f"Invalid attribute type name found; type: {values[name]['S']}")

        self.checks.append(check)
        return lambda item, names, values: values[name]["S"] in (get(item, names, values) or ())

    def _between(self, left: Operand) -> Evaluate:
        low = self.operand()
        self.take("AND")
        high = self.operand()
        for each in (left, low, high):
            self.check_kind("BETWEEN", each, SORTABLE)
        if low.value is not None and high.value is not None:
            self.checks.append(partial(self.check_bounds, low.value, high.value))
        get, lowest, highest = left.evaluate, low.evaluate, high.evaluate

        def test(item: Item, names: Names, values: Values) -> bool:
            found = get(item, names, values)
            return compare(found, lowest(item, names, values), operator.ge) and compare(
                found, highest(item, names, values), operator.le
            )

        return test

    def _membership(self, left: Operand) -> Evaluate:
        self.take("(")
        choices = [self.operand()]
        while self.took(","):
            choices.append(self.operand())
        self.take(")")
        if len(choices) > IN_OPERANDS_MAX:
            raise self.refusal(f"The IN operator takes {IN_OPERANDS_MAX} operands at most; found: {len(choices)}")
        return _any_of(tuple(_equality(left.evaluate, each.evaluate) for each in choices))

    def _check_distinct(self, function: str, left: Operand, right: Operand) -> None:
        if left.path is not None and left.path == right.path:
            raise self.refusal(
                "The first operand must be distinct from the remaining operands for this operator or function; "
                f"operator: {function}, first operand: {[*left.path]}"
            )

    def _no_operand(self, function: str) -> Exception:
        if function in _TESTS:
            return self.refusal(f"The function is not allowed to be used this way in an expression; {function=}")
        return self.refusal(f"Invalid function name; function: {function}")

    def _closing(self, start: int) -> int:
        depth = 0
        for at in range(start, len(self._tokens)):
            depth += {"(": 1, ")": -1}.get(self._tokens[at], 0)
            if depth == 0:
                return at
        return -1


def compile_condition(kind: str, text: str) -> Condition:
    """A ConditionExpression or a FilterExpression. Raises ValidationException."""
    parser = ConditionParser(kind, text)
    holds = parser.condition()
    return Condition(**parser.facts(), holds=holds, roots=frozenset(parser.roots))


def compile_key_condition(text: str) -> KeyCondition:
    """A KeyConditionExpression: `name = :value`, and a test of the sort key if you like. Raises ValidationException."""
    parser = ConditionParser("KeyConditionExpression", text)
    tests = [_key_test(parser)]
    while parser.took("AND"):
        tests.append(_key_test(parser))
    if len(tests) > 2:
        raise invalid("Conditions can be of length 1 or 2 only")
    return KeyCondition(**parser.facts(), tests=tuple(tests))


def _key_test(parser: ConditionParser) -> tuple[str, str, tuple[str, ...]]:
    if parser.peek(1) == "(":
        if parser.take() != "begins_with":
            raise parser.refusal("of functions, a condition on keys takes begins_with alone")
        parser.take("(")
        name = _key_name(parser)
        parser.take(",")
        values: tuple[str, ...] = (parser.value(),)
        parser.take(")")
        return name, "begins_with", values
    name = _key_name(parser)
    if parser.took("BETWEEN"):
        low = parser.value()
        parser.take("AND")
        values = low, parser.value()
        parser.checks.append(partial(parser.check_bounds, *values))
        return name, "BETWEEN", values
    if parser.peek() not in ("=", *_COMPARATORS):
        raise parser.refusal(f"Invalid operator used in KeyConditionExpression: {parser.peek()}")
    return name, parser.take(), (parser.value(),)


def _key_name(parser: ConditionParser) -> str:
    path = parser.path()
    if len(path) > 1:
        raise invalid("KeyConditionExpressions cannot have conditions on nested attributes")
    return str(path[0])


def key_range(keys: Sequence[str], sign: str, bounds: Sequence[str]) -> tuple[int, int]:
    """The half-open range of places in the sorted `keys` whose keys hold the test."""
    low = bounds[0]
    match sign:
        case "=":
            return bisect_left(keys, low), bisect_right(keys, low)
        case "<":
            return 0, bisect_left(keys, low)
        case "<=":
            return 0, bisect_right(keys, low)
        case ">":
            return bisect_right(keys, low), len(keys)
        case ">=":
            return bisect_left(keys, low), len(keys)
        case "BETWEEN":
            return bisect_left(keys, low), bisect_right(keys, bounds[1])
        case _:  # begins_with
            return bisect_left(keys, low), bisect_right(keys, low, key=lambda key: key[: len(low)])


def compile_projection(text: str) -> Projection:
    """A ProjectionExpression. Raises ValidationException, and NotImplementedError for parts of attributes."""
    parser = Parser("ProjectionExpression", text)
    paths = [parser.path()]
    while parser.took(","):
        paths.append(parser.path())
    if any(len(path) > 1 for path in paths):
        raise NotImplementedError("the tables in memory project whole attributes only")
    if len({*paths}) < len(paths):
        raise parser.refusal("Two document paths overlap with each other;")
    return Projection(**parser.facts(), roots=tuple(str(path[0]) for path in paths))


def _equality(left: Evaluate, right: Evaluate) -> Evaluate:
    def test(item: Item, names: Names, values: Values) -> bool:
        found = left(item, names, values)
        return found is not None and bool(found == right(item, names, values))

    return test


def _ordered(
    left: Evaluate, right: Evaluate, sign: Callable[[Any, Any], bool], item: Item, names: Names, values: Values
) -> bool:
    one: Value | None = left(item, names, values)
    return compare(one, right(item, names, values), sign)


def _all_of(tests: tuple[Evaluate, ...]) -> Evaluate:
    if len(tests) == 1:
        return tests[0]

    def test(item: Item, names: Names, values: Values) -> bool:
        for each in tests:  # noqa: SIM110 - a generator would cost more than the test
            if not each(item, names, values):
                return False
        return True

    return test


def _any_of(tests: tuple[Evaluate, ...]) -> Evaluate:
    if len(tests) == 1:
        return tests[0]

    def test(item: Item, names: Names, values: Values) -> bool:
        for each in tests:  # noqa: SIM110 - as above
            if each(item, names, values):
                return True
        return False

    return test
