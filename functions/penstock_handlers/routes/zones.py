"""/v1/zones: the states of the zones, for operators."""

import os
from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Path

from penstock_core.ids import ZoneName
from penstock_core.version import VERSION
from penstock_core.zones.zone_state import ZoneState, ZoneStatus
from penstock_handlers.edge.json_api import JsonApp, instance_of, serve_with
from penstock_handlers.edge.models.answer_models import ZoneAnswer, ZoneList
from penstock_handlers.edge.models.request_models import MoveZone
from penstock_service.segments.move_zone import list_zones, move_zone_by_operator

app = JsonApp("zones")
_PROFILE_IN_PROCESS = "local"  # of `penstock dev` and `penstock.testing`, which have no environment of a function


@app.operation("GET /v1/zones", "listZones", "List zones")
def list_all() -> ZoneList:
    """List the zones with their states, the release of the service, and its storage profile."""
    return {
        "zones": [_zone(zone, state) for zone, state in list_zones(instance_of(app))],
        "version": VERSION,
        "profile": os.environ.get("PENSTOCK_PROFILE", _PROFILE_IN_PROCESS),
    }


@app.operation("POST /v1/zones/<zone>", "moveZone", "Take a zone out, or let it catch up")
def move(zone: Annotated[str, Path()], request: MoveZone) -> ZoneAnswer:
    """Take a zone out, or let it catch up."""
    state = move_zone_by_operator(instance_of(app), zone, ZoneStatus(request.state), request.reason)
    return _zone(ZoneName(zone), state)


def _zone(zone: ZoneName, state: ZoneState) -> ZoneAnswer:
    return {
        "zone": zone,
        "state": state.status.value,
        "version": state.version,
        "since_ms": state.since_ms,
        "reason": state.reason,
    }


serve = serve_with(app)
