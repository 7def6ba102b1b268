"""`penstock metrics`: figures of topics and consumers, once or for Prometheus."""

import click

from penstock.cli.service import Service, service_command
from penstock.metrics.collector import Collector
from penstock.metrics.endpoint import MetricsServer
from penstock_core.text import escaped

_PORT_MAX = 65_535


@click.command()
@click.option("--serve", metavar="HOST:PORT", help="Answer Prometheus there, until you stop the command.")
@service_command
def metrics(service: Service, serve: str | None) -> None:
    """Print lag and age of each consumer, and the records of each topic, in Prometheus' text format.

    For example: penstock metrics --serve 127.0.0.1:9464
    """
    place = None if serve is None else address_of(serve, "--serve")
    collector = Collector(service.transport)
    text = collector.text()
    if place is None and service.as_json:
        service.say({"metrics": text}, "")
    elif place is None:
        click.echo("\n".join(map(escaped, text.splitlines())))
    else:
        _serve(service, collector, place)


def _serve(service: Service, collector: Collector, place: tuple[str, int]) -> None:
    with metrics_server(collector, place, "--serve") as server:
        service.say({"url": server.url}, f"metrics are at {server.url}")
        server.serve_forever()


def metrics_server(collector: Collector, place: tuple[str, int], option: str) -> MetricsServer:
    """A server that listens there. Raises BadParameter of the option if the place cannot be taken."""
    try:
        return MetricsServer(collector, *place)
    except OSError as error:
        raise click.BadParameter(f"{place[0]}:{place[1]} cannot be taken: {error}", param_hint=option) from error


def address_of(text: str, option: str) -> tuple[str, int]:
    """Host and port of the text. Raises BadParameter of the option."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise click.BadParameter(f"{text!r}: give an address and a port, such as 127.0.0.1:9464", param_hint=option)
    return host, int(port)
