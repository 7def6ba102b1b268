"""The undoing of each kind of leftover."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.admin.admin import Admin
from penstock.errors import NotFoundError
from penstock.prove.leftovers import Undoing

ZONE_REASON = "penstock prove"
_TAKEN_OUT = "taken_out"


def undoings(
    admin: Admin,
    client: Callable[[str], Any] | None,
    functions: Callable[[], Sequence[str]],
    destroy: Callable[[Mapping[str, Any]], None],
) -> Mapping[str, Undoing]:
    """A function for each kind. `client` makes clients of AWS, None where there is no AWS.

    `functions` tells those of the stage: no other one is changed, whatever a file says.
    """

    def let_zone_in(entry: Mapping[str, Any]) -> None:
        zones = {each.zone: each for each in admin.list_zones()}
        zone = zones.get(entry["name"])
        if zone is not None and zone.state == _TAKEN_OUT and zone.reason == ZONE_REASON:
            admin.let_zone_in(zone.zone, ZONE_REASON)

    def set_logging(entry: Mapping[str, Any]) -> None:
        if client is None:
            raise RuntimeError("no AWS to call: run it with the credentials of the earlier run")
        if entry["name"] not in functions():
            raise RuntimeError("the stage has no such function, so no run has changed it: take it out of the file")
        set_logging_config(client("lambda"), entry["name"], entry["before"])

    return {
        "topic": _deleting(admin.delete_topic),
        "group": _deleting(admin.delete_group),
        "share_group": _deleting(admin.delete_share_group),
        "zone": let_zone_in,
        "logging": set_logging,
        "stack": destroy,
    }


def _deleting(delete: Callable[[str], None]) -> Undoing:
    """Deletes what the entry names. A resource that is not there counts as deleted."""

    def undo(entry: Mapping[str, Any]) -> None:
        try:
            delete(entry["name"])
        except NotFoundError:
            return

    return undo


def set_logging_config(lambda_: Any, name: str, config: Mapping[str, Any]) -> None:
    """Change the function's log configuration, after an earlier change has come to its end. Wait until it is made.

    One UpdateFunctionConfiguration, and a GetFunctionConfiguration each five seconds.
    """
    is_updated = lambda_.get_waiter("function_updated")
    is_updated.wait(FunctionName=name)
    lambda_.update_function_configuration(FunctionName=name, LoggingConfig=config)
    is_updated.wait(FunctionName=name)
