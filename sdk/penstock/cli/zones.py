"""`penstock zones`: look at the zones, take one out, let it in again or have it looked over."""

from dataclasses import asdict
from typing import Any

import click

from penstock.admin.admin import Admin
from penstock.cli.service import Service, service_command, time_text
from penstock.model import Zone

REASON = click.option("--reason", default="", help="The reason, for the list of zones.")


@click.group()
def zones() -> None:
    """Look at the zones, take one out of use and let it in again."""


@zones.command("list")
@service_command
def list_zones(service: Service) -> None:
    """Show every zone and its state.

    For example: penstock zones list
    """
    found = Admin(transport=service.transport).list_zones()
    _show(service, [asdict(zone) for zone in found], found)


@zones.command()
@click.argument("zone")
@REASON
@service_command
def out(service: Service, zone: str, reason: str) -> None:
    """Take ZONE out: no function writes to it, and functions read from it last.

    For example: penstock zones out a --reason "puts fail"
    """
    moved = Admin(transport=service.transport).take_zone_out(zone, reason)
    _show(service, asdict(moved), [moved])


@zones.command("in")
@click.argument("zone")
@REASON
@service_command
def let_in(service: Service, zone: str, reason: str) -> None:
    """Let ZONE catch up, or have it looked over if it is in sync. It is in sync when it holds every segment.

    For example: penstock zones in a --reason "its alarm ended"
    """
    moved = Admin(transport=service.transport).let_zone_in(zone, reason)
    _show(service, asdict(moved), [moved])


def _show(service: Service, document: Any, found: list[Zone]) -> None:
    service.show(
        document,
        title="zones",
        columns=("zone", "state", "since", "reason"),
        rows=[
            (each.zone, each.state, time_text(each.since_ms) if each.since_ms else "always", each.reason)
            for each in found
        ],
    )
