"""/v1/schedules: list, create and alter, describe, delete."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from penstock_core.limits import SCHEDULE_LIST_MAX
from penstock_handlers.edge.json_api import (
    PAGED,
    After,
    Digits,
    JsonApp,
    caller_of,
    fitting_page,
    instance_of,
    serve_with,
)
from penstock_handlers.edge.models.schedule_models import PutSchedule, ScheduleAnswer, ScheduleList, schedule_answer
from penstock_service.schedules.put_schedule import delete_schedule, find_schedule, list_schedules, put_schedule

app = JsonApp("schedules")


@app.operation("GET /v1/schedules", "listSchedules", "List schedules", parameters=PAGED)
def list_all(
    limit: Annotated[Digits, Query(ge=1, le=SCHEDULE_LIST_MAX)] = SCHEDULE_LIST_MAX, after: After = ""
) -> ScheduleList:
    """List the schedules that you may describe by name, `limit` at a time, from behind `after`."""
    shown, next_after = list_schedules(instance_of(app), limit, after, caller_of(app))
    schedules = [schedule_answer(each) for each in shown]
    page, next_after = fitting_page(schedules, next_after, lambda last: shown[last].name)
    return {"schedules": page, "next_after": next_after}


@app.operation("PUT /v1/schedules/<name>", "putSchedule", "Create a schedule, or alter it")
def put(name: Annotated[str, Path()], request: PutSchedule) -> ScheduleAnswer:
    """Create a schedule, or change its times, topic or record. You need the right to write to the topic."""
    found, _ = put_schedule(instance_of(app), name, request.wish(), caller_of(app))
    return schedule_answer(found)


@app.operation("GET /v1/schedules/<name>", "describeSchedule", "Describe a schedule, with its next and last run")
def describe(name: Annotated[str, Path()]) -> ScheduleAnswer:
    """Describe a schedule: its next run, its last one, and the last error."""
    return schedule_answer(find_schedule(instance_of(app), name))


@app.operation("DELETE /v1/schedules/<name>", "deleteSchedule", "Delete a schedule", status_code=204)
def delete(name: Annotated[str, Path()]) -> Response[None]:
    """Delete a schedule. No record of it comes later; those in its topic stay."""
    delete_schedule(instance_of(app), name)
    return Response(status_code=204)


serve = serve_with(app)
