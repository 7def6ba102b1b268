"""`penstock producers`: hand a transactional id over to another IAM role or user."""

import click

from penstock.admin.admin import Admin
from penstock.cli.service import Service, service_command


@click.group()
def producers() -> None:
    """Look after the ids of transactional producers."""


@producers.command()
@click.argument("transactional_id")
@service_command
def release(service: Service, transactional_id: str) -> None:
    """Let the role or user that begins with TRANSACTIONAL_ID next have it. Stop its program first.

    For example: penstock producers release ledger-1
    """
    Admin(transport=service.transport).release_transactional_id(transactional_id)
    service.say({"released": transactional_id}, f"released {transactional_id}")
