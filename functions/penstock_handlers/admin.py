"""The function `admin`: what operators do, and what clients ask of topics before they begin.

Its routes are in the room `routes`, a module for each noun.
"""

from importlib import import_module

from penstock_core.routes import ROUTE_BY_KEY
from penstock_handlers.edge.entry import Serve, entry_point
from penstock_handlers.edge.http import Event, Result
from penstock_handlers.routes import topics  # noqa: F401 - clients ask for partitions first: while the function starts
from penstock_service.instance.instance import Instance


def serve(event: Event, instance: Instance) -> Result:
    """Serve the request by the module of its route, which its first request loads."""
    serve_route: Serve = import_module(f"penstock_handlers.routes.{ROUTE_BY_KEY[event['routeKey']].handler}").serve
    return serve_route(event, instance)


handler = entry_point(serve)
