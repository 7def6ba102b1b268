"""The driver between the shipped client and the tables: it records what the calls offer to mutations, or spoils them.

A mutant names the store's method, the operation and the table, so that one text which two methods send makes two
mutants. The method is the one that the service calls.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any
from unittest.mock import patch

from penstock_service.adapters.dynamodb.client import DynamoDbClient
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.tables.statements import statement_of
from tests.mutants.mutations import KINDS, PARAMETERS, Mutation, mutated, mutations

_TRANSACTION = "transact_write_items"
_STORES_FOLDER, _STORE = "/adapters/dynamodb/", "DynamoDb"

Arguments = Mapping[str, Any]
Before = Callable[[str, Arguments], Arguments]


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A mutation of the calls from one place. `place` has the store's method, the operation and the table."""

    place: str
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.place} {self.mutation}"


def parse_mutant(text: str) -> Mutant:
    """The inverse of `str`."""
    method, operation, table, parameter, rest = text.split(" ", 4)
    kind = max((kind for kind in KINDS if rest.startswith(f"{kind} ")), key=len)
    return Mutant(f"{method} {operation} {table}", Mutation(parameter.rstrip(":"), kind, rest[len(kind) + 1 :]))


@contextmanager
def recording(met: Callable[[Mutant, Arguments], None]) -> Iterator[None]:
    """Calls `met` with each mutant that a call of the block could have, and with the arguments that it would spoil."""
    known: dict[object, list[Mutation]] = {}

    def record(place: str, arguments: Arguments) -> Arguments:
        values = arguments.get("ExpressionAttributeValues", {})
        numbers = tuple(name for name, value in values.items() if "N" in value)
        key = (*map(arguments.get, PARAMETERS), numbers)
        if key not in known:
            known[key] = [*mutations(arguments)]
        for mutation in known[key]:
            met(Mutant(place, mutation), arguments)
        return arguments

    with _before_each_call(record):
        yield


@contextmanager
def installed(mutant: Mutant, met: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Spoils each call of the block that the mutant names, and calls `met` then."""

    def spoil(place: str, arguments: Arguments) -> Arguments:
        spoiled = mutated(arguments, mutant.mutation) if place == mutant.place else None
        if spoiled is None:
            return arguments
        met()
        return spoiled

    with _before_each_call(spoil):
        yield


def faults(mutant: Mutant, arguments: Arguments) -> list[str]:
    """What DynamoDB says against the spoiled call, if it would take the call as it was. Each test would find that."""
    spoiled = mutated(arguments, mutant.mutation)
    if spoiled is None:
        return [f"{mutant} is no mutant of {arguments}"]
    try:
        statement_of(arguments).bound(arguments)
    except AnsweredError:
        return []
    try:
        statement_of(spoiled).bound(spoiled)
    except AnsweredError as error:
        return [f"{mutant} makes a call that is not valid: {error}"]
    return []


@contextmanager
def _before_each_call(before: Before) -> Iterator[None]:
    original = DynamoDbClient.__init__

    def init(self: DynamoDbClient, driver: Any, *rest: Any) -> None:
        original(self, _Driver(driver, before), *rest)

    with patch.object(DynamoDbClient, "__init__", init):
        yield


class _Driver:
    """A driver behind `before`, which may exchange the arguments of each call or action that has an expression."""

    def __init__(self, driver: Any, before: Before) -> None:
        self._driver = driver
        self._before = before

    def __getattr__(self, operation: str) -> Any:
        return partial(self._call, operation)

    def _call(self, operation: str, **arguments: Any) -> Any:
        if operation == _TRANSACTION:
            actions = [
                {kind: self._changed(f"{operation}.{kind}", each) for kind, each in action.items()}
                for action in arguments["TransactItems"]
            ]
            arguments |= {"TransactItems": actions}
        else:
            arguments = {**self._changed(operation, arguments)}
        return getattr(self._driver, operation)(**arguments)

    def _changed(self, operation: str, arguments: Arguments) -> Arguments:
        if arguments.keys().isdisjoint(PARAMETERS) or (method := _method()) is None:
            return arguments
        return self._before(f"{method} {operation} {arguments['TableName']}", arguments)


def _method() -> str | None:
    """The store's method that makes this call. None for a call of something else."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _STORES_FOLDER not in frame.f_code.co_filename:
        frame = frame.f_back
    found = None
    while frame is not None and _STORES_FOLDER in frame.f_code.co_filename:
        owner = frame.f_locals.get("self")
        name = type(owner).__name__
        if name.startswith(_STORE) and not isinstance(owner, DynamoDbClient):
            found = f"{name.removeprefix(_STORE)}.{frame.f_code.co_name}"
        frame = frame.f_back
    return found
