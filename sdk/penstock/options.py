"""Keyword options of a client: how `help()` shows the fields of its settings in place of `**options`."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Init = TypeVar("Init", bound=Callable[..., None])


def shows_fields_of(settings: type[Any]) -> Callable[[Init], Init]:
    """Gives an `__init__` that takes `**options` the signature and the docs of the dataclass `settings`.

    Type checkers read the TypedDict of the options. `help()`, `inspect.signature` and notebooks read what this sets.
    """

    def decorate(init: Init) -> Init:
        signature = inspect.signature(init)
        given = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        options = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in dataclasses.fields(settings)
        ]
        init.__dict__["__signature__"] = signature.replace(parameters=[*given, *options])
        init.__doc__ = f"{inspect.getdoc(init)}\n\n{inspect.getdoc(settings)}"
        return init

    return decorate
