"""The rights of the caller of a request."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock_core.acls.access import Access
from penstock_core.acls.right import Kind, Operation
from penstock_core.outcomes import Outcome, Outcomes
from penstock_handlers.edge.access.principal import principal_of
from penstock_handlers.edge.http import Event
from penstock_service.instance.instance import Instance

E = TypeVar("E")
R = TypeVar("R")


def access_of(event: Event, instance: Instance) -> Access:
    """The caller's rights. Reads no storage if the rules were looked at lately (`acl_cache`).

    Raises NOT_AUTHORIZED, as `principal_of`.
    """
    return instance.acl_cache.access_of(principal_of(event, instance))


def where_allowed(
    access: Access,
    operation: Operation,
    entries: Sequence[E],
    topic_of: Callable[[E], str],
    call: Callable[[list[E]], Outcomes[R]],
) -> Outcomes[R]:
    """The outcome of each entry: NOT_AUTHORIZED, or that of `call`, which gets the entries whose topics are allowed.

    `call` is not made if all entries are refused.
    """
    refusals = {name: access.refusal(operation, Kind.TOPIC, name) for name in {topic_of(each) for each in entries}}
    allowed = [each for each in entries if refusals[topic_of(each)] is None]
    found = iter(call(allowed) if allowed or not entries else ())
    outcomes: list[Outcome[R]] = [refusals[topic_of(each)] or next(found) for each in entries]
    return Outcomes(outcomes)
