"""/v1/zones: the states of the zones, for operators."""

import os
from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Path

from penstock_core.ids import ZoneName
from penstock_core.version import VERSION
from penstock_core.zones.zone_state import ZoneState, ZoneStatus
from penstock_handlers.edge.answer_models import ZoneAnswer, ZoneList
from penstock_handlers.edge.entry import entry_point
from penstock_handlers.edge.json_api import instance_of, json_app, only_parameters, serve_with
from penstock_handlers.edge.request_models import MoveZone
from penstock_service.segments.move_zone import list_zones, move_zone_by_operator

app = json_app()
_PROFILE_IN_PROCESS = "local"  # of `penstock dev` and `penstock.testing`, which have no environment of a function


@app.get("/v1/zones", operation_id="listZones", summary="List zones", tags=["zones"], middlewares=[only_parameters()])
def list_all() -> ZoneList:
    """List the zones with their states, the release of the service, and its storage profile."""
    return {
        "zones": [_zone(zone, state) for zone, state in list_zones(instance_of(app))],
        "version": VERSION,
        "profile": os.environ.get("PENSTOCK_PROFILE", _PROFILE_IN_PROCESS),
    }


@app.post(
    "/v1/zones/<zone>",
    operation_id="moveZone",
    summary="Take a zone out, or let it catch up",
    tags=["zones"],
    middlewares=[only_parameters()],
)
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
handler = entry_point(serve, uses_zones=False)
