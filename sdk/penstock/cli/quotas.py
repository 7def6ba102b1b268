"""`penstock quotas`: list the quotas of principals and topics, set them, delete them."""

from dataclasses import asdict

import click

from penstock.admin.admin import Admin
from penstock.cli.options.settings import SIZE
from penstock.cli.service import Service, service_command
from penstock.model.access import Quota

_RATES = ("produce_bytes_per_s", "produce_requests_per_s", "fetch_bytes_per_s", "fetch_requests_per_s")
_COUNTS = ("topics_max", "partitions_max", "groups_max", "subscriptions_max", "stored_bytes_max")
_SUBJECT = click.argument("subject", type=click.Choice(["principal", "topic"]))


@click.group()
def quotas() -> None:
    """Bound what principals may send, read and create, and what topics take and hold.

    The service refuses what is over a quota by 429, before it stores anything. Producers and consumers of the SDK then
    slow down. A change holds everywhere within 30 seconds.
    """


@quotas.command("list")
@service_command
def list_quotas(service: Service) -> None:
    """Show all quotas. The name * stands for all principals or topics without a quota of their own.

    For example: penstock quotas list
    """
    found = Admin(transport=service.transport).list_quotas()
    _show(service, [asdict(quota) for quota in found], found)


@quotas.command("set")
@_SUBJECT
@click.argument("name")
@click.option("--shared", is_flag=True, help="All names that match the pattern NAME share these limits.")
@click.option("--produce-bytes", type=SIZE, metavar="SIZE", help="Bytes that it may produce in a second, such as 10MB.")
@click.option("--produce-requests", type=int, metavar="N", help="Produce requests in a second.")
@click.option("--fetch-bytes", type=SIZE, metavar="SIZE", help="Bytes that it may read in a second.")
@click.option("--fetch-requests", type=int, metavar="N", help="Fetches and acquires in a second.")
@click.option("--stored-bytes-max", type=SIZE, metavar="SIZE", help="Bytes that a topic may hold, such as 50GB.")
@click.option("--topics-max", type=int, metavar="N", help="Topics that a principal may create.")
@click.option("--partitions-max", type=int, metavar="N", help="Partitions of all topics that it creates.")
@click.option("--groups-max", type=int, metavar="N", help="Groups and share groups that it may create.")
@click.option("--subscriptions-max", type=int, metavar="N", help="Subscriptions that it may create.")
@service_command
def set_quota(service: Service, subject: str, name: str, shared: bool, **given: int | None) -> None:
    r"""Set the limits of the principal or topic NAME; * is the default (quote it in a shell).

    NAME may end in *: then each principal or topic that matches has these limits for itself, and with --shared all of
    them have them together. Each limit is that of the most specific quota that has it. Limits that you leave out are
    taken away.

    \b
    For example:
      penstock quotas set principal arn:aws:iam::111122223333:role/ledger --produce-bytes 10MB
      penstock quotas set principal 'arn:aws:iam::111122223333:role/shop-*' --shared --produce-bytes 50MB
      penstock quotas set topic 'shop.*' --stored-bytes-max 50GB
    """
    limits = {
        option if option in _COUNTS else f"{option}_per_s": value
        for option, value in given.items()
        if value is not None
    }
    if not limits:
        raise click.UsageError("give at least one limit, such as --produce-bytes 10MB")
    done = Admin(transport=service.transport).set_quota(subject, name, limits, shared=shared)
    _show(service, asdict(done), [done])


@quotas.command("delete")
@_SUBJECT
@click.argument("name")
@service_command
def delete_quota(service: Service, subject: str, name: str) -> None:
    """Delete the quota of the principal or topic NAME: the default holds from then on.

    For example: penstock quotas delete topic orders
    """
    Admin(transport=service.transport).delete_quota(subject, name)
    service.say({"deleted": {"subject": subject, "name": name}}, f"deleted the quota of {subject} {name}")


def _show(service: Service, document: object, found: list[Quota]) -> None:
    service.show(
        document,
        title="quotas",
        columns=("subject", "name", "limits"),
        rows=[(each.subject, each.name, _limits_text(each)) for each in found],
    )


def _limits_text(quota: Quota) -> str:
    """The limits, by the names of their options."""
    limits = (
        f"{limit.removesuffix('_per_s').replace('_', '-')} {quota.limits[limit]:,}"
        for limit in (*_RATES, *_COUNTS)
        if limit in quota.limits
    )
    return ", ".join((*limits, "shared") if quota.shared else limits)
