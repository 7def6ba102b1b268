"""/v1/zones: the states of the zones, for operators."""

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Path

from handlers.entry import entry_point
from handlers.json_api import broker_of, json_app, only_parameters, serve_with
from handlers.models import MoveZone, ZoneAnswer, ZoneList
from penstock_broker.move_zone import list_zones, move_zone_by_operator
from penstock_core.ids import ZoneName
from penstock_core.zone_state import ZoneState, ZoneStatus

app = json_app()


@app.get("/v1/zones", operation_id="listZones", summary="List zones", tags=["zones"], middlewares=[only_parameters()])
def list_all() -> ZoneList:
    return {"zones": [_zone(zone, state) for zone, state in list_zones(broker_of(app))]}


@app.post(
    "/v1/zones/<zone>",
    operation_id="moveZone",
    summary="Take a zone out, or let it catch up",
    tags=["zones"],
    middlewares=[only_parameters()],
)
def move(zone: Annotated[str, Path()], request: MoveZone) -> ZoneAnswer:
    state = move_zone_by_operator(broker_of(app), zone, ZoneStatus(request.state), request.reason)
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
handler = entry_point(serve)
