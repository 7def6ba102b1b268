"""The rooms that serve APIs. Each has a module `apis` with `apis(context)`: the APIs, bound to the room's state."""

from collections.abc import Callable, Iterable
from itertools import chain

from penstock_kafka.admin.apis import apis as admin
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Api
from penstock_kafka.dispatch.names import with_service_names
from penstock_kafka.dispatch.registry import Registry
from penstock_kafka.fetch.apis import apis as fetch
from penstock_kafka.groups.apis import apis as groups
from penstock_kafka.metadata.apis import apis as metadata
from penstock_kafka.offsets.apis import apis as offsets
from penstock_kafka.produce.apis import apis as produce
from penstock_kafka.security.apis import login_apis
from penstock_kafka.security.users import Users
from penstock_kafka.share.apis import apis as share
from penstock_kafka.transactions.apis import apis as transactions

ROOMS: tuple[Callable[[Context], Iterable[Api]], ...] = (metadata, produce, fetch, offsets, admin)
# Their requests and answers name groups, transactional ids and instances.
NAMING_ROOMS: tuple[Callable[[Context], Iterable[Api]], ...] = (groups, share, transactions)


def open_registry(context: Context, users: Users | None = None) -> Registry:
    """All APIs of the gateway, and those of the login if there are users."""
    login = () if users is None else login_apis(users)
    named = (with_service_names(api) for room in NAMING_ROOMS for api in room(context))
    return Registry(chain(login, named, *(room(context) for room in ROOMS)))
